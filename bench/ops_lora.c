#include "ops_lora.h"

#include <stdio.h>

#include "backend/ops/gemm_dropout.h"
#include "backend/ops/gemm_fused.h"
#include "backend/ops/lora_gradients.h"

static tt_status run_gemm_lora(struct tt_stream *stream, const void *args)
{
    return tt_gemm_lora(stream, args);
}

static tt_status run_gemm_swiglu(struct tt_stream *stream, const void *args)
{
    return tt_gemm_swiglu(stream, args);
}

static tt_status run_gemm_swiglu_backward(struct tt_stream *stream, const void *args)
{
    return tt_gemm_swiglu_backward(stream, args);
}

void bench_lora(struct bench *bench, const char *what, int64_t rows, int64_t n, int64_t k, int64_t r,
                bool trans)
{
    char name[96];
    struct tt_gemm_lora_args args = {
        .x_MK = bench_random_tensor(bench, TT_BF16, rows, k),
        .w.dense = bench_random_tensor(bench, TT_BF16, trans ? n : k, trans ? k : n),
        .trans_w = trans,
        .low = {.h_MR = bench_random_tensor(bench, TT_BF16, rows, r), .count = 1},
        .y_MN = bench_random_tensor(bench, TT_BF16, rows, n),
    };
    args.low.parts[0].b = bench_random_tensor(bench, TT_BF16, trans ? n : r, trans ? r : n);
    snprintf(name, sizeof name, "fused %s with LoRA %lldx%lldx%lld r %lld", what, (long long)rows,
             (long long)n, (long long)k, (long long)r);
    bench_measure(bench, name, run_gemm_lora, &args, 2.0 * (double)rows * (double)n * (double)(k + r), 0);
    bench_release(bench);
}

/* Gradients overwrite gate and up: weights so small that dact stays near 1 keep them finite. */
void bench_swiglu_products(struct bench *bench, int64_t rows, int64_t dim, int64_t ffn)
{
    char name[96];
    double flops = 2.0 * (double)rows * (double)dim * (double)ffn;
    struct tt_gemm_swiglu_args forward = {.x_MK = bench_random_tensor(bench, TT_BF16, rows, dim),
                                          .w_2FK.dense =
                                              bench_scaled_tensor(bench, TT_BF16, 2 * ffn, dim, 0.02),
                                          .gate_up_M2F = bench_random_tensor(bench, TT_BF16, rows, 2 * ffn),
                                          .keep = true,
                                          .act_MF = bench_random_tensor(bench, TT_BF16, rows, ffn)};
    snprintf(name, sizeof name, "fused gate_up with SwiGLU %lldx%lldx%lld", (long long)rows,
             (long long)(2 * ffn), (long long)dim);
    bench_measure(bench, name, run_gemm_swiglu, &forward, 2 * flops, 0);
    struct tt_gemm_swiglu_backward_args backward = {.dy_MK = forward.x_MK,
                                                    .w_KF.dense =
                                                        bench_scaled_tensor(bench, TT_BF16, dim, ffn, 0.03),
                                                    .gate_up_M2F = forward.gate_up_M2F,
                                                    .dact_MF = forward.act_MF};
    snprintf(name, sizeof name, "fused dx of down with SwiGLU %lldx%lldx%lld", (long long)rows,
             (long long)ffn, (long long)dim);
    bench_measure(bench, name, run_gemm_swiglu_backward, &backward, flops, 0);
    bench_release(bench);
}

static tt_status run_gemm_dropout(struct tt_stream *stream, const void *args)
{
    return tt_gemm_dropout(stream, args);
}

static tt_status run_gemm_dropout_weights(struct tt_stream *stream, const void *args)
{
    return tt_gemm_dropout_weights(stream, args);
}

static tt_status run_gemm_dropout_input(struct tt_stream *stream, const void *args)
{
    return tt_gemm_dropout_input(stream, args);
}

void bench_lora_dropout(struct bench *bench, int64_t tokens, int64_t width, int count, int64_t r)
{
    char name[96], shape[64];
    tt_tensor x = bench_random_tensor(bench, TT_BF16, tokens, width),
              scratch = bench_random_tensor(bench, TT_BF16, tokens, width),
              h = bench_random_tensor(bench, TT_BF16, tokens, count * r);
    struct tt_dropout_parts parts = {.row_keys_M = bench_index_tensor(bench, TT_I64, tokens, 1, tokens),
                                     .count = count};
    for (int i = 0; i < count; i++)
        parts.part[i] = (struct tt_dropout_part){.a_RK = bench_random_tensor(bench, TT_BF16, r, width),
                                                 .first_h = i * r,
                                                 .scaling = 2,
                                                 .rng = tt_rng_make((uint64_t)i),
                                                 .p = 0.05,
                                                 .da_RK = bench_random_tensor(bench, TT_F32, r, width)};
    struct tt_gemm_dropout_args down = {.x_MK = x, .parts = parts, .h_MR = h, .scratch_MK = scratch};
    struct tt_gemm_dropout_weights_args weights = {
        .x_MK = x, .parts = parts, .dh_MR = h, .scratch_MK = scratch};
    struct tt_gemm_dropout_input_args input = {.dh_MR = h, .parts = parts, .dx_MK = x, .scratch_MK = scratch};
    double pass = (double)tt_tensor_bytes(x);
    snprintf(shape, sizeof shape, "%lldx%lld, %d of r %lld", (long long)tokens, (long long)width, count,
             (long long)r);
    snprintf(name, sizeof name, "lora_dropout down %s", shape);
    bench_measure(bench, name, run_gemm_dropout, &down, 0, pass);
    snprintf(name, sizeof name, "lora_dropout weights %s", shape);
    bench_measure(bench, name, run_gemm_dropout_weights, &weights, 0, pass);
    snprintf(name, sizeof name, "lora_dropout input %s", shape);
    bench_measure(bench, name, run_gemm_dropout_input, &input, 0, 2 * pass);
    bench_release(bench);
}

static tt_status run_lora_gradients(struct tt_stream *stream, const void *args)
{
    return tt_lora_gradients(stream, args);
}

static void bench_gradients(struct bench *bench, int64_t tokens, const int64_t *outputs, int count, int64_t r)
{
    char name[96];
    int64_t all = 0;
    for (int i = 0; i < count; i++) all += outputs[i];
    struct tt_lora_gradients_args args = {.dy_MN = bench_random_tensor(bench, TT_BF16, tokens, all),
                                          .h_MR = bench_random_tensor(bench, TT_BF16, tokens, count * r),
                                          .dh_MR = bench_random_tensor(bench, TT_BF16, tokens, count * r),
                                          .count = count};
    for (int64_t i = 0, first = 0; i < count; first += outputs[i++])
        args.part[i] =
            (struct tt_lora_gradients_part){.b_NR = bench_random_tensor(bench, TT_BF16, outputs[i], r),
                                            .db_NR = bench_random_tensor(bench, TT_F32, outputs[i], r),
                                            .first_y = first,
                                            .first_h = i * r,
                                            .scaling = 2};
    snprintf(name, sizeof name, "lora_gradients %lldx%lld, %d of r %lld", (long long)tokens, (long long)all,
             count, (long long)r);
    bench_measure(bench, name, run_lora_gradients, &args, 0, (double)tt_tensor_bytes(args.dy_MN));
    bench_release(bench);
}

void bench_lora_gradients(struct bench *bench)
{
    static const int64_t qkv[] = {4096, 1024, 1024}, o[] = {4096}, gate_up[] = {14336, 14336};
    for (int64_t tokens = 8192; tokens <= 16384; tokens *= 2) {
        bench_gradients(bench, tokens, qkv, 3, 16);
        bench_gradients(bench, tokens, o, 1, 16);
        bench_gradients(bench, tokens, gate_up, 2, 16);
    }
}
