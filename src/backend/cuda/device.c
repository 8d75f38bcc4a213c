/* A GPU: memory, streams, events, copies. One thread, that of its rank, opens, uses and closes it. */
#include <stdio.h>
#include <string.h>

#include "backend/chips.h"
#include "backend/cuda/marks.h"
#include "backend/cuda/ops_table.h"
#include "backend/cuda/device_parts.h"
#include "base/alloc.h"

enum { ARCHITECTURE_MIN = 80 }; /* bf16 tensor cores */

static void count_fixed(struct tt_device *device, enum tt_purpose purpose, size_t bytes)
{
    device->memory.current[purpose] += bytes;
    device->memory.total_current += bytes;
    if (device->memory.peak[purpose] < device->memory.current[purpose])
        device->memory.peak[purpose] = device->memory.current[purpose];
    if (device->memory.total_peak < device->memory.total_current)
        device->memory.total_peak = device->memory.total_current;
}

static void uncount_fixed(struct tt_device *device, enum tt_purpose purpose, size_t bytes)
{
    device->memory.current[purpose] -= bytes;
    device->memory.total_current -= bytes;
}

static void cuda_close(struct tt_device *device)
{
    struct tt_cuda_device *cuda = device->impl;
    uncount_fixed(device, TT_PURPOSE_CONTEXT, device->memory.current[TT_PURPOSE_CONTEXT]);
    if (!tt_cuda_is_stuck(device)) {
        tt_cuda_conv_destroy(cuda->conv);
        tt_cuda_attention_destroy(cuda->attention);
        tt_cuda_gemm_destroy(cuda->gemm);
        tt_cuda_spans_destroy(cuda->spans);
        tt_cuda_staging_destroy(cuda->staging);
        tt_cuda_watch_destroy(cuda->watch);
        tt_cuda_marks_destroy(cuda->marks);
    }
    tt_free(cuda);
    device->impl = NULL;
}

static tt_status describe(struct tt_device *device, struct tt_cuda_device *cuda)
{
    struct tt_gpu_facts facts;
    TT_TRY(tt_cuda_facts(cuda->index, &facts));
    cuda->processors = facts.processors;
    cuda->architecture = facts.compute_major * 10 + facts.compute_minor;
    snprintf(device->name, sizeof device->name, "cuda:%d (%s)", cuda->index, facts.name);
    device->chip = tt_chip_of_device_name(facts.name);
    if (cuda->architecture >= ARCHITECTURE_MIN) return TT_OK;
    return tt_fail(TT_ERR_UNSUPPORTED, "%s has compute capability %d.%d; bf16 needs 8.0 or newer",
                   device->name, facts.compute_major, facts.compute_minor);
}

static tt_status cuda_open(struct tt_device *device, const struct tt_device_config *config)
{
    tt_status status = TT_OK;
    int count = tt_cuda_count(NULL, 0);
    if (config->index < 0 || config->index >= count)
        return tt_fail(TT_ERR_DEVICE, "there is no GPU %d: %d %s visible", config->index, count,
                       count == 1 ? "is" : "are");
    struct tt_cuda_device *cuda = tt_calloc(1, sizeof *cuda);
    if (cuda == NULL) return TT_ERR_MEMORY;
    cuda->index = config->index;
    device->impl = cuda;
    device->is_host = false;
    snprintf(device->name, sizeof device->name, "cuda:%d", config->index);
    TT_GO(tt_cuda_check(cudaSetDevice(config->index), NULL, "selecting the GPU"));
    TT_GO(tt_cuda_check(cudaFree(NULL), NULL, "starting the GPU"));
    TT_GO(describe(device, cuda));
    count_fixed(device, TT_PURPOSE_CONTEXT, tt_chip_context_bytes(device->chip));
    TT_GO(tt_cuda_check(tt_cuda_marks_create(&cuda->marks), NULL, "creating the marks of queued work"));
    TT_GO(tt_cuda_watch_create(cuda->index, device->tuning.hang_seconds, &cuda->watch));
    TT_GO(tt_cuda_staging_create(&cuda->staging));
    TT_GO(tt_cuda_gemm_create(device, &cuda->gemm));
    TT_GO(tt_cuda_attention_create(device, &cuda->attention));
    TT_GO(tt_cuda_conv_create(device, &cuda->conv));
out:
    if (status != TT_OK) cuda_close(device);
    return status;
}

static tt_status cuda_allocate(struct tt_device *device, size_t bytes, void **data)
{
    void *block = NULL;
    char what[224];
    snprintf(what, sizeof what, "allocating %zu bytes of %s", bytes, device->name);
    TT_TRY(tt_cuda_check(cudaMalloc(&block, bytes > 0 ? bytes : 1), NULL, what));
    cudaError_t error = cudaMemset(block, 0, bytes);
    /* other streams do not wait for the null stream */
    if (error == cudaSuccess) error = cudaStreamSynchronize(NULL);
    if (error != cudaSuccess) {
        cudaFree(block);
        return tt_cuda_check(error, NULL, what);
    }
    *data = block;
    return TT_OK;
}

static void cuda_release(struct tt_device *device, void *data, size_t bytes)
{
    (void)bytes;
    if (!tt_cuda_is_stuck(device)) (void)cudaFree(data);
}

static tt_status cuda_allocate_host(struct tt_device *device, size_t bytes, void **data)
{
    (void)device;
    void *block = NULL;
    char what[224];
    snprintf(what, sizeof what, "page-locking %zu bytes of host memory", bytes);
    TT_TRY(tt_cuda_check(cudaHostAlloc(&block, bytes > 0 ? bytes : 1, cudaHostAllocPortable), NULL, what));
    memset(block, 0, bytes);
    *data = block;
    return TT_OK;
}

static void cuda_release_host(struct tt_device *device, void *data, size_t bytes)
{
    (void)bytes;
    if (!tt_cuda_is_stuck(device)) (void)cudaFreeHost(data);
}

static size_t cuda_used_bytes(struct tt_device *device)
{
    size_t available = 0, total = 0;
    (void)device;
    if (cudaMemGetInfo(&available, &total) != cudaSuccess) return 0;
    return total - available;
}

static void cuda_stream_destroy(struct tt_device *device, void *impl)
{
    struct tt_cuda_stream *stream = impl;
    if (stream == NULL) return;
    struct tt_cuda_stream **link = &((struct tt_cuda_device *)device->impl)->streams;
    while (*link != NULL && *link != stream) link = &(*link)->next;
    bool stuck = tt_cuda_is_stuck(device);
    if (*link != NULL) *link = stream->next;
    if (stream->scratch != NULL)
        uncount_fixed(device, TT_PURPOSE_SCRATCH, TT_CUDA_SCRATCH_BYTES + TT_CUDA_GEMM_WORKSPACE_BYTES);
    if (!stuck) {
        if (stream->stream != NULL) cudaStreamDestroy(stream->stream);
        if (stream->scratch != NULL) cudaFree(stream->scratch);
    }
    tt_free(stream);
}

static tt_status cuda_stream_create(struct tt_device *device, enum tt_stream_kind kind, void **impl)
{
    tt_status status = TT_OK;
    int least = 0, greatest = 0;
    struct tt_cuda_stream *stream = tt_calloc(1, sizeof *stream);
    if (stream == NULL) return TT_ERR_MEMORY;
    (void)cudaDeviceGetStreamPriorityRange(&least, &greatest);
    /* Small collectives and casts must not queue behind the blocks of a large GEMM. */
    int priority = kind == TT_STREAM_COPY ? greatest : least;
    TT_GO(tt_cuda_check(cudaStreamCreateWithPriority(&stream->stream, cudaStreamNonBlocking, priority), NULL,
                        "creating a stream"));
    if (kind == TT_STREAM_COMPUTE) {
        size_t bytes = TT_CUDA_SCRATCH_BYTES + TT_CUDA_GEMM_WORKSPACE_BYTES;
        TT_GO(cuda_allocate(device, bytes, &stream->scratch));
        stream->gemm_workspace = (char *)stream->scratch + TT_CUDA_SCRATCH_BYTES;
        count_fixed(device, TT_PURPOSE_SCRATCH, bytes);
    }
    struct tt_cuda_device *cuda = device->impl;
    stream->next = cuda->streams;
    cuda->streams = stream;
    *impl = stream;
out:
    if (status != TT_OK) cuda_stream_destroy(device, stream);
    return status;
}

static tt_status cuda_event_create(struct tt_device *device, void **impl)
{
    (void)device;
    cudaEvent_t event = NULL;
    TT_TRY(
        tt_cuda_check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), NULL, "creating an event"));
    *impl = event;
    return TT_OK;
}

static void cuda_event_destroy(struct tt_device *device, void *impl)
{
    if (impl != NULL && !tt_cuda_is_stuck(device)) cudaEventDestroy(impl);
}

static tt_status cuda_event_record(struct tt_event *event, struct tt_stream *stream)
{
    if (tt_cuda_of(stream)->records) return TT_OK;
    return tt_cuda_check(cudaEventRecord(event->impl, tt_cuda_handle(stream)), stream, "recording an event");
}

static tt_status cuda_stream_wait(struct tt_stream *stream, struct tt_event *event)
{
    if (tt_cuda_of(stream)->records) return TT_OK;
    /* This stream may wait for work of another rank without hanging. */
    bool for_others = event->device != stream->device;
    if (for_others) tt_cuda_wait_begins(stream, TT_CUDA_GPUS_SECONDS);
    TT_TRY(tt_cuda_check(cudaStreamWaitEvent(tt_cuda_handle(stream), event->impl, 0), stream,
                         "waiting for an event"));
    if (for_others) tt_cuda_wait_queued(stream);
    return TT_OK;
}

static tt_status cuda_event_synchronize(struct tt_event *event)
{
    return tt_cuda_event_wait(event->device, event->impl);
}

static tt_status cuda_event_query(struct tt_event *event, bool *done)
{
    cudaError_t error = cudaEventQuery(event->impl);
    *done = error == cudaSuccess;
    return *done || error == cudaErrorNotReady ? TT_OK : tt_cuda_check(error, NULL, "querying an event");
}

static tt_status cuda_copy(struct tt_stream *stream, void *to, const void *from, size_t bytes, int direction)
{
    if (direction == TT_COPY_TO_DEVICE) return tt_cuda_upload(stream, to, from, bytes);
    if (direction == TT_COPY_TO_HOST) return tt_cuda_download(stream, to, from, bytes);
    /* A copy engine copies between GPUs. A kernel of the driver copies within a GPU, which occupies all processors for
     * a moment. docs/performance.md describes the alternative (cudaMemcpyFlagPreferOverlapWithCompute). */
    return tt_cuda_check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, tt_cuda_handle(stream)), stream,
                         "copy on the device");
}

static tt_status cuda_fill_zero(struct tt_stream *stream, void *data, size_t bytes)
{
    return tt_cuda_check(cudaMemsetAsync(data, 0, bytes, tt_cuda_handle(stream)), stream,
                         "filling with zero");
}

const struct tt_device_table tt_cuda_device_table = {
    .kind = "cuda",
    .open = cuda_open,
    .close = cuda_close,
    .allocate = cuda_allocate,
    .release = cuda_release,
    .allocate_host = cuda_allocate_host,
    .release_host = cuda_release_host,
    .export_memory = tt_cuda_export,
    .import_memory = tt_cuda_import,
    .unimport_memory = tt_cuda_unimport,
    .used_bytes = cuda_used_bytes,
    .stream_create = cuda_stream_create,
    .stream_destroy = cuda_stream_destroy,
    .stream_synchronize = tt_cuda_wait,
    .event_create = cuda_event_create,
    .event_destroy = cuda_event_destroy,
    .event_record = cuda_event_record,
    .stream_wait = cuda_stream_wait,
    .event_synchronize = cuda_event_synchronize,
    .event_query = cuda_event_query,
    .copy = cuda_copy,
    .fill_zero = cuda_fill_zero,
    .mark = tt_cuda_mark,
    .graph_begin = tt_cuda_graph_begin,
    .graph_end = tt_cuda_graph_end,
    .graph_launch = tt_cuda_graph_launch,
    .graph_destroy = tt_cuda_graph_destroy,
    .span_begin = tt_cuda_span_begin,
    .span_end = tt_cuda_span_end,
    .spans_collect = tt_cuda_spans_collect,
    .sensors = tt_cuda_sensors,
    .gemm_coded = tt_cuda_gemm_coded,
    .conv2d_prepare = tt_cuda_conv2d_prepare,
    .ops = &tt_cuda_op_table,
};
