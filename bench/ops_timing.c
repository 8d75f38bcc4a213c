#include "ops_timing.h"

#include <stdio.h>
#include <stdlib.h>

#include "backend/ops/elementwise.h"
#include "backend/ops/optim.h"
#include "base/clock.h"

enum { REPETITIONS_MAX = 1000, BATCH_MAX = 200 };

void bench_must(tt_status status)
{
    if (status == TT_OK) return;
    char text[1024];
    tt_error_format(tt_error_last(), text, sizeof text);
    fprintf(stderr, "%s\n", text);
    exit(1);
}

void *bench_memory(struct bench *bench, size_t bytes)
{
    struct tt_buffer **slot = &bench->buffers[bench->buffer_count++];
    bench_must(tt_buffer_create(bench->device, bytes, TT_PURPOSE_ACTIVATIONS, slot));
    return tt_buffer_data(*slot);
}

tt_tensor bench_scaled_tensor(struct bench *bench, tt_dtype dtype, int64_t d0, int64_t d1, double scale)
{
    tt_tensor tensor = tt_tensor_2d(NULL, dtype, d0, d1);
    tensor.data = bench_memory(bench, tt_tensor_bytes(tensor));
    struct tt_random_fill_args args = {.y = tt_tensor_1d(tensor.data, dtype, d0 * d1),
                                       .rng = tt_rng_make(1),
                                       .first = bench->buffer_count * 1000,
                                       .normal = true,
                                       .scale = scale};
    bench_must(tt_random_fill(bench->stream, &args));
    return tensor;
}

tt_tensor bench_random_tensor(struct bench *bench, tt_dtype dtype, int64_t d0, int64_t d1)
{
    return bench_scaled_tensor(bench, dtype, d0, d1, 0.5);
}

tt_tensor bench_index_tensor(struct bench *bench, tt_dtype dtype, int64_t count, int64_t step, int64_t bound)
{
    tt_tensor tensor = tt_tensor_1d(NULL, dtype, count);
    size_t bytes = tt_tensor_bytes(tensor);
    tensor.data = bench_memory(bench, bytes);
    void *values = malloc(bytes);
    if (values == NULL) exit(1);
    for (int64_t t = 0; t < count; t++) {
        if (dtype == TT_I64) ((int64_t *)values)[t] = t * step % bound;
        if (dtype == TT_I32) ((int32_t *)values)[t] = (int32_t)(t * step % bound);
    }
    bench_must(tt_copy_to_device(bench->stream, tensor.data, values, bytes));
    bench_must(tt_stream_synchronize(bench->stream));
    free(values);
    return tensor;
}

void bench_release(struct bench *bench)
{
    bench_must(tt_stream_synchronize(bench->stream));
    while (bench->buffer_count > 0) tt_buffer_destroy(bench->buffers[--bench->buffer_count]);
}

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The time of `batch` runs, all queued before the device is waited for. */
static double run_batch(struct bench *bench, bench_run *run, const void *args, int batch)
{
    double start = tt_clock_seconds();
    for (int i = 0; i < batch; i++) bench_must(run(bench->stream, args));
    bench_must(tt_stream_synchronize(bench->stream));
    return tt_clock_seconds() - start;
}

double bench_measure(struct bench *bench, const char *name, bench_run *run, const void *args, double flops,
                     double bytes)
{
    static double times[REPETITIONS_MAX];
    int count = 0, batch = 1;
    run_batch(bench, run, args, 1);
    if (bench->gpu) {
        double one = run_batch(bench, run, args, 3) / 3;
        batch = one > 2e-3 ? 1 : one < 2e-3 / BATCH_MAX ? BATCH_MAX : (int)(2e-3 / one);
    }
    double begin = tt_clock_seconds();
    do {
        times[count++] = run_batch(bench, run, args, batch) / batch;
    } while (tt_clock_seconds() - begin < bench->seconds && count < REPETITIONS_MAX);
    qsort(times, (size_t)count, sizeof times[0], compare_doubles);
    double median = times[count / 2];
    printf("{\"op\": \"%s\", \"threads\": %d, \"repetitions\": %d, \"median_us\": %.1f, \"least_us\": %.1f",
           name, tt_device_threads(bench->device), count * batch, median * 1e6, times[0] * 1e6);
    if (flops > 0) printf(", \"gflops\": %.1f", flops / median * 1e-9);
    if (bytes > 0) printf(", \"gbytes_per_s\": %.1f", bytes / median * 1e-9);
    if (flops > 0 && bench->gemm_flops > 0)
        printf(", \"percent_of_gemm\": %.1f", 100 * flops / median / bench->gemm_flops);
    if (flops > 0 && bench->peak_flops > 0)
        printf(", \"percent_of_peak\": %.1f", 100 * flops / median / bench->peak_flops);
    if (bytes > 0 && bench->copy_bytes > 0)
        printf(", \"percent_of_copy\": %.1f", 100 * bytes / median / bench->copy_bytes);
    printf(", \"device\": \"%s\"}\n", tt_device_name(bench->device));
    fflush(stdout);
    return median;
}
