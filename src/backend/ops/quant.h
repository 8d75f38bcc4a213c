/* Decoding of quantized matrices: y = rows first_row .. first_row + N - 1 of the matrix with the segment `packed`
 * (layout and formulas: tensor/quant.h). Computed in fp32, rounded once to y's type; the same bits on every device.
 * nf4, fp4 (nested or not, any block size), int8 by rows, fp8 by rows or squares.
 *
 * A product with a quantized matrix is dequantize into scratch [N, ld], then gemm: on a GPU 1.5 % of a forward product
 * of 16384 tokens (H200). Rows of y may be strided, so that a matrix can be placed beside the columns of an adapter
 * (ld = K + 64). Rows at multiples of 16 bytes and a number of columns divisible by 32 are fastest. */
#ifndef TT_BACKEND_OPS_QUANT_H
#define TT_BACKEND_OPS_QUANT_H

#include "backend/device.h"
#include "tensor/quant.h"
#include "tensor/tensor.h"

struct tt_dequantize_args {
    struct tt_quant_layout layout;
    tt_tensor packed;  /* u8, rank 1, layout.bytes elements, at a multiple of 16 bytes */
    int64_t first_row; /* 0 unless only some rows are decoded */
    tt_tensor y_NK;    /* f32 | bf16, [N, layout.cols], first_row + N <= layout.rows */
};
TT_MUST_USE tt_status tt_dequantize(struct tt_stream *stream, const struct tt_dequantize_args *args);

/* The whole matrix in FP8 with a scale a row: the bits of tt_dequantize into the scratch and tt_quantize_rows of it
 * (ops/gemm_scaled.h). cuda keeps rows of 4 bits in registers and leaves the scratch alone, in bf16 with a multiple
 * of 8 columns, 32768 at most. */
struct tt_recode_rows_args {
    struct tt_quant_layout layout;
    tt_tensor packed;     /* as for tt_dequantize */
    tt_tensor scratch_NK; /* f32 | bf16, to which numbers are rounded first; [layout.rows, layout.cols] */
    tt_tensor codes_NK;   /* F8_E4M3, contiguous */
    tt_tensor scale_N;    /* f32 */
};
TT_MUST_USE tt_status tt_recode_rows(struct tt_stream *stream, const struct tt_recode_rows_args *args);

#endif
