/* Reading tensors whose elements are not stored row by row: transposed, channels last, parts of others. */
#include <string.h>

#include "base/alloc.h"
#include "base/file.h"
#include "io/safetensors_impl.h"

/* Elements far apart are read in parts that span less than this. */
#define SPAN_BYTES_MAX ((uint64_t)256 << 20)

struct walk {
    int rank;
    const int64_t *dims;
    const struct tt_tensor_strides *strides;
    int64_t at[TT_SAFETENSORS_RANK_MAX];
    uint64_t place; /* in elements, from the tensor's first */
};

static void start_at(struct walk *walk, int64_t element)
{
    walk->place = 0;
    for (int i = walk->rank - 1; i >= 0; i--) {
        walk->at[i] = element % walk->dims[i];
        element /= walk->dims[i];
        walk->place += (uint64_t)walk->at[i] * (uint64_t)walk->strides->of[i];
    }
}

static void step(struct walk *walk)
{
    for (int i = walk->rank - 1; i >= 0; i--) {
        uint64_t stride = (uint64_t)walk->strides->of[i];
        walk->place += stride;
        if (++walk->at[i] < walk->dims[i]) return;
        walk->place -= stride * (uint64_t)walk->dims[i];
        walk->at[i] = 0;
    }
}

static void find_span(struct walk *walk, int64_t first, int64_t count, uint64_t *low, uint64_t *high)
{
    start_at(walk, first);
    *low = *high = walk->place;
    for (int64_t i = 1; i < count; i++) {
        step(walk);
        if (walk->place < *low) *low = walk->place;
        if (walk->place > *high) *high = walk->place;
    }
}

tt_status tt_strided_read(const struct tt_safetensors *file, const struct tt_safetensors_entry *entry,
                          int64_t first, int64_t count, void *to)
{
    size_t width = tt_dtype_bytes(entry->dtype);
    struct walk walk = {entry->rank, entry->dims, &file->strides[entry - file->entries], {0}, 0};
    if (count == 0) return TT_OK;
    uint64_t low, high;
    find_span(&walk, first, count, &low, &high);
    if (count > 1 && (high - low + 1) > SPAN_BYTES_MAX / width) {
        int64_t half = count / 2;
        TT_TRY(tt_strided_read(file, entry, first, half, to));
        return tt_strided_read(file, entry, first + half, count - half, (char *)to + (size_t)half * width);
    }
    size_t bytes = (size_t)(high - low + 1) * width;
    char *span = tt_alloc_aligned(bytes);
    if (span == NULL) return TT_ERR_MEMORY;
    tt_status status = tt_file_pread(file->descriptor, file->path, span, bytes, entry->offset + low * width);
    if (status == TT_OK) {
        char *out = to;
        start_at(&walk, first);
        for (int64_t i = 0; i < count; i++, out += width) {
            memcpy(out, span + (size_t)(walk.place - low) * width, width);
            step(&walk);
        }
    }
    tt_free(span);
    return status;
}
