/* Spans of device time: backend/cuda/spans.c beside a CUDA runtime of this file, whose clock is what the test says.
 * Sums by op, and the same spans for a trace, on the host's clock.
 * sources: spans */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>

#include "backend/cuda/device_parts.h"
#include "base/clock.h"

struct CUevent_st {
    double milliseconds;
};

static double now_ms;

cudaError_t cudaEventCreate(cudaEvent_t *event)
{
    *event = calloc(1, sizeof **event);
    return *event != NULL ? cudaSuccess : cudaErrorMemoryAllocation;
}

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    free(event);
    return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    (void)stream;
    event->milliseconds = now_ms;
    return cudaSuccess;
}

cudaError_t cudaEventElapsedTime(float *milliseconds, cudaEvent_t from, cudaEvent_t to)
{
    *milliseconds = (float)(to->milliseconds - from->milliseconds);
    return cudaSuccess;
}

tt_status tt_cuda_check(cudaError_t error, const struct tt_stream *stream, const char *what)
{
    (void)stream;
    return error == cudaSuccess ? TT_OK : tt_fail(TT_ERR_DEVICE, "%s", what);
}

tt_status tt_cuda_event_wait(struct tt_device *device, cudaEvent_t event)
{
    (void)device, (void)event;
    return TT_OK;
}

struct seen {
    int count;
    enum tt_op op[8];
    int lane[8];
    double start[8], seconds[8];
};

static void see(void *context, enum tt_op span, int lane, double start, double seconds)
{
    struct seen *seen = context;
    seen->op[seen->count] = span;
    seen->lane[seen->count] = lane;
    seen->start[seen->count] = start;
    seen->seconds[seen->count++] = seconds;
}

static bool near(double a, double b)
{
    return fabs(a - b) < 1e-6;
}

static void sums_and_trace(void **state)
{
    struct tt_cuda_device cuda = {0};
    struct tt_device device = {.impl = &cuda, .profiles = true};
    struct tt_cuda_stream queue = {0};
    struct tt_stream compute = {.device = &device, .kind = TT_STREAM_COMPUTE, .impl = &queue},
                     copy = {.device = &device, .kind = TT_STREAM_COPY, .impl = &queue};
    struct seen seen = {0};
    (void)state;
    now_ms = 100;
    tt_cuda_span_begin(&compute, TT_OP_gemm); /* before the trace */
    now_ms = 103;
    tt_cuda_span_end(&compute, TT_OP_gemm);
    assert_int_equal(tt_cuda_spans_collect(&device), TT_OK);
    assert_true(near(device.spans[TT_OP_gemm].seconds, 3e-3));
    device.span_sink = see;
    device.span_context = &seen;
    double host = tt_clock_seconds();
    now_ms = 200;
    tt_cuda_span_begin(&compute, TT_OP_gemm);
    now_ms = 205;
    tt_cuda_span_begin(&copy, TT_SPAN_GATHER);
    now_ms = 210;
    tt_cuda_span_end(&compute, TT_OP_gemm);
    now_ms = 230;
    tt_cuda_span_end(&copy, TT_SPAN_GATHER);
    tt_cuda_span_begin(&compute, TT_OP_adamw); /* never ends */
    assert_int_equal(tt_cuda_spans_collect(&device), TT_OK);
    assert_true(near(device.spans[TT_OP_gemm].seconds, 13e-3));
    assert_true(near(device.spans[TT_SPAN_GATHER].seconds, 25e-3));
    assert_int_equal(seen.count, 2);
    assert_int_equal(seen.op[0], TT_OP_gemm);
    assert_int_equal(seen.op[1], TT_SPAN_GATHER);
    assert_true(seen.lane[0] == 0 && seen.lane[1] == 1);
    assert_true(near(seen.seconds[0], 10e-3) && near(seen.seconds[1], 25e-3));
    assert_true(near(seen.start[1] - seen.start[0], 5e-3));
    assert_true(seen.start[0] >= host && seen.start[0] < tt_clock_seconds() + 1e-3);
    /* After a wait of the host the clocks meet again. */
    now_ms = 5000;
    host = tt_clock_seconds();
    tt_cuda_span_begin(&compute, TT_OP_gemm);
    tt_cuda_span_end(&compute, TT_OP_gemm);
    assert_int_equal(tt_cuda_spans_collect(&device), TT_OK);
    assert_int_equal(seen.count, 3);
    assert_true(seen.start[2] >= host && seen.start[2] < tt_clock_seconds() + 1e-3);
    tt_cuda_spans_destroy(cuda.spans);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(sums_and_trace)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
