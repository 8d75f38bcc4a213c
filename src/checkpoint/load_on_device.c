#include "checkpoint/load_on_device.h"

#include <math.h>
#include <string.h>

#include "backend/ops/elementwise.h"
#include "backend/ops/gemm_scaled.h"
#include "base/alloc.h"
#include "base/integer.h"
#include "base/rng.h"

enum {
    ALIGNMENT = 256,
    TURNED = 16,      /* rows of a transposed copy, which the op takes at a time */
    SCALES = 16 / 4,  /* rows whose scales end at a multiple of 16 bytes */
    PARTS_MAX = 4096, /* of a batch */
};

/* Rows first .. end - 1 of one item's matrix, quantized by one op. */
struct part {
    const struct tt_quant_item *item;
    int64_t first, end;
    tt_dtype dtype;
    char *numbers; /* [end - first, cols]; of a transposed copy the transposed of that */
    bool owned;    /* no part before has read them */
    char *codes, *scales;
};

/* The scratch is filled from both ends: numbers and codes from the front, scales from the back, so that one copy
 * fetches all scales. */
struct batch {
    struct tt_stream *stream;
    const struct tt_reader_config *config;
    uint64_t seed;
    char *begin, *end, *front, *back;
    struct part *parts;
    size_t count;
    struct tt_read_range *ranges;
};

static const tt_param *original_of(const tt_param *param)
{
    return param->transposed_of != NULL ? param->transposed_of : param;
}

static bool is_transposed(const struct tt_quant_item *item)
{
    return item->piece.param->transposed_of != NULL;
}

/* F16 is widened, and weights that no file has are in bf16. */
static tt_dtype dtype_of(const struct tt_quant_item *item)
{
    return item->file == NULL || tt_quant_item_dtype(item) == TT_BF16 ? TT_BF16 : TT_F32;
}

static int64_t step_of(const struct tt_quant_item *item)
{
    return is_transposed(item) ? TURNED : 1;
}

/* Bytes of scratch without scales. */
static size_t part_bytes(const struct tt_quant_item *item, int64_t rows)
{
    size_t count = (size_t)(rows * item->piece.param->quant.cols);
    return tt_align_up(count * tt_dtype_bytes(dtype_of(item)), ALIGNMENT) + tt_align_up(count, ALIGNMENT);
}

static size_t scale_bytes(int64_t rows)
{
    return tt_align_up((size_t)rows, SCALES) * sizeof(float);
}

/* Count of the rows that fit. */
static int64_t rows_in(const struct tt_quant_item *item, size_t bytes)
{
    size_t cols = (size_t)item->piece.param->quant.cols;
    size_t row = cols * (tt_dtype_bytes(dtype_of(item)) + 1) + sizeof(float), lost = 4 * ALIGNMENT;
    int64_t rows = bytes > lost ? (int64_t)((bytes - lost) / row) : 0;
    return rows - rows % step_of(item);
}

bool tt_load_on_device_takes(const struct tt_device *device, const struct tt_quant_item *item,
                             size_t scratch_bytes)
{
    const struct tt_quant_layout *layout = &item->piece.param->quant;
    if (tt_device_is_host(device) || !tt_quant_multiplies(layout->format.type) || layout->row_squares > 0)
        return false;
    if (is_transposed(item) && !tt_gemm_scaled_takes(layout->rows, layout->cols)) return false;
    return layout->count > 0 && rows_in(item, scratch_bytes) > 0;
}

/* ---- Numbers ---- */

/* Numbers `first` .. of a part as they lie in its staging, for the reader. */
static tt_status read_numbers(void *context, int64_t first, int64_t count, void *to)
{
    const struct part *part = context;
    int64_t cols = original_of(part->item->piece.param)->quant.cols, width = cols, from = part->first * cols;
    if (is_transposed(part->item)) width = part->end - part->first, from = part->first;
    for (int64_t here, end = first + count; first < end; first += here) {
        int64_t row = first / width, col = first % width;
        here = width == cols ? end - first : tt_smaller(width - col, end - first);
        TT_TRY(tt_quant_item_read(part->item, part->dtype, from + row * cols + col, here, to));
        to = (char *)to + (size_t)here * tt_dtype_bytes(part->dtype);
    }
    return TT_OK;
}

static void add_range(struct tt_read_range *range, struct part *part)
{
    int64_t count = (part->end - part->first) * part->item->piece.param->quant.cols;
    *range = (struct tt_read_range){
        .file = part->item->file,
        .entry = part->item->entry,
        .count = count,
        .to = part->numbers,
        .dtype = part->dtype,
        .make = read_numbers,
        .context = part,
        .name = part->item->piece.param->name,
    };
}

static tt_status make_numbers(const struct batch *batch, const struct part *part)
{
    const tt_param *original = original_of(part->item->piece.param);
    int64_t rows = part->end - part->first, cols = original->quant.cols;
    struct tt_random_fill_args args = {
        .rng = tt_rng_derive(tt_rng_derive(tt_rng_make(batch->seed), "init"), original->name),
        .row_step = cols,
        .normal = original->init == TT_INIT_NORMAL,
        .scale = original->init_scale,
    };
    if (is_transposed(part->item)) {
        args.y = tt_tensor_2d(part->numbers, part->dtype, original->dims[0], rows);
        args.first = part->first;
    } else {
        args.y = tt_tensor_2d(part->numbers, part->dtype, rows, cols);
        args.first = part->first * cols;
    }
    return tt_random_fill(batch->stream, &args);
}

/* ---- Codes ---- */

static tt_status quantize(const struct batch *batch, const struct part *part)
{
    int64_t rows = part->end - part->first, cols = part->item->piece.param->quant.cols;
    tt_tensor codes = tt_tensor_2d(part->codes, TT_F8_E4M3, rows, cols);
    tt_tensor scales = tt_tensor_1d(part->scales, TT_F32, rows);
    if (is_transposed(part->item)) {
        struct tt_quantize_columns_args args = {tt_tensor_2d(part->numbers, part->dtype, cols, rows), codes,
                                                scales};
        return tt_quantize_columns(batch->stream, &args);
    }
    struct tt_quantize_rows_args args = {tt_tensor_2d(part->numbers, part->dtype, rows, cols), codes, scales};
    return tt_quantize_rows(batch->stream, &args);
}

/* Copies what the piece holds of bytes [first, first + bytes) of the segment; `from` NULL: they are zeros. */
static tt_status place(const struct batch *batch, const struct tt_piece *piece, size_t first, size_t bytes,
                       const char *from)
{
    int64_t begin = tt_larger((int64_t)first, piece->first);
    int64_t end = tt_smaller((int64_t)(first + bytes), piece->first + piece->count);
    if (begin >= end) return TT_OK;
    char *to = (char *)piece->data + (begin - piece->first);
    size_t count = (size_t)(end - begin);
    if (from != NULL) from += begin - (int64_t)first;
    if (from == NULL && piece->in_host) {
        memset(to, 0, count);
        return TT_OK;
    }
    if (from == NULL) return tt_fill_zero(batch->stream, to, count);
    return piece->in_host ? tt_copy_to_host(batch->stream, to, from, count)
                          : tt_copy_on_device(batch->stream, to, from, count);
}

static tt_status finish_part(const struct batch *batch, const struct part *part)
{
    const struct tt_piece *piece = &part->item->piece;
    const struct tt_quant_layout *layout = &piece->param->quant;
    size_t first = (size_t)part->first, rows = (size_t)(part->end - part->first), cols = (size_t)layout->cols;
    if (part->owned && part->item->file == NULL) TT_TRY(make_numbers(batch, part));
    TT_TRY(quantize(batch, part));
    TT_TRY(place(batch, piece, layout->codes.offset + first * cols, rows * cols, part->codes));
    return place(batch, piece, layout->absmax.offset + first * sizeof(float), rows * sizeof(float),
                 part->scales);
}

/* The bytes between the sections. */
static tt_status finish_gaps(const struct batch *batch, const struct tt_quant_item *item)
{
    const struct tt_quant_layout *layout = &item->piece.param->quant;
    size_t codes = layout->codes.offset + layout->codes.bytes, scales = layout->absmax.offset,
           end = scales + layout->absmax.bytes;
    TT_TRY(place(batch, &item->piece, codes, scales - codes, NULL));
    return place(batch, &item->piece, end, layout->bytes - end, NULL);
}

static tt_status check_scales(const struct part *part, const float *scales)
{
    const tt_param *param = part->item->piece.param;
    int64_t bad = 0, rows = part->end - part->first;
    while (bad < rows && isfinite(scales[bad])) bad++;
    if (bad == rows) return TT_OK;
    float *all = tt_calloc((size_t)param->quant.blocks, sizeof *all);
    if (all == NULL) return TT_ERR_MEMORY;
    all[part->first + bad] = scales[bad];
    tt_status status = tt_quant_check(&param->quant, all);
    tt_while("quantizing '%s'", param->name);
    tt_free(all);
    return status;
}

/* ---- Batches ---- */

static tt_status run_batch(struct batch *batch)
{
    tt_status status = TT_OK;
    size_t ranges = 0, bytes = (size_t)(batch->end - batch->back);
    char *scales = tt_alloc_aligned(bytes);
    if (scales == NULL) return TT_ERR_MEMORY;
    for (size_t p = 0; p < batch->count; p++)
        if (batch->parts[p].owned && batch->parts[p].item->file != NULL)
            add_range(&batch->ranges[ranges++], &batch->parts[p]);
    TT_GO(tt_reader_run(batch->stream, batch->ranges, ranges, batch->config));
    tt_stream_mark(batch->stream, "quantizing weights");
    for (size_t p = 0; p < batch->count; p++) TT_GO(finish_part(batch, &batch->parts[p]));
    TT_GO(tt_copy_to_host(batch->stream, scales, batch->back, bytes));
    TT_GO(tt_stream_synchronize(batch->stream));
    for (size_t p = 0; p < batch->count; p++)
        TT_GO(check_scales(&batch->parts[p],
                           (const float *)(const void *)(scales + (batch->parts[p].scales - batch->back))));
    batch->front = batch->begin;
    batch->back = batch->end;
    batch->count = 0;
out:
    tt_free(scales);
    return status;
}

static bool is_whole(const struct part *part)
{
    return part->first == 0 && part->end == part->item->piece.param->quant.rows;
}

/* A part of the batch that has the same numbers: the whole matrix, whichever way it is quantized. */
static const struct part *find_numbers(const struct batch *batch, const struct part *part)
{
    const tt_param *original = original_of(part->item->piece.param);
    for (size_t p = batch->count; p-- > 0 && is_whole(part);)
        if (is_whole(&batch->parts[p]) && original_of(batch->parts[p].item->piece.param) == original &&
            batch->parts[p].dtype == part->dtype)
            return &batch->parts[p];
    return NULL;
}

/* The part fits. */
static void add_part(struct batch *batch, const struct tt_quant_item *item, int64_t first, int64_t end)
{
    struct part part = {.item = item, .first = first, .end = end, .dtype = dtype_of(item)};
    size_t codes = (size_t)((end - first) * item->piece.param->quant.cols);
    const struct part *same = find_numbers(batch, &part);
    part.owned = same == NULL;
    part.numbers = same != NULL ? same->numbers : batch->front;
    if (part.owned) batch->front += part_bytes(item, end - first) - tt_align_up(codes, ALIGNMENT);
    part.codes = batch->front;
    batch->front += tt_align_up(codes, ALIGNMENT);
    batch->back -= scale_bytes(end - first);
    part.scales = batch->back;
    batch->parts[batch->count++] = part;
}

static tt_status add_item(struct batch *batch, const struct tt_quant_item *item)
{
    int64_t first, end, step = step_of(item);
    tt_quant_item_rows(item, &first, &end);
    first -= first % step;
    end = (end + step - 1) / step * step;
    TT_TRY(finish_gaps(batch, item));
    for (int64_t rows; first < end; first += rows) {
        rows = rows_in(item, (size_t)(batch->back - batch->front));
        if ((rows < end - first && batch->count > 0) || batch->count == PARTS_MAX) {
            TT_TRY(run_batch(batch));
            rows = rows_in(item, (size_t)(batch->back - batch->front));
        }
        rows = tt_smaller(rows, end - first);
        add_part(batch, item, first, first + rows);
    }
    return TT_OK;
}

tt_status tt_load_on_device(struct tt_stream *stream, const struct tt_quant_item *items, size_t item_count,
                            uint64_t seed, tt_tensor scratch, const struct tt_reader_config *config)
{
    tt_status status = TT_OK;
    if (item_count == 0) return TT_OK;
    size_t bytes = (size_t)scratch.dims[0];
    struct batch batch = {.stream = stream, .config = config, .seed = seed, .begin = scratch.data};
    batch.end = batch.begin + (bytes - bytes % ALIGNMENT);
    batch.front = batch.begin;
    batch.back = batch.end;
    batch.parts = tt_calloc(PARTS_MAX, sizeof *batch.parts);
    batch.ranges = tt_calloc(PARTS_MAX, sizeof *batch.ranges);
    if (batch.parts == NULL || batch.ranges == NULL) TT_GO(TT_ERR_MEMORY);
    for (size_t i = 0; i < item_count; i++) TT_GO(add_item(&batch, &items[i]));
    if (batch.count > 0) TT_GO(run_batch(&batch));
out:
    tt_free(batch.parts);
    tt_free(batch.ranges);
    return status;
}
