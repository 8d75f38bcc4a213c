#include "ops_scan.h"

#include <stdio.h>

#include "backend/ops/conv1d.h"
#include "backend/ops/gated_norm.h"
#include "backend/ops/scan.h"

static tt_status run_conv1d_forward(struct tt_stream *stream, const void *args)
{
    return tt_conv1d_forward(stream, args);
}

static tt_status run_conv1d_backward(struct tt_stream *stream, const void *args)
{
    return tt_conv1d_backward(stream, args);
}

static tt_status run_scan_forward(struct tt_stream *stream, const void *args)
{
    return tt_scan_forward(stream, args);
}

static tt_status run_scan_backward(struct tt_stream *stream, const void *args)
{
    return tt_scan_backward(stream, args);
}

static tt_status run_gated_norm_forward(struct tt_stream *stream, const void *args)
{
    return tt_gated_norm_forward(stream, args);
}

static tt_status run_gated_norm_backward(struct tt_stream *stream, const void *args)
{
    return tt_gated_norm_backward(stream, args);
}

enum { SEQUENCES_MAX = 64 };

/* B sequences of the same length. */
struct scan_shape {
    enum tt_scan_rule rule;
    int32_t sequences, length;
    int64_t key_heads, heads, width, value_width;
};

static tt_tensor rows_of(struct bench *bench, tt_dtype dtype, int64_t rows, int64_t heads, int64_t width)
{
    return tt_tensor_heads(bench_random_tensor(bench, dtype, rows, heads * width), heads);
}

static tt_tensor vector_of(struct bench *bench, int64_t count)
{
    return tt_tensor_1d(bench_random_tensor(bench, TT_F32, 1, count).data, TT_F32, count);
}

static void bench_scan_shape(struct bench *bench, tt_dtype dtype, struct scan_shape of)
{
    int32_t cu[SEQUENCES_MAX + 1];
    int64_t rows = (int64_t)of.sequences * of.length;
    bool delta = of.rule == TT_SCAN_DELTA;
    for (int32_t b = 0; b <= of.sequences; b++) cu[b] = b * of.length;
    struct tt_scan_forward_args forward = {
        .rule = of.rule,
        .sequences = {.cu = cu,
                      .device_cu = bench_index_tensor(bench, TT_I32, of.sequences + 1, of.length, INT32_MAX),
                      .count = of.sequences},
        .q_TKE = rows_of(bench, dtype, rows, of.key_heads, of.width),
        .k_TKE = rows_of(bench, dtype, rows, of.key_heads, of.width),
        .v_THW = rows_of(bench, dtype, rows, of.heads, of.value_width),
        .a_TH = bench_random_tensor(bench, dtype, rows, of.heads),
        .a_log_H = vector_of(bench, of.heads),
        .dt_bias_H = vector_of(bench, of.heads),
        .dt_max = 100,
        .scale = 0.1,
        .norm_eps = delta ? 1e-6 : 0,
        .o_THW = rows_of(bench, dtype, rows, of.heads, of.value_width)};
    if (delta) forward.b_TH = bench_random_tensor(bench, dtype, rows, of.heads);
    size_t scratch = tt_scan_forward_scratch(bench->device, &forward);
    if (scratch > 0) forward.scratch = tt_tensor_1d(bench_memory(bench, scratch), TT_U8, (int64_t)scratch);
    char name[128], shape[96];
    snprintf(shape, sizeof shape, "%s %s %dx%d K=%lld H=%lld E=%lld W=%lld", delta ? "delta" : "mamba2",
             tt_dtype_name(dtype), (int)of.sequences, (int)of.length, (long long)of.key_heads,
             (long long)of.heads, (long long)of.width, (long long)of.value_width);
    snprintf(name, sizeof name, "scan forward %s", shape);
    bench_measure(bench, name, run_scan_forward, &forward, tt_scan_forward_flops(&forward), 0);
    if (of.length == 1) {
        bench_release(bench);
        return;
    }
    struct tt_scan_backward_args backward = {.forward = forward,
                                             .do_THW = rows_of(bench, dtype, rows, of.heads, of.value_width),
                                             .dq_TKE = rows_of(bench, dtype, rows, of.key_heads, of.width),
                                             .dk_TKE = rows_of(bench, dtype, rows, of.key_heads, of.width),
                                             .dv_THW = rows_of(bench, dtype, rows, of.heads, of.value_width),
                                             .da_TH = bench_random_tensor(bench, dtype, rows, of.heads)};
    if (delta) backward.db_TH = bench_random_tensor(bench, dtype, rows, of.heads);
    scratch = tt_scan_backward_scratch(bench->device, &backward);
    if (scratch > 0) backward.scratch = tt_tensor_1d(bench_memory(bench, scratch), TT_U8, (int64_t)scratch);
    snprintf(name, sizeof name, "scan backward %s", shape);
    bench_measure(bench, name, run_scan_backward, &backward, tt_scan_backward_flops(&forward), 0);
    bench_release(bench);
}

static void bench_rows_around(struct bench *bench, tt_dtype dtype, int32_t rows, int64_t columns,
                              int64_t heads, int64_t width)
{
    const int32_t cu[2] = {0, rows};
    double bytes = (double)tt_dtype_bytes(dtype) * (double)rows;
    char name[128], shape[64];
    struct tt_conv1d_backward_args conv = {
        .forward = {.sequences = {.cu = cu,
                                  .device_cu = bench_index_tensor(bench, TT_I32, 2, rows, INT32_MAX),
                                  .count = 1},
                    .x_TC = bench_random_tensor(bench, dtype, rows, columns),
                    .w_CJ = bench_random_tensor(bench, dtype, columns, 4),
                    .silu = true,
                    .y_TC = bench_random_tensor(bench, dtype, rows, columns)},
        .dy_TC = bench_random_tensor(bench, dtype, rows, columns),
        .dx_TC = bench_random_tensor(bench, dtype, rows, columns)};
    snprintf(shape, sizeof shape, "%s %dx%lld", tt_dtype_name(dtype), (int)rows, (long long)columns);
    snprintf(name, sizeof name, "scan conv1d forward %s", shape);
    bench_measure(bench, name, run_conv1d_forward, &conv.forward, 0, 2 * bytes * (double)columns);
    snprintf(name, sizeof name, "scan conv1d backward %s", shape);
    bench_measure(bench, name, run_conv1d_backward, &conv, 0, 3 * bytes * (double)columns);
    bench_release(bench);
    struct tt_gated_norm_forward_args norm = {.x_TN = bench_random_tensor(bench, dtype, rows, heads * width),
                                              .z_TN = bench_random_tensor(bench, dtype, rows, heads * width),
                                              .weight_N = vector_of(bench, width),
                                              .groups = heads,
                                              .eps = 1e-6,
                                              .y_TN = bench_random_tensor(bench, dtype, rows, heads * width),
                                              .rstd_TG = bench_random_tensor(bench, TT_F32, rows, heads)};
    snprintf(shape, sizeof shape, "%s %dx%lldx%lld", tt_dtype_name(dtype), (int)rows, (long long)heads,
             (long long)width);
    snprintf(name, sizeof name, "scan gated_norm forward %s", shape);
    bench_measure(bench, name, run_gated_norm_forward, &norm, 0, 3 * bytes * (double)(heads * width));
    struct tt_gated_norm_backward_args backward = {
        .dy_TN = bench_random_tensor(bench, dtype, rows, heads * width),
        .x_TN = norm.x_TN,
        .z_TN = norm.z_TN,
        .weight_N = norm.weight_N,
        .groups = heads,
        .rstd_TG = norm.rstd_TG,
        .dx_TN = bench_random_tensor(bench, dtype, rows, heads * width),
        .dz_TN = bench_random_tensor(bench, dtype, rows, heads * width)};
    snprintf(name, sizeof name, "scan gated_norm backward %s", shape);
    bench_measure(bench, name, run_gated_norm_backward, &backward, 0, 5 * bytes * (double)(heads * width));
    bench_release(bench);
}

void bench_scan(struct bench *bench)
{
    bench_rows_around(bench, TT_BF16, 2048, 6144, 16, 128);
    bench_rows_around(bench, TT_F32, 2048, 6144, 16, 128);
    bench_scan_shape(bench, TT_BF16, (struct scan_shape){TT_SCAN_DELTA, 1, 2048, 16, 16, 128, 128});
    bench_scan_shape(bench, TT_F32, (struct scan_shape){TT_SCAN_DELTA, 1, 2048, 16, 16, 128, 128});
    bench_scan_shape(bench, TT_F32, (struct scan_shape){TT_SCAN_DELTA, 16, 128, 16, 16, 128, 128});
    bench_scan_shape(bench, TT_BF16, (struct scan_shape){TT_SCAN_DELTA, 8, 1, 16, 16, 128, 128});
    bench_scan_shape(bench, TT_BF16, (struct scan_shape){TT_SCAN_MAMBA2, 1, 2048, 1, 48, 128, 64});
}

void bench_scan_of_models(struct bench *bench)
{
    /* Qwen3.5-9B: a batch, a long row, a short one */
    bench_scan_shape(bench, TT_BF16, (struct scan_shape){TT_SCAN_DELTA, 4, 4096, 16, 32, 128, 128});
    bench_scan_shape(bench, TT_BF16, (struct scan_shape){TT_SCAN_DELTA, 1, 16384, 16, 32, 128, 128});
    bench_scan_shape(bench, TT_BF16, (struct scan_shape){TT_SCAN_DELTA, 1, 4096, 16, 32, 128, 128});
    /* Nemotron-H 8B, and Granite 4 H-Tiny */
    bench_scan_shape(bench, TT_BF16, (struct scan_shape){TT_SCAN_MAMBA2, 4, 4096, 8, 128, 128, 64});
    bench_scan_shape(bench, TT_BF16, (struct scan_shape){TT_SCAN_MAMBA2, 4, 4096, 1, 48, 128, 64});
    bench_rows_around(bench, TT_BF16, 16384, 8192, 32, 128);
}
