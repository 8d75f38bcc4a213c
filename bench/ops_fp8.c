#include "ops_fp8.h"

#include <stdio.h>

#include "backend/ops/gemm_fused.h"
#include "backend/ops/gemm_scaled.h"

static tt_status run_gemm_lora(struct tt_stream *stream, const void *args)
{
    return tt_gemm_lora(stream, args);
}

/* Codes and scales of normal numbers. */
static void make_rows(struct bench *bench, tt_tensor codes, tt_tensor scale)
{
    struct tt_quantize_rows_args rows = {
        .x_MK = bench_random_tensor(bench, TT_BF16, codes.dims[0], codes.dims[1]),
        .codes_MK = codes,
        .scale_M = scale};
    bench_must(tt_quantize_rows(bench->stream, &rows));
}

static tt_tensor matrix(struct bench *bench, tt_dtype dtype, int64_t d0, int64_t d1)
{
    tt_tensor made = tt_tensor_2d(NULL, dtype, d0, d1);
    made.data = bench_memory(bench, tt_tensor_bytes(made));
    return made;
}

static tt_tensor vector(struct bench *bench, tt_dtype dtype, int64_t count)
{
    return tt_tensor_1d(matrix(bench, dtype, 1, count).data, dtype, count);
}

static void set_positions(struct bench *bench, int64_t rows, int64_t columns, struct tt_rotation *rotation)
{
    const int64_t head_dim = 128, places = 4096;
    *rotation = (struct tt_rotation){.columns = columns,
                                     .head_dim = head_dim,
                                     .positions_T = bench_index_tensor(bench, TT_I32, rows, 1, places),
                                     .cos_PE = bench_random_tensor(bench, TT_F32, places, head_dim / 2),
                                     .sin_PE = bench_random_tensor(bench, TT_F32, places, head_dim / 2)};
}

void bench_fp8(struct bench *bench, const struct bench_fp8_case *is)
{
    struct tt_quant_layout layouts[TT_MATRIX_PARTS];
    struct tt_gemm_lora_args args = {.trans_w = is->trans};
    int64_t split = 0, n = is->side, k = is->side;
    char name[128];
    for (int i = 0; i < TT_MATRIX_PARTS && is->parts[i] > 0; i++) {
        int64_t rows = is->trans ? is->parts[i] : is->side, cols = is->trans ? is->side : is->parts[i];
        bench_must(tt_quant_layout_make(tt_quant_format_make(TT_QUANT_FP8, false), rows, cols, &layouts[i]));
        args.w.parts[i].layout = &layouts[i];
        args.w.parts[i].packed = vector(bench, TT_U8, (int64_t)layouts[i].bytes);
        make_rows(bench, tt_coded_codes(&args.w.parts[i]), tt_coded_scales(&args.w.parts[i]));
        args.w.count++;
        split += is->parts[i];
    }
    *(is->trans ? &n : &k) = split;
    args.x_MK = tt_tensor_2d(NULL, TT_BF16, is->rows, k);
    args.y_MN = matrix(bench, TT_BF16, is->rows, n);
    args.w.quantized = (struct tt_quantized_rows){.codes_MK = matrix(bench, TT_F8_E4M3, is->rows, k),
                                                  .scale_M = vector(bench, TT_F32, is->rows),
                                                  .made = true};
    size_t scratch = tt_gemm_scaled_scratch(bench->device, is->rows, n, k);
    if (scratch > 0) args.w.quantized.scratch = vector(bench, TT_U8, (int64_t)scratch);
    make_rows(bench, args.w.quantized.codes_MK, args.w.quantized.scale_M);
    if (is->r > 0) {
        args.low =
            (struct tt_low_rank){.h_MR = bench_random_tensor(bench, TT_BF16, is->rows, is->r), .count = 1};
        args.low.parts[0].b =
            bench_random_tensor(bench, TT_BF16, is->trans ? n : is->r, is->trans ? is->r : n);
    }
    if (is->rotated > 0) set_positions(bench, is->rows, is->rotated, &args.rotation);
    snprintf(name, sizeof name, "fp8 %s %lldx%lldx%lld r %lld", is->what, (long long)is->rows, (long long)n,
             (long long)k, (long long)is->r);
    bench_measure(bench, name, run_gemm_lora, &args, 2.0 * (double)is->rows * (double)n * (double)(k + is->r),
                  0);
    bench_release(bench);
}
