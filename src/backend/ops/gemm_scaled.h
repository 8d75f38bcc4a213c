/* Products of matrices in FP8: E4M3 codes with one fp32 scale a row (tensor/e4m3.h).
 *
 * A frozen linear layer in FP8 is quantize_rows of its input, then gemm_scaled with the codes of its weight;
 * ops/matrix.h makes both of one tt_gemm_lora. For the gradient of the input, dx = dy W sums over the rows of W, so
 * the second operand is a copy of W that was transposed first and coded by its own rows. */
#ifndef TT_BACKEND_OPS_GEMM_SCALED_H
#define TT_BACKEND_OPS_GEMM_SCALED_H

#include "backend/device.h"
#include "tensor/tensor.h"

/* codes * scale = x, row by row; the same bits on every device. */
struct tt_quantize_rows_args {
    tt_tensor x_MK;     /* f32 | bf16, rows may be strided */
    tt_tensor codes_MK; /* F8_E4M3, contiguous */
    tt_tensor scale_M;  /* f32 */
};
TT_MUST_USE tt_status tt_quantize_rows(struct tt_stream *stream, const struct tt_quantize_rows_args *args);

/* The transposed matrix, quantized by its own rows: the bits of tt_quantize_rows of the transposed x. Rows and columns
 * are multiples of 16, as a product takes them. */
struct tt_quantize_columns_args {
    tt_tensor x_MK;     /* f32 | bf16, contiguous, at a multiple of 16 bytes */
    tt_tensor codes_KM; /* F8_E4M3, contiguous */
    tt_tensor scale_K;  /* f32 */
};
TT_MUST_USE tt_status tt_quantize_columns(struct tt_stream *stream,
                                          const struct tt_quantize_columns_args *args);

/* The transposed matrix, quantized by its own rows: those of code * scale in fp32, as by tt_quantize_rows; the same
 * bits on every device. A second rounding, unless the scales are all the same. Several matrices that stand one below
 * the other are transposed each by itself: [X N, K] becomes [X K, N]. */
struct tt_transpose_codes_args {
    tt_tensor codes_NK, scale_N; /* F8_E4M3, contiguous; f32 */
    tt_tensor transposed_KN, transposed_scale_K;
    int64_t matrices; /* X; 0: 1 */
};
TT_MUST_USE tt_status tt_transpose_codes(struct tt_stream *stream,
                                         const struct tt_transpose_codes_args *args);

/* y[m,n] = a_scale[m] * b_scale[n] * sum_k a[m,k] * b[n,k] (+ addend[m,n]), summed in fp32. The result is rounded to
 * y's type; a GPU may round the product before it adds. */
struct tt_gemm_scaled_args {
    tt_tensor a_MK, a_scale_M; /* F8_E4M3, rows may be strided; f32 */
    tt_tensor b_NK, b_scale_N; /* F8_E4M3, contiguous; f32 */
    tt_tensor addend_MN;       /* empty, y itself, or apart from it with y's type and row stride */
    tt_tensor y_MN;            /* f32 | bf16, rows may be strided */
    tt_tensor scratch;         /* u8 [tt_gemm_scaled_scratch], 64-byte aligned; empty when that is 0 */
};
TT_MUST_USE tt_status tt_gemm_scaled(struct tt_stream *stream, const struct tt_gemm_scaled_args *args);

/* Bytes of scratch for m x n x k and less; a host decodes the operands into it. */
size_t tt_gemm_scaled_scratch(const struct tt_device *device, int64_t m, int64_t n, int64_t k);
/* Whether any number of rows can be multiplied with this matrix: tensor cores take multiples of 16. */
static inline bool tt_gemm_scaled_takes(int64_t n, int64_t k)
{
    return n > 0 && k > 0 && n % 16 == 0 && k % 16 == 0;
}

#endif
