/* Spans of device time: pairs of timed events, read when the streams are synchronized. */
#include "backend/cuda/parts.h"
#include "base/alloc.h"

struct span {
    cudaEvent_t begin, end;
    int span;
    bool closed;
};

struct tt_cuda_spans {
    struct span *spans; /* grows; events are kept and reused */
    size_t count;       /* spans in use */
    size_t made;        /* spans with events */
    size_t capacity;
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
    if (tt_grow((void **)&spans->spans, spans->made, &spans->capacity, sizeof *spans->spans) != 0)
        return false;
    struct span span = {0};
    if (cudaEventCreate(&span.begin) != cudaSuccess) return false;
    if (cudaEventCreate(&span.end) != cudaSuccess) {
        cudaEventDestroy(span.begin);
        return false;
    }
    spans->spans[spans->made++] = span;
    return true;
}

void tt_cuda_span_begin(struct tt_stream *stream, int span)
{
    struct tt_cuda_spans *spans = spans_of(stream->device);
    if (spans == NULL || tt_cuda_of(stream)->records || !make_room(spans))
        return; /* an incomplete profile does not stop a run */
    struct span *entry = &spans->spans[spans->count++];
    entry->span = span;
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
    tt_free(spans->spans);
    tt_free(spans);
}
