/* The sources of a data set: which sample is of which, and the figures of each. */
#include <string.h>

#include "base/alloc.h"
#include "data/store.h"

enum { ORIGIN_COPY = 1 << 15 }; /* beside a source, which is below TT_SOURCES_MAX */

const struct tt_dataset_part *tt_dataset_parts(const struct tt_dataset *dataset, size_t *count)
{
    *count = dataset->part_count;
    return dataset->parts;
}

size_t tt_dataset_source_count(const struct tt_dataset *dataset)
{
    return dataset->part_count > 1 ? dataset->parts[dataset->part_count - 1].source + 1 : 0;
}

size_t tt_dataset_source(const struct tt_dataset *dataset, size_t index)
{
    return dataset->origins != NULL ? dataset->origins[index] & (ORIGIN_COPY - 1u) : 0;
}

struct tt_dataset_part *tt_dataset_part_of(struct tt_dataset *dataset, size_t index)
{
    size_t source = tt_dataset_source(dataset, index);
    for (size_t i = 0; i < dataset->part_count; i++)
        if (dataset->part_count == 1 || dataset->parts[i].source == source) return &dataset->parts[i];
    return NULL;
}

/* ---- Files ---- */

static bool has_weights(const struct tt_dataset_part *files, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (files[i].report.samples != files[i].once) return true;
    return false;
}

static tt_status list_origins(struct tt_dataset *dataset, const struct tt_dataset_part *files, size_t count)
{
    size_t at = 0;
    dataset->origins = tt_calloc(dataset->store.sample_count, sizeof *dataset->origins);
    if (dataset->origins == NULL) return TT_ERR_MEMORY;
    for (size_t f = 0; f < count; f++)
        for (int64_t i = 0; i < files[f].report.samples && at < dataset->store.sample_count; i++)
            dataset->origins[at++] = (uint16_t)(files[f].source | (i >= files[f].once ? ORIGIN_COPY : 0));
    return TT_OK;
}

tt_status tt_dataset_set_files(struct tt_dataset *dataset, const struct tt_dataset_part *files, size_t count)
{
    size_t capacity = 0;
    for (size_t f = 0; f < count; f++) {
        size_t last = dataset->part_count;
        if (last == 0 || dataset->parts[last - 1].source != files[f].source) {
            TT_TRY(tt_grow(&dataset->parts, dataset->part_count, &capacity));
            dataset->parts[dataset->part_count++] = (struct tt_dataset_part){.source = files[f].source};
        }
        struct tt_dataset_part *part = &dataset->parts[dataset->part_count - 1];
        part->once += files[f].once;
        tt_dataset_report_add(&part->report, &files[f].report);
        part->report.samples += files[f].report.samples;
        part->report.tokens += files[f].report.tokens;
        part->report.supervised_tokens += files[f].report.supervised_tokens;
    }
    return dataset->part_count > 1 || has_weights(files, count) ? list_origins(dataset, files, count) : TT_OK;
}

/* ---- After a change of the samples ---- */

tt_status tt_dataset_copy_parts(const struct tt_dataset *from, struct tt_dataset *to)
{
    to->parts = tt_calloc(from->part_count, sizeof *to->parts);
    if (to->parts == NULL) return TT_ERR_MEMORY;
    if (from->part_count > 0) memcpy(to->parts, from->parts, from->part_count * sizeof *to->parts);
    to->part_count = from->part_count;
    return TT_OK;
}

tt_status tt_dataset_reserve_origins(const struct tt_dataset *from, size_t samples, uint16_t **out)
{
    *out = NULL;
    if (from->origins == NULL) return TT_OK;
    *out = tt_calloc(samples, sizeof **out);
    return *out != NULL ? TT_OK : TT_ERR_MEMORY;
}

void tt_dataset_copy_origins(uint16_t *to, size_t at, const struct tt_dataset *from, size_t group)
{
    size_t size = tt_store_group_size(&from->store);
    for (size_t i = 0; to != NULL && i < size; i++) to[at + i] = from->origins[group * size + i];
}

void tt_dataset_take_origins(struct tt_dataset *dataset, uint16_t **origins)
{
    tt_free(dataset->origins);
    dataset->origins = *origins;
    *origins = NULL;
}

void tt_dataset_count_parts(struct tt_dataset *dataset)
{
    for (size_t i = 0; i < dataset->part_count; i++) {
        struct tt_dataset_report *report = &dataset->parts[i].report;
        report->samples = report->tokens = report->supervised_tokens = 0;
    }
    for (size_t i = 0; i < dataset->store.sample_count; i++) {
        struct tt_dataset_part *part = tt_dataset_part_of(dataset, i);
        if (part == NULL) return;
        part->report.samples++;
        part->report.tokens += dataset->store.samples[i].count;
        part->report.supervised_tokens += dataset->store.samples[i].supervised_count;
    }
}

/* Groups of the samples once: copies that a weight makes are not counted. `source`: SIZE_MAX for all. */
static int64_t count_groups(const struct tt_dataset *dataset, size_t source)
{
    size_t size = tt_store_group_size(&dataset->store);
    int64_t groups = 0;
    for (size_t i = 0; i < dataset->store.sample_count; i += size) {
        bool counts =
            source == SIZE_MAX || dataset->part_count == 1 || tt_dataset_source(dataset, i) == source;
        groups += counts && (dataset->origins == NULL || (dataset->origins[i] & ORIGIN_COPY) == 0);
    }
    return groups;
}

/* A text of one row is held out in pieces, which are then its rows. */
static void divide_rows(struct tt_dataset_report *kept, struct tt_dataset_report *held, int64_t kept_groups,
                        int64_t held_groups)
{
    bool in_pieces = kept_groups + held_groups > kept->rows;
    held->rows = held_groups;
    kept->rows = in_pieces ? kept_groups : kept->rows - held_groups;
}

static void report_longest(struct tt_dataset *held)
{
    for (size_t i = 0; i < held->store.sample_count; i++) {
        struct tt_dataset_part *part = tt_dataset_part_of(held, i);
        int64_t count = held->store.samples[i].count;
        if (count > held->report.longest) held->report.longest = count;
        if (part != NULL && count > part->report.longest) part->report.longest = count;
    }
}

void tt_dataset_divide_reports(struct tt_dataset *kept, struct tt_dataset *held)
{
    divide_rows(&kept->report, &held->report, count_groups(kept, SIZE_MAX), count_groups(held, SIZE_MAX));
    for (size_t i = 0; i < kept->part_count; i++) {
        size_t source = kept->parts[i].source;
        held->parts[i].report = (struct tt_dataset_report){0};
        divide_rows(&kept->parts[i].report, &held->parts[i].report, count_groups(kept, source),
                    count_groups(held, source));
    }
    tt_dataset_count_samples(kept);
    tt_dataset_count_samples(held);
    tt_dataset_count_parts(kept);
    tt_dataset_count_parts(held);
    report_longest(held);
}

tt_status tt_dataset_keep(struct tt_dataset *dataset, const bool *keeps, struct tt_store *store)
{
    uint16_t *origins;
    size_t at = 0;
    TT_TRY(tt_dataset_reserve_origins(dataset, store->sample_count, &origins));
    for (size_t i = 0; origins != NULL && i < dataset->store.sample_count; i++)
        if (keeps[i]) origins[at++] = dataset->origins[i];
    struct tt_store before = dataset->store;
    dataset->store = *store;
    *store = before;
    tt_dataset_take_origins(dataset, &origins);
    tt_dataset_count_samples(dataset);
    tt_dataset_count_parts(dataset);
    return TT_OK;
}
