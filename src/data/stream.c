#include "data/stream.h"

#include <string.h>

#include "base/alloc.h"
#include "data/store.h"

bool tt_data_streams(const struct tt_data_config *config)
{
    return config->packing && config->packing_strategy == TT_PACKING_WRAPPED;
}

bool tt_data_packs_eval(const struct tt_data_config *config)
{
    return config->eval_packing >= 0 ? config->eval_packing > 0 : config->packing;
}

bool tt_data_holds_out(const struct tt_data_config *config)
{
    return config->eval_dataset == NULL && config->eval_split_size > 0.0;
}

/* Supervised tokens of a sample that are the first ones of a piece. */
static int64_t count_lost(const struct tt_store *store, const struct tt_store_sample *sample, uint64_t length)
{
    uint64_t end = sample->first + (uint64_t)sample->count;
    int64_t lost = 0;
    for (uint64_t cut = (sample->first / length + 1) * length; cut < end; cut += length)
        lost += store->supervised[cut] != 0;
    return lost;
}

void tt_stream_count(struct tt_dataset *dataset, int64_t length)
{
    const struct tt_store *store = &dataset->store;
    for (size_t i = 0; i < store->sample_count; i++) {
        int64_t lost = count_lost(store, &store->samples[i], (uint64_t)length);
        if (lost == 0) continue;
        dataset->report.supervised_tokens -= lost;
        struct tt_dataset_part *part = tt_dataset_part_of(dataset, i);
        if (part != NULL) part->report.supervised_tokens -= lost;
    }
}

/* Appends a sample without what is too long of it; *kept: it was not left out. */
static tt_status add_shortened(const struct tt_store *from, size_t index, int64_t limit, struct tt_store *to,
                               bool *kept)
{
    struct tt_sample sample = tt_store_sample(from, index);
    int32_t count = sample.count > limit ? (int32_t)limit : sample.count;
    *kept = count >= 2 && memchr(sample.supervised + 1, 1, (size_t)count - 1) != NULL;
    if (!*kept) return TT_OK;
    TT_TRY(tt_store_check(from, index, 0, sample.count));
    return tt_store_append(to, sample.ids, sample.supervised, count,
                           tt_store_text(from, from->samples[index].prompt),
                           tt_store_text(from, from->samples[index].completion));
}

static tt_status fail_long(const char *what, int32_t tokens, int64_t limit)
{
    tt_fail(TT_ERR_DATA, "the %s has a row of %d tokens, more than max_length (%lld)", what, (int)tokens,
            (long long)limit);
    tt_hint("raise max_length, or set over_length to truncate or drop");
    return TT_ERR_DATA;
}

tt_status tt_stream_part(struct tt_dataset *dataset, const struct tt_data_config *config, const char *what)
{
    int64_t limit = config->max_length > 0 ? config->max_length : INT32_MAX;
    struct tt_store *store = &dataset->store, shortened = {0};
    struct tt_dataset_report *report = &dataset->report;
    bool *keeps = tt_calloc(store->sample_count, sizeof *keeps);
    tt_status status = keeps != NULL ? TT_OK : TT_ERR_MEMORY;
    for (size_t i = 0; status == TT_OK && i < store->sample_count; i++) {
        bool is_long = store->samples[i].count > limit;
        if (is_long && config->over_length == TT_OVER_LENGTH_ERROR)
            TT_GO(fail_long(what, store->samples[i].count, limit));
        if (is_long && config->over_length == TT_OVER_LENGTH_DROP) {
            report->dropped++;
            continue;
        }
        status = add_shortened(store, i, limit, &shortened, &keeps[i]);
        report->truncated += is_long;
        report->without_supervision += !keeps[i];
    }
    TT_GO(status);
    if (shortened.sample_count == 0)
        TT_GO(tt_fail(TT_ERR_DATA, "the %s has no row with a supervised token within max_length", what));
    TT_GO(tt_dataset_keep(dataset, keeps, &shortened));
out:
    tt_store_deinit(&shortened);
    tt_free(keeps);
    return status;
}
