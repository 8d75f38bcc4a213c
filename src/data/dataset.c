#include "data/dataset.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/crc64.h"
#include "base/rng.h"
#include "data/store_file.h"

void tt_dataset_count_samples(struct tt_dataset *dataset)
{
    const struct tt_store *store = &dataset->store;
    struct tt_dataset_report *report = &dataset->report;
    report->samples = (int64_t)store->sample_count;
    report->tokens = (int64_t)store->token_count;
    report->supervised_tokens = 0;
    for (size_t i = 0; i < store->sample_count; i++)
        report->supervised_tokens += store->samples[i].supervised_count;
}

/* ---- Access ---- */

void tt_dataset_destroy(struct tt_dataset *dataset)
{
    if (dataset == NULL) return;
    tt_store_deinit(&dataset->store);
    tt_free(dataset->parts);
    tt_free(dataset->origins);
    tt_free(dataset);
}

size_t tt_dataset_count(const struct tt_dataset *dataset)
{
    return dataset->store.sample_count;
}

struct tt_sample tt_dataset_sample(const struct tt_dataset *dataset, size_t index)
{
    return tt_store_sample(&dataset->store, index);
}

const char *tt_dataset_prompt(const struct tt_dataset *dataset, size_t index)
{
    return tt_store_text(&dataset->store, dataset->store.samples[index].prompt);
}

const char *tt_dataset_completion(const struct tt_dataset *dataset, size_t index)
{
    return tt_store_text(&dataset->store, dataset->store.samples[index].completion);
}

void tt_dataset_report(const struct tt_dataset *dataset, struct tt_dataset_report *out)
{
    *out = dataset->report;
}

const struct tt_store *tt_dataset_store(const struct tt_dataset *dataset)
{
    return &dataset->store;
}

/* ---- Order and splitting ---- */

tt_status tt_dataset_create_random(size_t samples, int32_t length_min, int32_t length_max, int64_t vocab_size,
                                   uint64_t seed, struct tt_dataset **out)
{
    tt_status status = TT_OK;
    struct tt_rng rng = tt_rng_derive(tt_rng_make(seed), "random data set");
    struct tt_rng lengths = tt_rng_derive(rng, "lengths");
    struct tt_dataset *dataset = tt_calloc(1, sizeof *dataset);
    int32_t *ids = tt_calloc((size_t)length_max, sizeof *ids);
    uint8_t *supervised = tt_calloc((size_t)length_max, sizeof *supervised);
    if (dataset == NULL || ids == NULL || supervised == NULL) TT_GO(TT_ERR_MEMORY);
    memset(supervised, 1, (size_t)length_max);
    TT_GO(tt_store_reserve(&dataset->store, samples * (size_t)length_max, samples));
    for (size_t i = 0; i < samples; i++) {
        uint64_t spread = (uint64_t)(length_max - length_min) + 1;
        int32_t length = length_min + (int32_t)tt_rng_below(lengths, i, spread);
        for (int32_t t = 0; t < length; t++)
            ids[t] = (int32_t)tt_rng_below(rng, i * (uint64_t)length_max + (uint64_t)t, (uint64_t)vocab_size);
        TT_GO(tt_store_append(&dataset->store, ids, supervised, length, NULL, NULL));
        dataset->report.tokens += length;
        if (length > dataset->report.longest) dataset->report.longest = length;
    }
    dataset->report.rows = dataset->report.samples = (int64_t)samples;
    dataset->report.supervised_tokens = dataset->report.tokens;
    *out = dataset;
    dataset = NULL;
out:
    tt_dataset_destroy(dataset);
    tt_free(ids);
    tt_free(supervised);
    return status;
}

size_t tt_data_samples_each(const struct tt_data_config *config)
{
    return config->rows_kind != NULL && config->rows_kind->samples_each > 0 ? config->rows_kind->samples_each
                                                                            : 1;
}

tt_status tt_dataset_group(struct tt_dataset *dataset, size_t size)
{
    if (size == 0 || dataset->store.sample_count % size != 0)
        return tt_fail(TT_ERR_DATA, "%zu samples cannot be groups of %zu", dataset->store.sample_count, size);
    dataset->store.group_size = size;
    return TT_OK;
}

size_t tt_dataset_group_size(const struct tt_dataset *dataset)
{
    return tt_store_group_size(&dataset->store);
}

tt_status tt_dataset_add_column(struct tt_dataset *dataset, const char *name, enum tt_per per,
                                const float *values)
{
    struct tt_store *store = &dataset->store;
    struct tt_column_counts counts = {store->token_count, store->sample_count, tt_store_group_count(store)};
    return tt_columns_add(&store->columns, name, per, &counts, values);
}

tt_status tt_dataset_derive_column(struct tt_dataset *dataset, const char *name, enum tt_per per,
                                   float **values)
{
    struct tt_columns *columns = &dataset->store.columns;
    TT_TRY(tt_dataset_add_column(dataset, name, per, NULL));
    columns->list[columns->count - 1].derived = true;
    *values = columns->list[columns->count - 1].values;
    return TT_OK;
}

size_t tt_dataset_first_token(const struct tt_dataset *dataset, size_t index)
{
    return dataset->store.samples[index].first;
}

uint64_t tt_dataset_sum(const struct tt_dataset *dataset)
{
    const struct tt_store *store = &dataset->store;
    uint64_t sum = store->file != NULL ? tt_store_file_sum(store->file) : 0;
    for (size_t i = 0; store->file == NULL && i < store->sample_count; i++)
        sum = tt_store_sum_sample(sum, tt_store_sample(store, i));
    struct tt_column_counts counts = {store->token_count, store->sample_count, tt_store_group_count(store)};
    uint64_t group_size = tt_store_group_size(store);
    if (group_size > 1) sum = tt_crc64(sum, &group_size, sizeof group_size);
    return tt_columns_sum(&store->columns, &counts, sum);
}

tt_status tt_dataset_shuffle(struct tt_dataset *dataset, uint64_t seed)
{
    struct tt_store *store = &dataset->store, shuffled = {0};
    struct tt_rng rng = tt_rng_derive(tt_rng_make(seed), "data shuffle");
    size_t groups = tt_store_group_count(store);
    uint16_t *origins = NULL;
    tt_status status = tt_store_init_like(&shuffled, store);
    if (status == TT_OK) status = tt_store_reserve(&shuffled, store->token_count, store->sample_count);
    if (status == TT_OK) status = tt_dataset_reserve_origins(dataset, store->sample_count, &origins);
    for (size_t i = 0; status == TT_OK && i < groups; i++) {
        size_t group = tt_rng_permute(rng, i, groups);
        tt_dataset_copy_origins(origins, shuffled.sample_count, dataset, group);
        status = tt_store_append_group(&shuffled, store, group);
    }
    if (status == TT_OK) {
        struct tt_store before = *store;
        *store = shuffled;
        shuffled = before;
        tt_dataset_take_origins(dataset, &origins);
    }
    tt_free(origins);
    tt_store_deinit(&shuffled);
    return status;
}

struct summed_group {
    uint64_t sum; /* of tokens and supervision */
    size_t group;
};

static int compare_summed(const void *a, const void *b)
{
    const struct summed_group *left = a, *right = b;
    return (left->sum > right->sum) - (left->sum < right->sum);
}

static struct summed_group *sort_groups(const struct tt_store *store)
{
    size_t total = tt_store_group_count(store), size = tt_store_group_size(store);
    struct summed_group *list = tt_calloc(total, sizeof *list);
    for (size_t i = 0; list != NULL && i < total * size; i++) {
        list[i / size].group = i / size;
        list[i / size].sum = tt_store_sum_sample(list[i / size].sum, tt_store_sample(store, i));
    }
    if (list != NULL) qsort(list, total, sizeof *list, compare_summed);
    return list;
}

/* Marks the group and those of the same tokens; returns how many. */
static size_t move_copies(const struct tt_store *store, const struct summed_group *list, size_t group,
                          uint8_t *moves)
{
    size_t total = tt_store_group_count(store), size = tt_store_group_size(store), moved = 0;
    struct summed_group key = {0};
    for (size_t i = 0; i < size; i++)
        key.sum = tt_store_sum_sample(key.sum, tt_store_sample(store, group * size + i));
    const struct summed_group *at = bsearch(&key, list, total, sizeof *list, compare_summed);
    while (at > list && at[-1].sum == key.sum) at--;
    for (; at < list + total && at->sum == key.sum; at++, moved++) moves[at->group] = 1;
    return moved;
}

/* Marks the groups to hold out: the last `count` of a shuffle, or, with copies together, as many of them as `count`
 * take with all their copies. *held: their number. */
static tt_status choose_held(const struct tt_store *store, size_t count, uint64_t seed, bool copies_together,
                             uint8_t *moves, size_t *held)
{
    size_t total = tt_store_group_count(store);
    struct tt_rng rng = tt_rng_derive(tt_rng_make(seed), "data split");
    struct summed_group *list = copies_together ? sort_groups(store) : NULL;
    if (copies_together && list == NULL) return TT_ERR_MEMORY;
    *held = 0;
    for (size_t i = total; i-- > 0 && *held < count;) {
        size_t group = tt_rng_permute(rng, i, total);
        if (moves[group]) continue;
        moves[group] = 1;
        *held += list != NULL ? move_copies(store, list, group, moves) : 1;
    }
    tt_free(list);
    if (*held < total) return TT_OK;
    return tt_fail(TT_ERR_USAGE, "cannot hold out %zu of %zu samples: they are copies of each other", count,
                   total);
}

tt_status tt_dataset_split(struct tt_dataset *dataset, size_t count, uint64_t seed, bool copies_together,
                           struct tt_dataset **out)
{
    size_t total = tt_store_group_count(&dataset->store), size = tt_store_group_size(&dataset->store);
    if (count == 0 || count >= total) {
        return tt_fail(TT_ERR_USAGE, "cannot hold out %zu of %zu %s: both parts need one", count, total,
                       size > 1 ? "groups" : "samples");
    }
    tt_status status = TT_OK;
    struct tt_store kept = {0};
    struct tt_dataset *held = tt_calloc(1, sizeof *held);
    uint8_t *moves = tt_calloc(total, 1);
    uint16_t *kept_origins = NULL, *held_origins = NULL;
    if (held == NULL || moves == NULL) TT_GO(TT_ERR_MEMORY);
    TT_GO(choose_held(&dataset->store, count, seed, copies_together, moves, &count));
    TT_GO(tt_dataset_copy_parts(dataset, held));
    TT_GO(tt_dataset_reserve_origins(dataset, (total - count) * size, &kept_origins));
    TT_GO(tt_dataset_reserve_origins(dataset, count * size, &held_origins));
    TT_GO(tt_store_init_like(&kept, &dataset->store));
    TT_GO(tt_store_init_like(&held->store, &dataset->store));
    for (size_t i = 0; i < total; i++) {
        struct tt_store *to = moves[i] ? &held->store : &kept;
        tt_dataset_copy_origins(moves[i] ? held_origins : kept_origins, to->sample_count, dataset, i);
        TT_GO(tt_store_append_group(to, &dataset->store, i));
    }
    tt_store_deinit(&dataset->store);
    dataset->store = kept;
    tt_dataset_take_origins(dataset, &kept_origins);
    tt_dataset_take_origins(held, &held_origins);
    kept = (struct tt_store){0};
    tt_dataset_divide_reports(dataset, held);
    *out = held;
    held = NULL;
out:
    tt_store_deinit(&kept);
    tt_dataset_destroy(held);
    tt_free(moves);
    tt_free(kept_origins);
    tt_free(held_origins);
    return status;
}
