#include "data/statistics.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/crc64.h"
#include "data/store.h"

/* ---- Lengths ---- */

/* The smallest length that `rank` samples do not exceed. */
static int64_t length_at(const int64_t *counts, int64_t rank)
{
    int64_t length = 0;
    for (int64_t seen = counts[0]; seen < rank; seen += counts[length]) length++;
    return length;
}

/* 1, 2 or 5 times a power of ten: the smallest width with few enough bins for lengths up to `longest`. */
static int64_t bin_width(int64_t longest)
{
    static const int64_t steps[] = {1, 2, 5};
    for (int64_t power = 1;; power *= 10)
        for (size_t i = 0; i < sizeof steps / sizeof *steps; i++)
            if (longest / (steps[i] * power) < TT_DATA_BINS_MAX) return steps[i] * power;
}

static void fill_bins(const int64_t *counts, struct tt_data_statistics *out)
{
    int64_t width = bin_width(out->longest);
    for (int64_t length = 0; length <= out->longest; length++) {
        struct tt_data_bin *bin = &out->bins[length / width];
        bin->samples += counts[length];
    }
    out->bin_count = (int)(out->longest / width) + 1;
    for (int i = 0; i < out->bin_count; i++) {
        out->bins[i].from = i * width;
        out->bins[i].to = (i + 1) * width - 1;
    }
}

static tt_status measure_lengths(const struct tt_dataset *dataset, struct tt_data_statistics *out)
{
    int64_t samples = (int64_t)tt_dataset_count(dataset), tokens = 0;
    out->shortest = INT64_MAX;
    for (int64_t i = 0; i < samples; i++) {
        int64_t length = tt_dataset_sample(dataset, (size_t)i).count;
        if (length < out->shortest) out->shortest = length;
        if (length > out->longest) out->longest = length;
        tokens += length;
    }
    int64_t *counts = tt_calloc((size_t)out->longest + 1, sizeof *counts);
    if (counts == NULL) return TT_ERR_MEMORY;
    for (int64_t i = 0; i < samples; i++) counts[tt_dataset_sample(dataset, (size_t)i).count]++;
    out->median = length_at(counts, (samples + 1) / 2);
    out->p95 = length_at(counts, samples - samples / 20);
    out->mean = (double)tokens / (double)samples;
    fill_bins(counts, out);
    tt_free(counts);
    return TT_OK;
}

/* ---- Duplicates ---- */

struct hashed {
    uint64_t sum;
    size_t index;
};

static int compare_hashed(const void *a, const void *b)
{
    const struct hashed *x = a, *y = b;
    if (x->sum != y->sum) return x->sum < y->sum ? -1 : 1;
    return x->index < y->index ? -1 : x->index > y->index;
}

static bool samples_equal(const struct tt_dataset *dataset, size_t a, size_t b)
{
    struct tt_sample x = tt_dataset_sample(dataset, a), y = tt_dataset_sample(dataset, b);
    size_t count = (size_t)x.count;
    return x.count == y.count && memcmp(x.ids, y.ids, count * sizeof *x.ids) == 0 &&
           memcmp(x.supervised, y.supervised, count) == 0;
}

static tt_status count_duplicates(const struct tt_dataset *dataset, int64_t *duplicates)
{
    size_t samples = tt_dataset_count(dataset), first = 0;
    struct hashed *list = tt_calloc(samples, sizeof *list);
    if (list == NULL) return TT_ERR_MEMORY;
    for (size_t i = 0; i < samples; i++) {
        struct tt_sample sample = tt_dataset_sample(dataset, i);
        tt_status status = tt_store_check(tt_dataset_store(dataset), i, 0, sample.count);
        if (status != TT_OK) {
            tt_free(list);
            return status;
        }
        uint64_t sum = tt_crc64(0, sample.ids, (size_t)sample.count * sizeof *sample.ids);
        list[i] = (struct hashed){tt_crc64(sum, sample.supervised, (size_t)sample.count), i};
    }
    qsort(list, samples, sizeof *list, compare_hashed);
    for (size_t i = 1; i < samples; i++) {
        if (list[i].sum != list[first].sum)
            first = i;
        else
            *duplicates += samples_equal(dataset, list[first].index, list[i].index);
    }
    tt_free(list);
    return TT_OK;
}

tt_status tt_data_statistics_make(const struct tt_dataset *dataset, struct tt_data_statistics *out)
{
    *out = (struct tt_data_statistics){0};
    TT_TRY(measure_lengths(dataset, out));
    return count_duplicates(dataset, &out->duplicates);
}
