#include "io/halves.h"

#include <string.h>

#include "base/alloc.h"
#include "base/integer.h"
#include "base/str.h"
#include "io/safetensors_impl.h"

struct tt_halves {
    struct tt_safetensors *whole; /* owned */
    /* [count]: the tensor in it, and where the half begins: elements from row to row, and before the first */
    struct half {
        const struct tt_safetensors_entry *entry;
        int64_t columns, stride, offset;
    } * halves;
};

void tt_halves_destroy(struct tt_halves *halves)
{
    if (halves == NULL) return;
    tt_safetensors_close(halves->whole);
    tt_free(halves->halves);
    tt_free(halves);
}

/* Elements of rows whose other parts lie between them: whole rows are read, some at a time. */
static tt_status read_columns(const struct tt_safetensors *whole, const struct half *half, int64_t first,
                              int64_t count, void *to)
{
    enum { STEP_BYTES = 1 << 18 };
    size_t width = tt_dtype_bytes(half->entry->dtype), row_bytes = (size_t)half->stride * width;
    int64_t step = row_bytes < STEP_BYTES ? (int64_t)(STEP_BYTES / row_bytes) : 1, end = first + count;
    char *rows = tt_alloc_aligned((size_t)step * row_bytes);
    tt_status status = rows != NULL ? TT_OK : TT_ERR_MEMORY;
    while (first < end && status == TT_OK) {
        int64_t row = first / half->columns, last = (end - 1) / half->columns;
        int64_t some = tt_smaller(step, last - row + 1);
        status = tt_safetensors_read(whole, half->entry, row * half->stride, some * half->stride, rows,
                                     half->entry->dtype);
        for (int64_t r = row; r < row + some && status == TT_OK; r++) {
            int64_t column = first % half->columns, here = tt_smaller(half->columns - column, end - first);
            memcpy(to, rows + (size_t)((r - row) * half->stride + half->offset + column) * width,
                   (size_t)here * width);
            to = (char *)to + (size_t)here * width;
            first += here;
        }
    }
    tt_free(rows);
    return status;
}

tt_status tt_halves_read(const struct tt_safetensors *file, const struct tt_safetensors_entry *entry,
                         int64_t first, int64_t count, void *to)
{
    const struct half *half = &file->halves->halves[entry - file->entries];
    const struct tt_safetensors *whole = file->halves->whole;
    if (half->columns != half->stride) return read_columns(whole, half, first, count, to);
    return tt_safetensors_read(whole, half->entry, half->offset + first, count, to, entry->dtype);
}

/* Sets shape and place; a matrix that is neither A nor B is whole. */
static tt_status cut(const struct tt_safetensors *whole, int which, struct tt_safetensors_entry *entry,
                     struct half *half)
{
    bool a = tt_ends_with(entry->name, ".lora_A.weight"), b = tt_ends_with(entry->name, ".lora_B.weight");
    half->columns = half->stride = entry->rank > 0 ? entry->dims[entry->rank - 1] : 1;
    if (half->columns == 0) half->columns = half->stride = 1;
    if (!a && !b) return TT_OK;
    if (entry->rank != 2 || entry->dims[b] % 2 != 0)
        return tt_fail(TT_ERR_DATA, "'%s': '%s' is no matrix of twice the rank", tt_safetensors_path(whole),
                       entry->name);
    entry->dims[b] /= 2;
    if (b) half->columns /= 2;
    half->offset = which * (a ? entry->dims[0] * entry->dims[1] : half->columns);
    entry->bytes /= 2;
    return TT_OK;
}

static tt_status fill(const struct tt_safetensors *whole, int which, struct tt_safetensors *file)
{
    for (size_t i = 0; i < whole->count; i++) {
        struct tt_safetensors_entry entry = whole->entries[i];
        struct half half = {.entry = &whole->entries[i]};
        bool matrix =
            tt_ends_with(entry.name, ".lora_A.weight") || tt_ends_with(entry.name, ".lora_B.weight");
        if (which == TT_HALF_FIRST && !matrix) continue;
        TT_TRY(cut(whole, which, &entry, &half));
        entry.name = tt_arena_strdup(&file->arena, entry.name);
        if (entry.name == NULL) return TT_ERR_MEMORY;
        entry.offset = file->file_bytes;
        file->file_bytes += entry.bytes;
        file->halves->halves[file->count] = half;
        file->entries[file->count++] = entry;
    }
    return tt_safetensors_index(file);
}

tt_status tt_halves_show(int half, struct tt_safetensors **file)
{
    struct tt_safetensors *whole = *file, *made = tt_safetensors_create(whole->path, whole->count + 1);
    if (made == NULL) return TT_ERR_MEMORY;
    tt_status status = TT_ERR_MEMORY;
    made->halves = tt_calloc(1, sizeof *made->halves);
    if (made->halves != NULL)
        made->halves->halves = tt_calloc(whole->count + 1, sizeof *made->halves->halves);
    if (made->halves != NULL && made->halves->halves != NULL) status = fill(whole, half, made);
    if (status != TT_OK) {
        tt_safetensors_close(made); /* which does not own the whole yet */
        return status;
    }
    made->halves->whole = whole;
    *file = made;
    return TT_OK;
}
