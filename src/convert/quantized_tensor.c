/* Quantizes one tensor, by chunks of several threads (quantized_folder.h). */
#include <pthread.h>

#include "base/alloc.h"
#include "base/file.h"
#include "convert/quantized_folder.h"
#include "tensor/format.h"

enum { THREADS_MAX = 64, CHUNK = 1 << 18 };

struct work {
    const struct tt_quantize_tensor *tensor;
    tt_dtype dtype;       /* of the weights as read */
    int64_t chunk_blocks; /* blocks (int8: rows) of a chunk of a thread */
    int64_t block;        /* weights of a block */
    float *absmax;        /* exact */
    float *restored;      /* after nested quantization; the same without it */
    bool measure;         /* this pass computes the absmax */
    atomic_llong next;
    atomic_bool stop;
    pthread_mutex_t lock; /* of `error` */
    struct tt_quantize_error error;
};

/* Data of one thread. */
struct buffers {
    void *weights;
    float *wide;
    uint8_t *codes;
};

/* `first` and `count` in weights. */
static void add_error(const struct work *work, const struct buffers *buffers, int64_t first, int64_t count,
                      struct tt_quantize_error *error)
{
    const struct tt_quant_layout *layout = work->tensor->layout;
    const struct tt_weight_format *format = tt_weight_format(layout->format.type);
    const float *map = tt_quant_map(layout->format.type);
    (void)tt_dtype_convert(buffers->wide, TT_F32, buffers->weights, work->dtype, (size_t)count);
    for (int64_t i = 0; i < count; i++) {
        float absmax = work->restored[(first + i) / work->block], got;
        /* codes are the first section */
        if (map == NULL)
            got = format->decode(layout, buffers->codes, i, absmax);
        else
            got = map[i % 2 == 0 ? buffers->codes[i / 2] >> 4 : buffers->codes[i / 2] & 15] * absmax;
        double weight = (double)buffers->wide[i], wrong = (double)got - weight;
        error->squares += weight * weight;
        error->errors += wrong * wrong;
    }
    error->count += count;
}

static tt_status run_chunk(struct work *work, const struct buffers *buffers, int64_t first_block,
                           int64_t block_count, struct tt_quantize_error *error)
{
    const struct tt_quantize_tensor *tensor = work->tensor;
    const struct tt_quant_layout *layout = tensor->layout;
    int64_t first = tt_quant_block_first(layout, first_block);
    int64_t count = tt_quant_block_first(layout, first_block + block_count) - first;
    TT_TRY(tt_model_folder_read(tensor->folder, tensor->entry, first, count, buffers->weights, work->dtype));
    if (work->measure) {
        tt_quant_absmax(layout, first_block, block_count, buffers->weights, work->dtype,
                        work->absmax + first_block);
        return TT_OK;
    }
    int64_t each = layout->byte_weights;
    tt_quant_codes(layout, first, count, buffers->weights, work->dtype, work->absmax, buffers->codes);
    add_error(work, buffers, first, count, error);
    return tt_file_pwrite(tensor->descriptor, tensor->path, buffers->codes,
                          (size_t)((count + each - 1) / each), tensor->codes_at + (uint64_t)(first / each));
}

static tt_status run_chunks(struct work *work, const struct buffers *buffers)
{
    const struct tt_quant_layout *layout = work->tensor->layout;
    const struct tt_cancel *cancel = work->tensor->cancel;
    struct tt_quantize_error error = {0};
    while (!atomic_load(&work->stop)) {
        int64_t first = (int64_t)atomic_fetch_add(&work->next, 1) * work->chunk_blocks;
        if (first >= layout->blocks) break;
        if (cancel != NULL && atomic_load(&cancel->requests) > 0)
            return tt_fail(TT_ERR_CANCELLED, "stopped while quantizing '%s'", work->tensor->entry->name);
        int64_t count =
            layout->blocks - first < work->chunk_blocks ? layout->blocks - first : work->chunk_blocks;
        TT_TRY(run_chunk(work, buffers, first, count, &error));
    }
    pthread_mutex_lock(&work->lock);
    work->error.count += error.count;
    work->error.squares += error.squares;
    work->error.errors += error.errors;
    pthread_mutex_unlock(&work->lock);
    return TT_OK;
}

static tt_status run_thread(void *argument)
{
    struct work *work = argument;
    size_t count = (size_t)(work->chunk_blocks * work->block);
    struct buffers buffers = {
        .weights = tt_alloc_aligned(count * tt_dtype_bytes(work->dtype)),
        .wide = tt_alloc_aligned(count * sizeof(float)),
        .codes = tt_alloc_aligned(count),
    };
    tt_status status = TT_ERR_MEMORY;
    if (buffers.weights != NULL && buffers.wide != NULL && buffers.codes != NULL)
        status = run_chunks(work, &buffers);
    if (status != TT_OK) atomic_store(&work->stop, true);
    tt_free(buffers.weights);
    tt_free(buffers.wide);
    tt_free(buffers.codes);
    return status;
}

static tt_status run_pass(struct work *work, bool measure)
{
    int threads = work->tensor->threads < THREADS_MAX ? work->tensor->threads : THREADS_MAX;
    work->measure = measure;
    atomic_store(&work->next, 0);
    return tt_threads_run("quantize", threads, run_thread, work);
}

static tt_status no_weights(void *context, int64_t first, int64_t count, void *to)
{
    (void)context, (void)first, (void)count, (void)to;
    return tt_fail(TT_ERR_INTERNAL, "weights read for scales");
}

/* Encodes everything but the codes, and decodes the absmax again. */
static tt_status make_tail(struct work *work, uint8_t *tail, float *offset)
{
    const struct tt_quant_layout *layout = work->tensor->layout;
    if (layout->format.nested) *offset = tt_quant_mean(work->absmax, layout->blocks);
    struct tt_quant_source source = {
        .absmax = work->absmax, .offset = *offset, .dtype = work->dtype, .read = no_weights};
    size_t at = layout->absmax.offset;
    TT_TRY(tt_quant_encode(layout, &source, at, layout->bytes - at, tail));
    if (!layout->format.nested) return TT_OK;
    const uint8_t *codes = tail;
    const float *nested = (const float *)(const void *)(tail + (layout->nested_absmax.offset - at));
    work->restored = tt_alloc_aligned((size_t)layout->blocks * sizeof(float));
    if (work->restored == NULL) return TT_ERR_MEMORY;
    for (int64_t i = 0; i < layout->blocks; i++)
        work->restored[i] =
            tt_quant_nested_map()[codes[i]] * nested[i / layout->format.nested_block] + *offset;
    return TT_OK;
}

tt_status tt_quantize_tensor(const struct tt_quantize_tensor *tensor, uint8_t **tail, float *offset,
                             struct tt_quantize_error *error)
{
    const struct tt_quant_layout *layout = tensor->layout;
    tt_status status = TT_OK;
    struct work work = {.tensor = tensor, .dtype = tensor->entry->dtype};
    uint8_t *made = NULL;
    float mean = 0;
    if (work.dtype != TT_BF16 && work.dtype != TT_F16) work.dtype = TT_F32;
    work.block = layout->block_weights;
    work.chunk_blocks = CHUNK / work.block > 0 ? CHUNK / work.block : 1;
    pthread_mutex_init(&work.lock, NULL);
    work.absmax = tt_alloc_aligned((size_t)layout->blocks * sizeof(float));
    made = tt_alloc_aligned(layout->bytes - layout->absmax.offset);
    if (work.absmax == NULL || made == NULL) TT_GO(TT_ERR_MEMORY);
    work.restored = work.absmax;
    TT_GO(run_pass(&work, true));
    TT_GO(tt_quant_check(layout, work.absmax));
    TT_GO(make_tail(&work, made, &mean));
    TT_GO(run_pass(&work, false));
    *tail = made;
    made = NULL;
    *offset = mean;
    *error = work.error;
    error->tensors = 1;
out:
    if (status != TT_OK) tt_while("quantizing '%s'", tensor->entry->name);
    pthread_mutex_destroy(&work.lock);
    if (work.restored != work.absmax) tt_free(work.restored);
    tt_free(work.absmax);
    tt_free(made);
    return status;
}
