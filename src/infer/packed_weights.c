#include "infer/packed_weights.h"

#include <string.h>

#include "backend/kept.h"
#include "base/alloc.h"

/* True for a matrix that products read where it lies. Adapters may be loaded later (infer/adapter_set.h), and rows of
 * an embedding are copied. */
static bool is_fixed(const struct tt_model *model, const struct tt_piece *piece)
{
    const tt_param *param = piece->param;
    bool embeds = !model->facts.tie_word_embeddings && strcmp(param->name, model->embedding_name) == 0;
    if (embeds || param->adapter || piece->slice_offset >= 0 || piece->in_host || param->rank != 2)
        return false;
    return (piece->dtype == TT_F32 || piece->dtype == TT_BF16) &&
           piece->count == param->dims[0] * param->dims[1];
}

/* The sum of the pieces' panels; `ranges` NULL: only that. */
static size_t collect(const struct tt_rank *rank, const struct tt_device_config *device, int64_t rows,
                      struct tt_kept_range *ranges, size_t *count)
{
    size_t bytes = 0;
    tt_dtype input = rank->model->options.compute_dtype;
    *count = 0;
    for (int u = 0; u < rank->model->unit_count; u++) {
        for (size_t p = 0; p < tt_unit_piece_count(rank->units[u]); p++) {
            struct tt_piece piece = tt_unit_piece(rank->units[u], p);
            if (!is_fixed(rank->model, &piece)) continue;
            const int64_t *dims = piece.param->dims;
            bytes += tt_kept_bytes(device, rows, dims[0], dims[1], piece.dtype, input);
            if (ranges != NULL)
                ranges[*count] =
                    (struct tt_kept_range){piece.data, (size_t)piece.count * tt_dtype_bytes(piece.dtype)};
            (*count)++;
        }
    }
    return bytes;
}

size_t tt_packed_weights_bytes(const struct tt_rank *rank, const struct tt_device_config *device,
                               int64_t rows)
{
    size_t count;
    return collect(rank, device, rows, NULL, &count);
}

tt_status tt_packed_weights_begin(const struct tt_rank *rank, const struct tt_device_config *device,
                                  int64_t rows, struct tt_buffer **memory)
{
    size_t count, bytes = collect(rank, device, rows, NULL, &count);
    *memory = NULL;
    if (bytes == 0) return TT_OK;
    struct tt_kept_range *ranges = tt_calloc(count, sizeof *ranges);
    if (ranges == NULL) return TT_ERR_MEMORY;
    (void)collect(rank, device, rows, ranges, &count);
    tt_status status = tt_buffer_create(rank->device, bytes, TT_PURPOSE_PANELS, memory);
    if (status == TT_OK) status = tt_device_keep_panels(rank->device, *memory, ranges, count);
    if (status != TT_OK) tt_packed_weights_end(rank, *memory);
    if (status != TT_OK) *memory = NULL;
    tt_free(ranges);
    return status;
}

void tt_packed_weights_end(const struct tt_rank *rank, struct tt_buffer *memory)
{
    if (memory == NULL) return;
    tt_device_drop_panels(rank->device);
    tt_buffer_destroy(memory);
}
