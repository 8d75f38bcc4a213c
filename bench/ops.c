/* Speed of single ops. Usage: bench_ops [--device cpu|cuda] [--threads N] [--seconds S] [name part ...]
 * Prints one JSON line per case: the median time of the repetitions that fit in S seconds, GFLOP/s where the op is
 * bound by arithmetic and GB/s where it is bound by memory (bytes that must be read and written once). On a
 * processor the first line has the measured peak of its arithmetic units, and each matrix product its share of
 * that; `bench_ops levels` runs a few products on each level of TRIMTAB_CPU_ISA that the processor has. On a GPU
 * the sizes are those of real models, and each case has its share of this machine's own peak: that of a large
 * copy, or of a large bf16 product; both are measured first.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/device.h"
#include "backend/ops/attention.h"
#include "backend/ops/cross_entropy.h"
#include "backend/ops/elementwise.h"
#include "backend/ops/embedding.h"
#include "backend/ops/gemm.h"
#include "backend/ops/optim.h"
#include "backend/ops/quant.h"
#include "backend/ops/rmsnorm.h"
#include "backend/ops/swiglu.h"
#include "ops_attention.h"
#include "ops_copies.h"
#include "ops_experts.h"
#include "ops_fp8.h"
#include "ops_lora.h"
#include "ops_peak.h"
#include "ops_scan.h"
#include "ops_timing.h"

struct gemm_row {
    const char *name;
    int64_t m, n, k;
    tt_dtype a, b, c;
    bool trans_a, trans_b;
    float beta;
};

static const struct gemm_row gemm_rows[] = {
    {"gemm f32 2048x1024x1024", 2048, 1024, 1024, TT_F32, TT_F32, TT_F32, false, false, 0},
    {"gemm f32 forward x W^T 2048x1024x1024", 2048, 1024, 1024, TT_F32, TT_F32, TT_F32, false, true, 0},
    {"gemm bf16 forward x W^T 2048x1024x1024", 2048, 1024, 1024, TT_BF16, TT_BF16, TT_BF16, false, true, 0},
    {"gemm bf16 forward x W^T 2048x4096x4096", 2048, 4096, 4096, TT_BF16, TT_BF16, TT_BF16, false, true, 0},
    {"gemm bf16 backward dy W 2048x4096x4096", 2048, 4096, 4096, TT_BF16, TT_BF16, TT_BF16, false, false, 0},
    {"gemm bf16 dW dy^T x 1024x1024x2048", 1024, 1024, 2048, TT_BF16, TT_BF16, TT_F32, true, false, 1},
    {"gemm f32 tiny model 512x256x64", 512, 256, 64, TT_F32, TT_F32, TT_F32, false, true, 0},
    {"gemm f32 64x64x64", 64, 64, 64, TT_F32, TT_F32, TT_F32, false, true, 0},
    {"gemm lora A f32 x A^T 2048x16x4096", 2048, 16, 4096, TT_F32, TT_F32, TT_F32, false, true, 0},
    {"gemm lora A bf16 x A^T 2048x16x4096", 2048, 16, 4096, TT_BF16, TT_BF16, TT_BF16, false, true, 0},
    {"gemm lora A bf16 x A^T 2048x8x4096", 2048, 8, 4096, TT_BF16, TT_BF16, TT_BF16, false, true, 0},
    {"gemm lora A bf16 x A^T 2048x32x4096", 2048, 32, 4096, TT_BF16, TT_BF16, TT_BF16, false, true, 0},
    {"gemm lora A bf16 x A^T 2048x64x4096", 2048, 64, 4096, TT_BF16, TT_BF16, TT_BF16, false, true, 0},
    {"gemm lora B bf16 h B^T 2048x4096x16", 2048, 4096, 16, TT_BF16, TT_BF16, TT_BF16, false, true, 1},
    {"gemm lora B f32 h B^T 2048x4096x16", 2048, 4096, 16, TT_F32, TT_F32, TT_F32, false, true, 1},
    {"gemm lora B bf16 h B^T 2048x4096x64", 2048, 4096, 64, TT_BF16, TT_BF16, TT_BF16, false, true, 1},
    {"gemm lora dh bf16 dy B 2048x16x4096", 2048, 16, 4096, TT_BF16, TT_BF16, TT_BF16, false, false, 0},
    {"gemm lora dA bf16 dh^T x 16x4096x2048", 16, 4096, 2048, TT_BF16, TT_BF16, TT_F32, true, false, 1},
    {"gemm lora dA f32 dh^T x 16x4096x2048", 16, 4096, 2048, TT_F32, TT_F32, TT_F32, true, false, 1},
    {"gemm lora dB bf16 dy^T h 4096x16x2048", 4096, 16, 2048, TT_BF16, TT_BF16, TT_F32, true, false, 1},
    {"gemm lora dx bf16 dh A 2048x4096x16", 2048, 4096, 16, TT_BF16, TT_BF16, TT_BF16, false, false, 1},
    {"gemm decode bf16 1x4096x4096", 1, 4096, 4096, TT_BF16, TT_BF16, TT_BF16, false, true, 0},
    {"gemm decode bf16 2x4096x4096", 2, 4096, 4096, TT_BF16, TT_BF16, TT_BF16, false, true, 0},
    {"gemm decode bf16 4x4096x4096", 4, 4096, 4096, TT_BF16, TT_BF16, TT_BF16, false, true, 0},
    {"gemm decode bf16 8x4096x4096", 8, 4096, 4096, TT_BF16, TT_BF16, TT_BF16, false, true, 0},
    {"gemm decode bf16 16x4096x4096", 16, 4096, 4096, TT_BF16, TT_BF16, TT_BF16, false, true, 0},
    {"gemm decode f32 1x4096x4096", 1, 4096, 4096, TT_F32, TT_F32, TT_F32, false, true, 0},
};

/* 16384 tokens of the 11 and 8 billion shapes. */
static const struct gemm_row gpu_gemm_rows[] = {
    {"gemm qkv 16384x6144x4096", 16384, 6144, 4096, TT_BF16, TT_BF16, TT_BF16, false, true, 0},
    {"gemm o 16384x4096x4096", 16384, 4096, 4096, TT_BF16, TT_BF16, TT_BF16, false, true, 0},
    {"gemm gate_up 16384x28672x4096", 16384, 28672, 4096, TT_BF16, TT_BF16, TT_BF16, false, true, 0},
    {"gemm down 16384x4096x14336", 16384, 4096, 14336, TT_BF16, TT_BF16, TT_BF16, false, true, 0},
    {"gemm down padded 16384x4096x14400", 16384, 4096, 14400, TT_BF16, TT_BF16, TT_BF16, false, true, 0},
    {"gemm qkv padded 16384x6144x4160", 16384, 6144, 4160, TT_BF16, TT_BF16, TT_BF16, false, true, 0},
    {"gemm dx of qkv 16384x4096x6144", 16384, 4096, 6144, TT_BF16, TT_BF16, TT_BF16, false, false, 0},
    {"gemm dx of gate_up 16384x4096x28672", 16384, 4096, 28672, TT_BF16, TT_BF16, TT_BF16, false, false, 0},
    {"gemm dx of down 16384x14336x4096", 16384, 14336, 4096, TT_BF16, TT_BF16, TT_BF16, false, false, 0},
    {"gemm head 2048x128256x4096", 2048, 128256, 4096, TT_BF16, TT_BF16, TT_BF16, false, true, 0},
    {"gemm lora A 16384x16x4096", 16384, 16, 4096, TT_BF16, TT_BF16, TT_BF16, false, true, 0},
    {"gemm lora A 16384x64x14336", 16384, 64, 14336, TT_BF16, TT_BF16, TT_BF16, false, true, 0},
    {"gemm lora B 16384x4096x16", 16384, 4096, 16, TT_BF16, TT_BF16, TT_BF16, false, true, 1},
    {"gemm lora dA 16x4096x16384", 16, 4096, 16384, TT_BF16, TT_BF16, TT_F32, true, false, 1},
    {"gemm lora dB 4096x16x16384", 4096, 16, 16384, TT_BF16, TT_BF16, TT_F32, true, false, 1},
    {"gemm lora A of qkv 8192x48x4096", 8192, 48, 4096, TT_BF16, TT_BF16, TT_BF16, false, true, 0},
    {"gemm lora A 8192x16x4096", 8192, 16, 4096, TT_BF16, TT_BF16, TT_BF16, false, true, 0},
    {"gemm lora dh 8192x16x4096", 8192, 16, 4096, TT_BF16, TT_BF16, TT_BF16, false, false, 0},
    {"gemm lora dh 8192x16x1024", 8192, 16, 1024, TT_BF16, TT_BF16, TT_BF16, false, false, 0},
    {"gemm lora dA of qkv 48x4096x8192", 48, 4096, 8192, TT_BF16, TT_BF16, TT_F32, true, false, 1},
    {"gemm lora dA 16x4096x8192", 16, 4096, 8192, TT_BF16, TT_BF16, TT_F32, true, false, 1},
    {"gemm lora dB 4096x16x8192", 4096, 16, 8192, TT_BF16, TT_BF16, TT_F32, true, false, 1},
    {"gemm lora dB 1024x16x8192", 1024, 16, 8192, TT_BF16, TT_BF16, TT_F32, true, false, 1},
    {"gemm f32 2048x4096x4096", 2048, 4096, 4096, TT_F32, TT_F32, TT_F32, false, true, 0},
    {"gemm decode gate_up 1x28672x4096", 1, 28672, 4096, TT_BF16, TT_BF16, TT_BF16, false, true, 0},
    {"gemm decode down 1x4096x14336", 1, 4096, 14336, TT_BF16, TT_BF16, TT_BF16, false, true, 0},
    {"gemm decode gate_up 4x28672x4096", 4, 28672, 4096, TT_BF16, TT_BF16, TT_BF16, false, true, 0},
    {"gemm decode down 4x4096x14336", 4, 4096, 14336, TT_BF16, TT_BF16, TT_BF16, false, true, 0},
    {"gemm decode gate_up 8x28672x4096", 8, 28672, 4096, TT_BF16, TT_BF16, TT_BF16, false, true, 0},
    {"gemm decode down 8x4096x14336", 8, 4096, 14336, TT_BF16, TT_BF16, TT_BF16, false, true, 0},
    {"gemm decode gate_up 16x28672x4096", 16, 28672, 4096, TT_BF16, TT_BF16, TT_BF16, false, true, 0},
    {"gemm decode down 16x4096x14336", 16, 4096, 14336, TT_BF16, TT_BF16, TT_BF16, false, true, 0},
    {"gemm decode gate_up 32x28672x4096", 32, 28672, 4096, TT_BF16, TT_BF16, TT_BF16, false, true, 0},
    {"gemm decode down 32x4096x14336", 32, 4096, 14336, TT_BF16, TT_BF16, TT_BF16, false, true, 0},
    {"gemm decode gate_up 64x28672x4096", 64, 28672, 4096, TT_BF16, TT_BF16, TT_BF16, false, true, 0},
    {"gemm decode down 64x4096x14336", 64, 4096, 14336, TT_BF16, TT_BF16, TT_BF16, false, true, 0},
    {"gemm decode gate_up 128x28672x4096", 128, 28672, 4096, TT_BF16, TT_BF16, TT_BF16, false, true, 0},
    {"gemm decode down 128x4096x14336", 128, 4096, 14336, TT_BF16, TT_BF16, TT_BF16, false, true, 0},
    {"gemm decode gate_up 256x28672x4096", 256, 28672, 4096, TT_BF16, TT_BF16, TT_BF16, false, true, 0},
    {"gemm decode down 256x4096x14336", 256, 4096, 14336, TT_BF16, TT_BF16, TT_BF16, false, true, 0},
};

static tt_status run_gemm(struct tt_stream *stream, const void *args)
{
    return tt_gemm(stream, args);
}

static void bench_gemm(struct bench *bench, const struct gemm_row *row)
{
    bench->peak_flops =
        row->a == TT_BF16 && row->b == TT_BF16 ? bench->units.bf16_flops : bench->units.f32_flops;
    struct tt_gemm_args args = {.a = row->trans_a ? bench_random_tensor(bench, row->a, row->k, row->m)
                                                  : bench_random_tensor(bench, row->a, row->m, row->k),
                                .b = row->trans_b ? bench_random_tensor(bench, row->b, row->n, row->k)
                                                  : bench_random_tensor(bench, row->b, row->k, row->n),
                                .c = bench_random_tensor(bench, row->c, row->m, row->n),
                                .trans_a = row->trans_a,
                                .trans_b = row->trans_b,
                                .alpha = row->beta != 0 ? 1e-3f : 1.0f, /* what is added up stays finite */
                                .beta = row->beta};
    double bytes = (double)tt_tensor_bytes(args.a) + (double)tt_tensor_bytes(args.b) +
                   (double)tt_tensor_bytes(args.c) * (row->beta != 0 ? 2 : 1);
    bench_measure(bench, row->name, run_gemm, &args, 2.0 * (double)row->m * (double)row->n * (double)row->k,
                  bytes);
    bench->peak_flops = 0;
    bench_release(bench);
}

static tt_status run_rmsnorm_forward(struct tt_stream *stream, const void *args)
{
    return tt_rmsnorm_forward(stream, args);
}

static tt_status run_rmsnorm_backward(struct tt_stream *stream, const void *args)
{
    return tt_rmsnorm_backward(stream, args);
}

static tt_status run_swiglu_forward(struct tt_stream *stream, const void *args)
{
    return tt_swiglu_forward(stream, args);
}

static tt_status run_swiglu_backward(struct tt_stream *stream, const void *args)
{
    return tt_swiglu_backward(stream, args);
}

static tt_status run_cross_entropy(struct tt_stream *stream, const void *args)
{
    return tt_cross_entropy(stream, args);
}

static tt_status run_adamw(struct tt_stream *stream, const void *args)
{
    return tt_adamw(stream, args);
}

static tt_status run_sum_squares(struct tt_stream *stream, const void *args)
{
    return tt_sum_squares(stream, args);
}

static void bench_rows(struct bench *bench, tt_dtype dtype, int64_t rows, int64_t width)
{
    char name[96];
    const char *type = tt_dtype_name(dtype);
    double pass = (double)rows * (double)width * (double)tt_dtype_bytes(dtype);
    tt_tensor x = bench_random_tensor(bench, dtype, rows, width),
              y = bench_random_tensor(bench, dtype, rows, width);
    tt_tensor dy = bench_random_tensor(bench, dtype, rows, width),
              dx = bench_random_tensor(bench, dtype, rows, width);
    tt_tensor weight = tt_tensor_1d(bench_random_tensor(bench, dtype, 1, width).data, dtype, width);
    tt_tensor rstd = tt_tensor_1d(bench_random_tensor(bench, TT_F32, 1, rows).data, TT_F32, rows);
    struct tt_rmsnorm_forward_args norm = {
        .x_ND = x, .weight_D = weight, .eps = 1e-5, .y_ND = y, .rstd_N = rstd};
    struct tt_rmsnorm_backward_args dnorm = {
        .dy_ND = dy, .x_ND = x, .weight_D = weight, .rstd_N = rstd, .dx_ND = dx};
    struct tt_swiglu_forward_args swiglu = {.gate_TF = x, .up_TF = y, .h_TF = dx};
    snprintf(name, sizeof name, "rmsnorm forward %s %lldx%lld", type, (long long)rows, (long long)width);
    bench_measure(bench, name, run_rmsnorm_forward, &norm, 0, 2 * pass);
    snprintf(name, sizeof name, "rmsnorm backward %s %lldx%lld", type, (long long)rows, (long long)width);
    bench_measure(bench, name, run_rmsnorm_backward, &dnorm, 0, 3 * pass);
    snprintf(name, sizeof name, "swiglu forward %s %lldx%lld", type, (long long)rows, (long long)width);
    bench_measure(bench, name, run_swiglu_forward, &swiglu, 0, 3 * pass);
    struct tt_swiglu_backward_args dswiglu = {.dh_TF = dy, .gate_TF = x, .up_TF = y, .dgate_TF = dx};
    dswiglu.dup_TF = bench_random_tensor(bench, dtype, rows, width);
    snprintf(name, sizeof name, "swiglu backward %s %lldx%lld", type, (long long)rows, (long long)width);
    bench_measure(bench, name, run_swiglu_backward, &dswiglu, 0, 5 * pass);
    dswiglu.activation = TT_ACTIVATION_GELU;
    snprintf(name, sizeof name, "geglu backward %s %lldx%lld", type, (long long)rows, (long long)width);
    bench_measure(bench, name, run_swiglu_backward, &dswiglu, 0, 5 * pass);
    bench_release(bench);
}

static tt_status run_dropout(struct tt_stream *stream, const void *args)
{
    return tt_dropout(stream, args);
}

static tt_status run_rope(struct tt_stream *stream, const void *args)
{
    return tt_rope(stream, args);
}

static tt_status run_add(struct tt_stream *stream, const void *args)
{
    return tt_add(stream, args);
}

static tt_status run_cast(struct tt_stream *stream, const void *args)
{
    return tt_cast(stream, args);
}

static tt_status run_embedding_forward(struct tt_stream *stream, const void *args)
{
    return tt_embedding_forward(stream, args);
}

static tt_status run_embedding_backward(struct tt_stream *stream, const void *args)
{
    return tt_embedding_backward(stream, args);
}

/* Ops over tokens whose other operands are small: dropout, rope, sums, casts, embedding. */
static void bench_tokens(struct bench *bench, tt_dtype dtype, int64_t tokens, int64_t heads, int64_t head_dim)
{
    char name[96];
    const char *type = tt_dtype_name(dtype);
    int64_t width = heads * head_dim, words = 32000;
    double pass = (double)tokens * (double)width * (double)tt_dtype_bytes(dtype);
    tt_tensor x = bench_random_tensor(bench, dtype, tokens, width),
              y = bench_random_tensor(bench, dtype, tokens, width);
    tt_tensor wide = bench_random_tensor(bench, TT_F32, tokens, width);
    tt_tensor keys = bench_index_tensor(bench, TT_I64, tokens, 1, tokens);
    tt_tensor ids = bench_index_tensor(bench, TT_I32, tokens, 7919, words);
    struct tt_dropout_args dropout = {
        .x_TD = x, .row_keys_T = keys, .rng = tt_rng_make(1), .p = 0.05, .y_TD = y};
    snprintf(name, sizeof name, "dropout %s %lldx%lld", type, (long long)tokens, (long long)width);
    bench_measure(bench, name, run_dropout, &dropout, 0, 2 * pass);
    struct tt_rope_args rope = {.x_THE = tt_tensor_heads(y, heads),
                                .positions_T = ids,
                                .cos_PE = bench_random_tensor(bench, TT_F32, words, head_dim / 2),
                                .sin_PE = bench_random_tensor(bench, TT_F32, words, head_dim / 2)};
    snprintf(name, sizeof name, "rope %s %lldx%lldx%lld", type, (long long)tokens, (long long)heads,
             (long long)head_dim);
    bench_measure(bench, name, run_rope, &rope, 0, 2 * pass);
    struct tt_add_args add = {.a = x, .b = x, .y = y};
    snprintf(name, sizeof name, "add %s %lldx%lld", type, (long long)tokens, (long long)width);
    bench_measure(bench, name, run_add, &add, 0, 3 * pass);
    struct tt_cast_args cast = {.x = wide, .y = y};
    snprintf(name, sizeof name, "cast F32 to %s %lldx%lld", type, (long long)tokens, (long long)width);
    bench_measure(bench, name, run_cast, &cast, 0, pass + (double)tt_tensor_bytes(wide));
    struct tt_embedding_forward_args embedding = {
        .table_VD = bench_random_tensor(bench, dtype, words, width), .ids_T = ids, .y_TD = y};
    snprintf(name, sizeof name, "embedding forward %s %lldx%lld", type, (long long)tokens, (long long)width);
    bench_measure(bench, name, run_embedding_forward, &embedding, 0, 2 * pass);
    struct tt_embedding_backward_args scatter = {
        .dy_TD = x, .ids_T = ids, .dtable_VD = bench_random_tensor(bench, TT_F32, words, width)};
    snprintf(name, sizeof name, "embedding backward %s %lldx%lld", type, (long long)tokens, (long long)width);
    bench_measure(bench, name, run_embedding_backward, &scatter, 0, pass + 2 * (double)tt_tensor_bytes(wide));
    bench_release(bench);
}

static tt_status run_dequantize(struct tt_stream *stream, const void *args)
{
    return tt_dequantize(stream, args);
}

struct copy_args {
    void *to;
    const void *from;
    size_t bytes;
};

static tt_status run_copy(struct tt_stream *stream, const void *args)
{
    const struct copy_args *copy = args;
    return tt_copy_on_device(stream, copy->to, copy->from, copy->bytes);
}

/* A copy of fewer bytes is further from the speed of a large one, because its start and end count more. */
static void bench_copy_of(struct bench *bench, double bytes)
{
    size_t half = (size_t)(bytes / 2) & ~(size_t)255;
    struct copy_args copy = {.to = bench_memory(bench, half),
                             .from = bench_random_tensor(bench, TT_F32, 1, (int64_t)half / 4).data,
                             .bytes = half};
    bench_measure(bench, "copy of as many bytes", run_copy, &copy, 0, 2.0 * (double)half);
}

/* Codes, scales and tables may be any numbers. `gap`: columns of an adapter beside the matrix. */
static void bench_dequantize(struct bench *bench, enum tt_quant_type type, tt_dtype dtype, int64_t rows,
                             int64_t cols, int64_t gap)
{
    char name[96];
    struct tt_dequantize_args args = {.y_NK = bench_random_tensor(bench, dtype, rows, cols + gap)};
    args.y_NK = tt_tensor_cols(args.y_NK, 0, cols);
    bench_must(
        tt_quant_layout_make(tt_quant_format_make(type, type != TT_QUANT_INT8), rows, cols, &args.layout));
    int64_t bytes = (int64_t)args.layout.bytes;
    args.packed = tt_tensor_1d(bench_random_tensor(bench, TT_F32, 1, bytes / 4).data, TT_U8, bytes);
    snprintf(name, sizeof name, "dequantize %s to %s %lldx%lld ld %lld", tt_quant_type_name(type),
             tt_dtype_name(dtype), (long long)rows, (long long)cols, (long long)(cols + gap));
    double moved = (double)bytes + (double)tt_tensor_bytes(args.y_NK);
    bench_measure(bench, name, run_dequantize, &args, 0, moved);
    if (bench->gpu) bench_copy_of(bench, moved);
    bench_release(bench);
}

static void bench_quant(struct bench *bench)
{
    int64_t scale = bench->gpu ? 4 : 1;
    bench_dequantize(bench, TT_QUANT_NF4, TT_BF16, 3584 * scale, 1024 * scale, 0);
    bench_dequantize(bench, TT_QUANT_NF4, TT_BF16, 3584 * scale, 1024 * scale, 64);
    bench_dequantize(bench, TT_QUANT_NF4, TT_BF16, 1024 * scale, 1024 * scale, 0);
    bench_dequantize(bench, TT_QUANT_NF4, TT_BF16, 256 * scale, 1024 * scale, 0);
    bench_dequantize(bench, TT_QUANT_NF4, TT_F32, 3584 * scale, 1024 * scale, 0);
    bench_dequantize(bench, TT_QUANT_INT8, TT_BF16, 3584 * scale, 1024 * scale, 0);
    if (bench->gpu) bench_dequantize(bench, TT_QUANT_NF4, TT_BF16, 28672, 8192, 0);
}

static void bench_loss_and_optimizer(struct bench *bench)
{
    int64_t rows = bench->gpu ? 2048 : 256, vocabulary = bench->gpu ? 128256 : 32000, count = 8 << 20;
    char name[96];
    snprintf(name, sizeof name, "cross_entropy with gradient BF16 %lldx%lld", (long long)rows,
             (long long)vocabulary);
    struct tt_cross_entropy_args loss = {
        .logits_NV = bench_random_tensor(bench, TT_BF16, rows, vocabulary),
        .labels_N = bench_index_tensor(bench, TT_I32, rows, 7919, vocabulary),
        .loss_N = tt_tensor_1d(bench_memory(bench, 4 * (size_t)rows), TT_F32, rows),
        .correct_N = tt_tensor_1d(bench_memory(bench, 4 * (size_t)rows), TT_I32, rows),
        .entropy_N = tt_tensor_1d(bench_memory(bench, 4 * (size_t)rows), TT_F32, rows),
        .grad_scale = 1,
        .gradient = true};
    bench_measure(bench, name, run_cross_entropy, &loss, 0, 2.0 * (double)tt_tensor_bytes(loss.logits_NV));
    tt_tensor flat[4];
    for (int i = 0; i < 4; i++)
        flat[i] = tt_tensor_1d(bench_random_tensor(bench, TT_F32, 1, count).data, TT_F32, count);
    bench_must(tt_fill_zero(bench->stream, flat[3].data, tt_tensor_bytes(flat[3]))); /* v is not negative */
    struct tt_adamw_args adamw = {.param = flat[0],
                                  .grad = flat[1],
                                  .m = flat[2],
                                  .v = flat[3],
                                  .lr = 1e-4,
                                  .beta1 = 0.9,
                                  .beta2 = 0.999,
                                  .eps = 1e-8,
                                  .weight_decay = 0.01,
                                  .grad_scale = 1,
                                  .step = 10};
    bench_measure(bench, "adamw F32 8388608", run_adamw, &adamw, 0, 7.0 * (double)tt_tensor_bytes(flat[0]));
    struct tt_sum_squares_args squares = {.x = flat[1],
                                          .out = tt_tensor_1d(bench_memory(bench, 8), TT_F64, 1)};
    bench_measure(bench, "sum_squares F32 8388608", run_sum_squares, &squares, 0,
                  (double)tt_tensor_bytes(flat[1]));
    bench_release(bench);
}

static bool is_wanted(const char *name, int count, char **parts)
{
    for (int i = 0; i < count; i++) {
        if (strstr(name, parts[i]) != NULL) return true;
    }
    return count == 0;
}

/* Measures the peak of the machine on random numbers; zeros would need less power. */
static void measure_ceilings(struct bench *bench)
{
    const int64_t side = 8192;
    struct tt_gemm_args gemm = {.a = bench_random_tensor(bench, TT_BF16, side, side),
                                .b = bench_random_tensor(bench, TT_BF16, side, side),
                                .c = bench_random_tensor(bench, TT_BF16, side, side),
                                .trans_b = true,
                                .alpha = 1};
    double flops = 2.0 * (double)side * (double)side * (double)side;
    bench->gemm_flops = flops / bench_measure(bench, "gemm bf16 8192x8192x8192", run_gemm, &gemm, flops, 0);
    bench_release(bench);
    tt_tensor from = bench_random_tensor(bench, TT_F32, 16384, 16384),
              to = bench_random_tensor(bench, TT_F32, 16384, 16384);
    struct copy_args copy = {.to = to.data, .from = from.data, .bytes = tt_tensor_bytes(from)};
    double bytes = 2.0 * (double)copy.bytes;
    bench->copy_bytes = bytes / bench_measure(bench, "copy 1 GiB", run_copy, &copy, 0, bytes);
    bench_release(bench);
}

/* Compute capability 9.0. */
static void bench_fp8_products(struct bench *bench)
{
    static const struct bench_fp8_case cases[] = {
        {"gate_up", 8192, true, 4096, {14336, 14336}, 0, 0},
        {"down", 8192, true, 14336, {4096}, 0, 0},
        {"o", 8192, true, 4096, {4096}, 16, 0},
        {"qkv", 8192, true, 4096, {4096, 1024, 1024}, 16, 5120},
        {"dx of qkv", 8192, false, 4096, {4096, 1024, 1024}, 48, 0},
        {"dx of gate_up", 8192, false, 4096, {14336, 14336}, 0, 0},
        {"plain", 16384, true, 4096, {28672}, 0, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) bench_fp8(bench, &cases[i]);
}

static void bench_gpu(struct bench *bench, int count, char **parts)
{
    measure_ceilings(bench);
    if (is_wanted("host_copies", count, parts)) bench_host_copies(bench);
    if (is_wanted("fp8", count, parts) && tt_device_multiplies_fp8(bench->device)) bench_fp8_products(bench);
    for (size_t i = 0; i < sizeof gpu_gemm_rows / sizeof gpu_gemm_rows[0]; i++)
        if (is_wanted(gpu_gemm_rows[i].name, count, parts)) bench_gemm(bench, &gpu_gemm_rows[i]);
    if (is_wanted("fused", count, parts)) {
        bench_lora(bench, "qkv", 16384, 6144, 4096, 16, true);
        bench_lora(bench, "dx of qkv", 16384, 4096, 6144, 48, false);
        bench_lora(bench, "o", 8192, 4096, 4096, 16, true);
        bench_swiglu_products(bench, 16384, 4096, 14336);
        bench_swiglu_products(bench, 8192, 4096, 14336);
    }
    if (is_wanted("experts", count, parts)) bench_experts(bench);
    if (is_wanted("lora_dropout", count, parts)) {
        bench_lora_dropout(bench, 16384, 4096, 3, 8);
        bench_lora_dropout(bench, 16384, 4096, 3, 16);
        bench_lora_dropout(bench, 16384, 4096, 1, 16);
        bench_lora_dropout(bench, 16384, 4096, 1, 64);
        bench_lora_dropout(bench, 8192, 14336, 2, 16);
    }
    if (is_wanted("lora_gradients", count, parts)) bench_lora_gradients(bench);
    if (is_wanted("attention", count, parts)) bench_attention_of_models(bench);
    if (is_wanted("decode", count, parts)) bench_decode_of_models(bench);
    if (is_wanted("scan", count, parts)) bench_scan_of_models(bench);
    if (is_wanted("rows", count, parts)) {
        bench_rows(bench, TT_BF16, 16384, 4096);
        bench_rows(bench, TT_BF16, 16384, 14336);
        bench_rows(bench, TT_BF16, 2048, 8192);
    }
    if (is_wanted("tokens", count, parts)) bench_tokens(bench, TT_BF16, 16384, 32, 128);
    if (is_wanted("quant", count, parts)) bench_quant(bench);
    if (is_wanted("flat", count, parts)) bench_loss_and_optimizer(bench);
}

/* Measures and prints the peak of the units at the open device's level. */
static void measure_units(struct bench *bench)
{
    const char *name = tt_device_name(bench->device), *level = strrchr(name, ' ');
    bench->units = bench_peak_of(level != NULL ? level + 1 : name, tt_device_threads(bench->device));
    printf(
        "{\"peak\": \"%s\", \"gflops\": %.1f, \"peak_bf16\": \"%s\", \"gflops_bf16\": %.1f, \"threads\": %d, "
        "\"device\": \"%s\"}\n",
        bench->units.f32_unit, bench->units.f32_flops * 1e-9, bench->units.bf16_unit,
        bench->units.bf16_flops * 1e-9, tt_device_threads(bench->device), name);
}

/* Linears of small models, on every level that the processor has. */
static void bench_levels(struct bench *bench, const struct tt_device_config *config)
{
    static const char *const levels[] = {"portable", "avx2", "avx512", "avx512_bf16", "amx"};
    static const struct gemm_row rows[] = {
        {"level bf16 x W^T 2048x1536x576", 2048, 1536, 576, TT_BF16, TT_BF16, TT_BF16, false, true, 0},
        {"level bf16 dy W 2048x576x1536", 2048, 576, 1536, TT_BF16, TT_BF16, TT_BF16, false, false, 0},
        {"level bf16 x W^T 2048x4864x896", 2048, 4864, 896, TT_BF16, TT_BF16, TT_BF16, false, true, 0},
        {"level bf16 x W^T 2048x896x4864", 2048, 896, 4864, TT_BF16, TT_BF16, TT_BF16, false, true, 0},
        {"level f32 x W^T 2048x1536x576", 2048, 1536, 576, TT_F32, TT_F32, TT_F32, false, true, 0},
    };
    struct bench own = *bench;
    for (size_t i = 0; i < sizeof levels / sizeof levels[0]; i++) {
        struct tt_device_config level = *config;
        level.tuning.cpu_isa = TT_TUNING_ISA_FIRST + (int)i;
        tt_status status = tt_device_open(&level, &own.device);
        if (status == TT_ERR_UNSUPPORTED) continue;
        bench_must(status);
        bench_must(tt_stream_create(own.device, &own.stream));
        measure_units(&own);
        for (size_t j = 0; j < sizeof rows / sizeof rows[0]; j++) bench_gemm(&own, &rows[j]);
        tt_stream_destroy(own.stream);
        tt_device_close(own.device);
    }
}

int main(int argc, char **argv)
{
    struct bench bench = {.seconds = 0.5};
    struct tt_device_config config = {.kind = "cpu"};
    int at = 1;
    for (; at + 1 < argc && strncmp(argv[at], "--", 2) == 0; at += 2) {
        if (strcmp(argv[at], "--device") == 0) config.kind = argv[at + 1];
        if (strcmp(argv[at], "--threads") == 0) config.threads = atoi(argv[at + 1]);
        if (strcmp(argv[at], "--seconds") == 0) bench.seconds = atof(argv[at + 1]);
    }
    bench_must(tt_device_tuning_read(&config.tuning));
    bench_must(tt_device_open(&config, &bench.device));
    bench_must(tt_stream_create(bench.device, &bench.stream));
    bench.gpu = !tt_device_is_host(bench.device);
    if (bench.gpu) {
        bench_gpu(&bench, argc - at, argv + at);
        tt_stream_destroy(bench.stream);
        tt_device_close(bench.device);
        return 0;
    }
    if (argc - at == 1 && strcmp(argv[at], "levels") == 0) {
        bench_levels(&bench, &config);
        tt_stream_destroy(bench.stream);
        tt_device_close(bench.device);
        return 0;
    }
    measure_units(&bench);
    for (size_t i = 0; i < sizeof gemm_rows / sizeof gemm_rows[0]; i++) {
        if (is_wanted(gemm_rows[i].name, argc - at, argv + at)) bench_gemm(&bench, &gemm_rows[i]);
    }
    if (is_wanted("fused", argc - at, argv + at)) {
        bench_lora(&bench, "qkv", 512, 1152, 896, 16, true);
        bench_swiglu_products(&bench, 512, 896, 4864);
    }
    if (is_wanted("fp8", argc - at, argv + at))
        bench_fp8(&bench, &(struct bench_fp8_case){"qkv", 512, true, 896, {896, 128, 128}, 16, 1024});
    if (is_wanted("attention", argc - at, argv + at)) bench_attention_of_small_models(&bench);
    if (is_wanted("decode", argc - at, argv + at)) bench_decode_of_small_models(&bench);
    if (is_wanted("scan", argc - at, argv + at)) bench_scan(&bench);
    if (is_wanted("experts", argc - at, argv + at)) bench_experts(&bench);
    if (is_wanted("rows", argc - at, argv + at)) {
        bench_rows(&bench, TT_BF16, 2048, 4096);
        bench_rows(&bench, TT_F32, 2048, 4096);
    }
    if (is_wanted("tokens", argc - at, argv + at)) {
        bench_tokens(&bench, TT_BF16, 2048, 14, 64);
        bench_tokens(&bench, TT_F32, 2048, 14, 64);
    }
    if (is_wanted("quant", argc - at, argv + at)) bench_quant(&bench);
    if (is_wanted("flat", argc - at, argv + at)) bench_loss_and_optimizer(&bench);
    tt_stream_destroy(bench.stream);
    tt_device_close(bench.device);
    return 0;
}
