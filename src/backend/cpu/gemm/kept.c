#include "backend/cpu/gemm/kept.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

enum { SLOTS = 1 << 13, USED_MAX = SLOTS / 2, LINE_FLOATS = 16 };

struct entry {
    struct tt_gemm_source matrix;
    int64_t k;
    bool as_a;
    float *panels; /* NULL: the slot is free */
};

struct tt_gemm_kept {
    float *memory;
    int64_t floats, used;
    struct tt_kept_range *ranges; /* ascending, none touches the next */
    size_t range_count, entry_count;
    struct entry entries[SLOTS]; /* by hash */
};

static int compare_ranges(const void *a, const void *b)
{
    const char *x = ((const struct tt_kept_range *)a)->data, *y = ((const struct tt_kept_range *)b)->data;
    return (x > y) - (x < y);
}

static size_t join_ranges(struct tt_kept_range *ranges, size_t count)
{
    size_t kept = 0;
    qsort(ranges, count, sizeof *ranges, compare_ranges);
    for (size_t i = 1; i < count; i++) {
        if ((const char *)ranges[kept].data + ranges[kept].bytes == (const char *)ranges[i].data)
            ranges[kept].bytes += ranges[i].bytes;
        else
            ranges[++kept] = ranges[i];
    }
    return count > 0 ? kept + 1 : 0;
}

tt_status tt_gemm_kept_create(void *memory, size_t bytes, const struct tt_kept_range *ranges, size_t count,
                              struct tt_gemm_kept **out)
{
    struct tt_gemm_kept *kept = tt_calloc(1, sizeof *kept);
    if (kept == NULL) return TT_ERR_MEMORY;
    kept->ranges = tt_calloc(count > 0 ? count : 1, sizeof *kept->ranges);
    if (kept->ranges == NULL) {
        tt_free(kept);
        return TT_ERR_MEMORY;
    }
    if (count > 0) memcpy(kept->ranges, ranges, count * sizeof *ranges);
    kept->range_count = join_ranges(kept->ranges, count);
    kept->memory = memory;
    kept->floats = (int64_t)(bytes / sizeof(float));
    *out = kept;
    return TT_OK;
}

void tt_gemm_kept_destroy(struct tt_gemm_kept *kept)
{
    if (kept == NULL) return;
    tt_free(kept->ranges);
    tt_free(kept);
}

static bool never_changes(const struct tt_gemm_kept *kept, const struct tt_gemm_source *matrix, int64_t k)
{
    size_t low = 0, high = kept->range_count;
    const char *data = matrix->data;
    int64_t elements = (matrix->across - 1) * matrix->stride + k;
    if (matrix->gather != NULL || !matrix->k_contiguous) return false;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if ((const char *)kept->ranges[middle].data <= data)
            low = middle + 1;
        else
            high = middle;
    }
    if (low == 0) return false;
    const struct tt_kept_range *range = &kept->ranges[low - 1];
    size_t offset = (size_t)(data - (const char *)range->data),
           bytes = (size_t)elements * tt_dtype_bytes(matrix->dtype);
    return offset <= range->bytes && bytes <= range->bytes - offset;
}

static bool is_of(const struct entry *entry, const struct tt_gemm_source *matrix, int64_t k, bool as_a)
{
    return entry->matrix.data == matrix->data && entry->matrix.across == matrix->across &&
           entry->matrix.stride == matrix->stride && entry->matrix.dtype == matrix->dtype && entry->k == k &&
           entry->as_a == as_a;
}

float *tt_gemm_kept_find(struct tt_gemm_kept *kept, const struct tt_gemm_source *matrix, int64_t k, bool as_a,
                         int64_t floats, bool *fresh)
{
    *fresh = false;
    if (!never_changes(kept, matrix, k)) return NULL;
    uint64_t hash = ((uintptr_t)matrix->data >> 6) * 0x9e3779b97f4a7c15u;
    size_t slot = (size_t)(hash >> 51); /* 13 bits */
    for (; kept->entries[slot].panels != NULL; slot = (slot + 1) % SLOTS)
        if (is_of(&kept->entries[slot], matrix, k, as_a)) return kept->entries[slot].panels;
    int64_t rounded = (floats + LINE_FLOATS - 1) / LINE_FLOATS * LINE_FLOATS;
    if (rounded > kept->floats - kept->used || kept->entry_count == USED_MAX) return NULL;
    struct entry *entry = &kept->entries[slot];
    *entry = (struct entry){*matrix, k, as_a, kept->memory + kept->used};
    kept->used += rounded;
    kept->entry_count++;
    *fresh = true;
    return entry->panels;
}
