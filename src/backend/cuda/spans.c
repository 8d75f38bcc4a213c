/* Spans of device time: pairs of timed events, read when the streams are synchronized. */
#include "backend/cuda/device_parts.h"
#include "base/alloc.h"
#include "base/clock.h"

struct span {
    cudaEvent_t begin, end;
    int span, lane;
    bool closed;
};

struct tt_cuda_spans {
    struct span *spans; /* grows; events are kept and reused */
    size_t count;       /* spans in use */
    size_t made;        /* spans with events */
    size_t capacity;
    /* A moment on both clocks, near enough for a trace: recorded with the first span after the host has waited. */
    cudaEvent_t base;
    double base_seconds;
    bool has_base, based;
};

static struct tt_cuda_spans *spans_of(struct tt_device *device)
{
    struct tt_cuda_device *cuda = device->impl;
    if (cuda->spans == NULL) cuda->spans = tt_calloc(1, sizeof *cuda->spans);
    return cuda->spans;
}

static bool make_room(struct tt_cuda_spans *spans)
{
    if (spans->count < spans->made) return true;
    if (tt_grow(&spans->spans, spans->made, &spans->capacity) != 0) return false;
    struct span span = {0};
    if (cudaEventCreate(&span.begin) != cudaSuccess) return false;
    if (cudaEventCreate(&span.end) != cudaSuccess) {
        cudaEventDestroy(span.begin);
        return false;
    }
    spans->spans[spans->made++] = span;
    return true;
}

static void set_base(struct tt_cuda_spans *spans, struct tt_stream *stream)
{
    if (!spans->has_base && cudaEventCreate(&spans->base) != cudaSuccess) return;
    spans->has_base = true;
    spans->base_seconds = tt_clock_seconds();
    spans->based = cudaEventRecord(spans->base, tt_cuda_handle(stream)) == cudaSuccess;
}

void tt_cuda_span_begin(struct tt_stream *stream, int span)
{
    struct tt_cuda_spans *spans = spans_of(stream->device);
    /* an incomplete profile does not stop a run */
    if (spans == NULL || tt_cuda_of(stream)->records || !make_room(spans)) return;
    if (spans->count == 0) set_base(spans, stream);
    struct span *entry = &spans->spans[spans->count++];
    entry->span = span;
    entry->lane = stream->kind == TT_STREAM_COPY;
    entry->closed = false;
    (void)cudaEventRecord(entry->begin, tt_cuda_handle(stream));
}

void tt_cuda_span_end(struct tt_stream *stream, int span)
{
    struct tt_cuda_spans *spans = spans_of(stream->device);
    if (spans == NULL || tt_cuda_of(stream)->records) return;
    for (size_t i = spans->count; i > 0; i--) {
        struct span *entry = &spans->spans[i - 1];
        if (entry->span != span || entry->closed) continue;
        (void)cudaEventRecord(entry->end, tt_cuda_handle(stream));
        entry->closed = true;
        return;
    }
}

static tt_status pass_on(struct tt_device *device, const struct tt_cuda_spans *spans,
                         const struct span *entry, double seconds)
{
    float since = 0;
    if (device->span_sink == NULL || !spans->based) return TT_OK;
    TT_TRY(tt_cuda_check(cudaEventElapsedTime(&since, spans->base, entry->begin), NULL, "reading a span"));
    device->span_sink(device->span_context, (enum tt_op)entry->span, entry->lane,
                      spans->base_seconds + since * 1e-3, seconds);
    return TT_OK;
}

tt_status tt_cuda_spans_collect(struct tt_device *device)
{
    struct tt_cuda_spans *spans = spans_of(device);
    if (spans == NULL) return TT_OK;
    for (size_t i = 0; i < spans->count; i++) {
        struct span *entry = &spans->spans[i];
        float milliseconds = 0;
        if (!entry->closed) continue;
        TT_TRY(tt_cuda_event_wait(device, entry->end));
        TT_TRY(tt_cuda_check(cudaEventElapsedTime(&milliseconds, entry->begin, entry->end), NULL,
                             "reading a span"));
        device->spans[entry->span].seconds += milliseconds * 1e-3;
        TT_TRY(pass_on(device, spans, entry, milliseconds * 1e-3));
    }
    spans->count = 0;
    return TT_OK;
}

void tt_cuda_spans_destroy(struct tt_cuda_spans *spans)
{
    if (spans == NULL) return;
    for (size_t i = 0; i < spans->made; i++) {
        cudaEventDestroy(spans->spans[i].begin);
        cudaEventDestroy(spans->spans[i].end);
    }
    if (spans->has_base) cudaEventDestroy(spans->base);
    tt_free(spans->spans);
    tt_free(spans);
}
