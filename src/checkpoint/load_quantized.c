#include "checkpoint/load_quantized.h"

#include <string.h>

#include "base/alloc.h"
#include "checkpoint/random_codes.h"
#include "tensor/format.h"

enum {
    WEIGHTS_BYTES = 1 << 20,    /* read by a thread at a time */
    TURN_BYTES = 4 * (1 << 20), /* the same, where they are transposed */
    TRANSPOSE_RANGES = 4,       /* of the rows of one tensor, for as many threads */
    TRANSPOSED_SHARE = 4,       /* of a batch: bytes of transposed weights as one byte of the limit */
};
#define BATCH_BYTES_MAX ((size_t)256 << 20)

/* One tensor during loading. Each block's absmax is written by one thread, and read by others only after all threads
 * have ended. */
struct job {
    const struct tt_quant_item *item;
    const struct tt_quant_layout *layout;
    float *absmax; /* [layout->blocks]; those that this rank needs */
    float offset;
    tt_dtype dtype; /* of the weights as read */
    struct tt_random_codes random;
    /* Rows transposed_first .. transposed_end - 1 of a transposed copy, as read. */
    void *transposed;
    int64_t transposed_first, transposed_end;
};

tt_dtype tt_quant_item_dtype(const struct tt_quant_item *item)
{
    bool narrow = item->entry != NULL && item->residual == NULL &&
                  (item->entry->dtype == TT_BF16 || item->entry->dtype == TT_F16);
    return narrow ? item->entry->dtype : TT_F32;
}

tt_status tt_quant_item_read(const struct tt_quant_item *item, tt_dtype dtype, int64_t first, int64_t count,
                             void *to)
{
    if (item->stored != NULL)
        return tt_quantized_read_weights(item->stored->folder, &item->stored->tensor, first, count, to);
    if (item->residual != NULL) return tt_residual_read(item->residual, first, count, to);
    return tt_safetensors_read(item->file, item->entry, first, count, to, dtype);
}

static tt_status read_weights(void *context, int64_t first, int64_t count, void *to)
{
    const struct job *job = context;
    size_t element = tt_dtype_bytes(job->dtype);
    if (job->transposed != NULL) {
        int64_t at = first - job->transposed_first * job->layout->cols;
        memcpy(to, (const char *)job->transposed + (size_t)at * element, (size_t)count * element);
        return TT_OK;
    }
    return tt_quant_item_read(job->item, job->dtype, first, count, to);
}

/* 4 bits: absmax and codes of whole blocks, bytes first .. first + count - 1 of the codes; without `to` only
 * the absmax. */
static tt_status make_codes(void *context, int64_t first, int64_t count, void *to)
{
    struct job *job = context;
    const struct tt_quant_layout *layout = job->layout;
    int64_t block = layout->format.block, end = 2 * (first + count);
    int64_t step = WEIGHTS_BYTES / (int64_t)tt_dtype_bytes(job->dtype) / block * block;
    if (end > layout->count) end = layout->count;
    void *weights = tt_alloc_aligned(WEIGHTS_BYTES);
    if (weights == NULL) return TT_ERR_MEMORY;
    tt_status status = TT_OK;
    for (int64_t at = 2 * first; at < end; at += step) {
        int64_t some = end - at < step ? end - at : step;
        status = read_weights(job, at, some, weights);
        if (status != TT_OK) break;
        tt_quant_absmax(layout, at / block, (some + block - 1) / block, weights, job->dtype,
                        job->absmax + at / block);
        if (to != NULL)
            tt_quant_codes(layout, at, some, weights, job->dtype, job->absmax,
                           (uint8_t *)to + (at / 2 - first));
    }
    tt_free(weights);
    return status;
}

/* int8: absmax of rows first .. first + count - 1. */
static tt_status measure_rows(void *context, int64_t first, int64_t count, void *to)
{
    struct job *job = context;
    const struct tt_quant_layout *layout = job->layout;
    int64_t step = WEIGHTS_BYTES / (int64_t)tt_dtype_bytes(job->dtype) / layout->cols;
    (void)to;
    if (step < 1) step = 1;
    void *weights = tt_alloc_aligned((size_t)(step * layout->cols) * tt_dtype_bytes(job->dtype));
    if (weights == NULL) return TT_ERR_MEMORY;
    tt_status status = TT_OK;
    for (int64_t row = first; row < first + count && status == TT_OK; row += step) {
        int64_t rows = first + count - row < step ? first + count - row : step;
        status = read_weights(job, row * layout->cols, rows * layout->cols, weights);
        if (status == TT_OK) tt_quant_absmax(layout, row, rows, weights, job->dtype, job->absmax + row);
    }
    tt_free(weights);
    return status;
}

/* Writes bytes of the segment, after all absmax are known. */
static tt_status make_rest(void *context, int64_t first, int64_t count, void *to)
{
    struct job *job = context;
    struct tt_quant_source source = {.absmax = job->absmax,
                                     .offset = job->offset,
                                     .dtype = job->dtype,
                                     .read = read_weights,
                                     .context = job};
    return tt_quant_encode(job->layout, &source, (size_t)first, (size_t)count, to);
}

/* ---- Transposing ---- */

/* Columns transposed_first .. transposed_end - 1 of `rows` rows, from row `first` on, become rows. */
static void turn_block(const struct job *job, const void *weights, int64_t first, int64_t rows)
{
    int64_t from_cols = job->layout->rows, to_cols = job->layout->cols;
    for (int64_t c = job->transposed_first; c < job->transposed_end; c++) {
        int64_t at = (c - job->transposed_first) * to_cols + first;
        if (job->dtype == TT_F32)
            for (int64_t r = 0; r < rows; r++)
                ((uint32_t *)job->transposed)[at + r] = ((const uint32_t *)weights)[r * from_cols + c];
        else
            for (int64_t r = 0; r < rows; r++)
                ((uint16_t *)job->transposed)[at + r] = ((const uint16_t *)weights)[r * from_cols + c];
    }
}

/* Rows first .. first + count - 1 of the original. */
static tt_status transpose(void *context, int64_t first, int64_t count, void *to)
{
    const struct job *job = context;
    int64_t cols = job->layout->rows, step = TURN_BYTES / (int64_t)tt_dtype_bytes(job->dtype) / cols;
    (void)to;
    if (step < 1) step = 1;
    void *weights = tt_alloc_aligned((size_t)(step * cols) * tt_dtype_bytes(job->dtype));
    if (weights == NULL) return TT_ERR_MEMORY;
    tt_status status = TT_OK;
    for (int64_t row = first; row < first + count && status == TT_OK; row += step) {
        int64_t rows = first + count - row < step ? first + count - row : step;
        status = tt_quant_item_read(job->item, job->dtype, row * cols, rows * cols, weights);
        if (status == TT_OK) turn_block(job, weights, row, rows);
    }
    tt_free(weights);
    return status;
}

/* ---- Random codes with one absmax everywhere. The values of the codes have a deviation of about half the
 * absmax. ---- */

static tt_status make_up(void *context, int64_t first, int64_t count, void *to)
{
    const struct job *job = context;
    int64_t codes = (int64_t)job->layout->codes.bytes, here = codes - first < count ? codes - first : count;
    if (here > 0) tt_random_codes_fill(&job->random, first, here, to);
    if (here < 0) here = 0;
    if (here == count) return TT_OK;
    bool powers = tt_weight_format(job->layout->format.type)->powers;
    struct tt_quant_source source = {
        .absmax = job->absmax, .offset = powers ? 0 : job->absmax[0], .dtype = TT_F32};
    return tt_quant_encode(job->layout, &source, (size_t)(first + here), (size_t)(count - here),
                           (char *)to + here);
}

/* ---- Ranges to read ---- */

struct span {
    int64_t first, end; /* bytes of the codes */
};

static struct span clip(int64_t first, int64_t end, int64_t low, int64_t high)
{
    struct span span = {first > low ? first : low, end < high ? end : high};
    if (span.first >= span.end) span = (struct span){0, 0};
    return span;
}

/* The codes in the piece, and the codes whose absmax the rest of the piece needs. */
static void find_spans(const struct tt_quant_item *item, struct span *held, struct span *needed)
{
    const struct tt_piece *piece = &item->piece;
    const struct tt_quant_layout *layout = &piece->param->quant;
    int64_t end = piece->first + piece->count, codes = (int64_t)layout->codes.bytes;
    *held = clip(piece->first, end, 0, codes);
    *needed = (struct span){0, 0};
    if (end <= (int64_t)layout->absmax.offset) return;
    bool powers = tt_weight_format(layout->format.type)->powers;
    if (layout->format.nested && !powers) {
        *needed = (struct span){0, codes};
        return;
    }
    int64_t absmax = (int64_t)layout->absmax.offset, width = powers ? 1 : (int64_t)sizeof(float);
    /* in bytes of theirs */
    struct span scales = clip(piece->first - absmax, end - absmax, 0, (int64_t)layout->absmax.bytes);
    int64_t block_bytes = layout->block_weights / layout->byte_weights;
    needed->first = scales.first / width * block_bytes;
    needed->end = (scales.end + width - 1) / width * block_bytes;
    if (needed->end > codes) needed->end = codes;
}

/* The two passes over one batch of tensors: first the blocks, then the sections that depend on all of them. */
struct batch {
    struct job *jobs;
    size_t job_count;
    struct tt_read_range *ranges;
    size_t range_count;
};
enum { RANGES_A_JOB = TRANSPOSE_RANGES };

static void add_range(struct batch *batch, struct job *job, tt_read_make *make, int64_t first, int64_t end,
                      void *to)
{
    if (first >= end) return;
    batch->ranges[batch->range_count++] = (struct tt_read_range){
        .file = job->item->file,
        .entry = job->item->entry,
        .first = first,
        .count = end - first,
        .to = to,
        .dtype = TT_U8,
        .in_host = job->item->piece.in_host,
        .make = make,
        .context = job,
        .name = job->item->piece.param->name,
    };
}

static void *place_of(const struct job *job, int64_t byte)
{
    return (char *)job->item->piece.data + (byte - job->item->piece.first);
}

void tt_quant_item_rows(const struct tt_quant_item *item, int64_t *first_row, int64_t *end_row)
{
    struct span held, needed;
    find_spans(item, &held, &needed);
    int64_t cols = item->piece.param->quant.cols, first = held.end > 0 ? held.first : needed.first;
    if (needed.end > 0 && needed.first < first) first = needed.first;
    int64_t end = held.end > needed.end ? held.end : needed.end;
    *first_row = first / cols;
    *end_row = (end + cols - 1) / cols;
}

static void add_turns(struct batch *batch, struct job *job)
{
    int64_t rows = job->layout->cols; /* of the original */
    for (int i = 0; i < TRANSPOSE_RANGES && job->transposed != NULL; i++)
        add_range(batch, job, transpose, rows * i / TRANSPOSE_RANGES, rows * (i + 1) / TRANSPOSE_RANGES,
                  NULL);
}

static void add_blocks(struct batch *batch, struct job *job)
{
    struct span held, needed;
    if (job->item->file == NULL) return;
    if (tt_weight_format(job->layout->format.type)->row_blocks) {
        int64_t first, end;
        tt_quant_item_rows(job->item, &first, &end);
        add_range(batch, job, measure_rows, first, end, NULL);
        return;
    }
    find_spans(job->item, &held, &needed);
    add_range(batch, job, make_codes, held.first, held.end, place_of(job, held.first));
    if (held.end == 0) held.first = held.end = needed.end;
    add_range(batch, job, make_codes, needed.first, needed.end < held.first ? needed.end : held.first, NULL);
    add_range(batch, job, make_codes, needed.first > held.end ? needed.first : held.end, needed.end, NULL);
}

static tt_status add_rest(struct batch *batch, struct job *job)
{
    const struct tt_quant_layout *layout = job->layout;
    const struct tt_piece *piece = &job->item->piece;
    int64_t first = piece->first, end = piece->first + piece->count;
    if (job->item->file == NULL) {
        add_range(batch, job, make_up, first, end, place_of(job, first));
        return TT_OK;
    }
    tt_status status = tt_quant_check(layout, job->absmax);
    if (status != TT_OK) tt_while("quantizing '%s'", piece->param->name);
    TT_TRY(status);
    job->offset = tt_quant_offset(layout, job->absmax);
    if (!tt_weight_format(layout->format.type)->row_blocks && first < (int64_t)layout->codes.bytes)
        first = (int64_t)layout->codes.bytes;
    add_range(batch, job, make_rest, first, end, place_of(job, first));
    return TT_OK;
}

/* ---- Batches ---- */

static size_t transposed_bytes(const struct job *job)
{
    return (size_t)((job->transposed_end - job->transposed_first) * job->layout->cols) *
           tt_dtype_bytes(job->dtype);
}

static tt_status job_init(struct job *job, const struct tt_quant_item *item, uint64_t seed)
{
    const tt_param *param = item->piece.param;
    *job = (struct job){.item = item, .layout = &param->quant, .dtype = tt_quant_item_dtype(item)};
    job->absmax = tt_calloc((size_t)job->layout->blocks, sizeof *job->absmax);
    if (job->absmax == NULL) return TT_ERR_MEMORY;
    if (item->file == NULL) {
        float absmax = tt_random_codes_init(&job->random, param, seed);
        for (int64_t i = 0; i < job->layout->blocks; i++) job->absmax[i] = absmax;
        return TT_OK;
    }
    if (param->transposed_of == NULL) return TT_OK;
    tt_quant_item_rows(item, &job->transposed_first, &job->transposed_end);
    job->transposed = tt_alloc_aligned(transposed_bytes(job));
    return job->transposed != NULL ? TT_OK : TT_ERR_MEMORY;
}

static void job_deinit(struct job *job)
{
    tt_free(job->absmax);
    tt_free(job->transposed);
    job->absmax = NULL;
    job->transposed = NULL;
}

static tt_status run_batch(struct tt_stream *stream, struct batch *batch,
                           const struct tt_reader_config *config)
{
    batch->range_count = 0;
    for (size_t j = 0; j < batch->job_count; j++) add_turns(batch, &batch->jobs[j]);
    if (batch->range_count > 0) TT_TRY(tt_reader_run(stream, batch->ranges, batch->range_count, config));
    batch->range_count = 0;
    for (size_t j = 0; j < batch->job_count; j++) add_blocks(batch, &batch->jobs[j]);
    TT_TRY(tt_reader_run(stream, batch->ranges, batch->range_count, config));
    batch->range_count = 0;
    for (size_t j = 0; j < batch->job_count; j++) TT_TRY(add_rest(batch, &batch->jobs[j]));
    return tt_reader_run(stream, batch->ranges, batch->range_count, config);
}

tt_status tt_load_quantized(struct tt_stream *stream, const struct tt_quant_item *items, size_t item_count,
                            uint64_t seed, const struct tt_reader_config *config)
{
    tt_status status = TT_OK;
    struct batch batch = {0};
    if (item_count == 0) return TT_OK;
    batch.jobs = tt_calloc(item_count, sizeof *batch.jobs);
    batch.ranges = tt_calloc(item_count * RANGES_A_JOB, sizeof *batch.ranges);
    if (batch.jobs == NULL || batch.ranges == NULL) TT_GO(TT_ERR_MEMORY);
    for (size_t i = 0; i < item_count;) {
        size_t bytes = 0;
        for (batch.job_count = 0; i < item_count && (bytes == 0 || bytes < BATCH_BYTES_MAX); i++) {
            struct job *job = &batch.jobs[batch.job_count++];
            TT_GO(job_init(job, &items[i], seed));
            bytes += (size_t)job->layout->blocks * sizeof(float);
            if (job->transposed != NULL) bytes += transposed_bytes(job) / TRANSPOSED_SHARE;
        }
        TT_GO(run_batch(stream, &batch, config));
        for (size_t j = 0; j < batch.job_count; j++) job_deinit(&batch.jobs[j]);
    }
out:
    for (size_t j = 0; batch.jobs != NULL && j < item_count; j++) job_deinit(&batch.jobs[j]);
    tt_free(batch.jobs);
    tt_free(batch.ranges);
    return status;
}
