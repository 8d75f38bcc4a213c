/* Products of rows with the matrix of their expert. Letters: X experts, M rows in order of them
 * (backend/ops/expert_rows.h), R the rank of an adapter of each expert. For rows m of expert e:
 *
 *     y[m] = x[m] w[e]^T + h[m] b[e]^T + bias[e]       transposed: y[m] = x[m] w[e] + h[m] b[e]
 *
 * with w [X, N, K] (transposed: [X, K, N]) and b [X, N, R] (transposed: [X, R, N]). Sums are fp32 and rounded once, or
 * once for each of the two products; the results do not depend on the number of threads. `border` stays on the device:
 * no host reads it on a GPU.
 *
 * Coded matrices (tensor/quant.h) are decoded into scratch first, some experts at a time, and only those of experts
 * that have rows: the bits are those of a product with the decoded matrices, however many the scratch holds.
 *
 * Matrices in FP8 with a scale a row are multiplied as they are where x is given so too (ops/gemm_scaled.h); a device
 * that takes them is one of which tt_device_multiplies_fp8 is true, or a host. */
#ifndef TT_BACKEND_OPS_GROUPED_GEMM_H
#define TT_BACKEND_OPS_GROUPED_GEMM_H

#include "backend/ops/matrix.h"

/* Rows and matrices as F8_E4M3 with f32 scales, contiguous, K and N multiples of 16. Also with `transposed` w is [X, N,
 * K]: matrices that were transposed and then coded by their own rows. */
struct tt_grouped_codes {
    tt_tensor x_MK, x_scale_M, w_XNK, w_scale_XN;
};

struct tt_grouped_gemm_args {
    tt_tensor border_X1; /* i32 [X + 1] */
    /* f32 | bf16; rows may be strided, here and below. With `codes` a shape without memory. */
    tt_tensor x_MK;
    tt_tensor w_XNK; /* f32 | bf16, contiguous; empty: coded */
    /* Instead of x's numbers, of w and of alpha; x empty: none. The scratch is then u8 [tt_gemm_scaled_scratch]. */
    struct tt_grouped_codes codes;
    /* Instead of w: the rows of all its matrices one below the other, [X N, K]; and memory for the numbers of some of
     * them, from 1 to X: [some, N, K] in x's type, contiguous, arbitrary afterwards. */
    struct tt_coded coded;
    tt_tensor scratch;
    bool transposed;   /* w and b are [X, K, N] and [X, R, N] */
    tt_tensor h_MR;    /* x's type; empty: no adapter */
    tt_tensor b_XNR;   /* f32 | bf16, contiguous */
    tt_tensor bias_XN; /* f32 | bf16, contiguous; empty: none */
    float alpha;       /* of x w; 0: 1 */
    tt_tensor y_MN;    /* x's type, apart from the inputs */
    /* Plans take it that one of so many rows of x is of these experts; the others lie behind the
     * last border. 0: all are */
    int64_t share;
};
static inline bool tt_grouped_is_scaled(const struct tt_grouped_gemm_args *args)
{
    return !tt_tensor_is_empty(args->codes.x_MK);
}

TT_MUST_USE tt_status tt_grouped_gemm(struct tt_stream *stream, const struct tt_grouped_gemm_args *args);

/* dw[e] += sum over the rows m of expert e of dy[m]^T x[m]: of a weight (dy, x), of an adapter's A (dh, x) and B (dy,
 * h). Each element is one sum over its rows in an order that depends on their number alone. */
struct tt_grouped_gradients_args {
    tt_tensor border_X1;
    tt_tensor dy_MN, x_MK; /* f32 | bf16, of one type */
    tt_tensor dw_XNK;      /* f32, contiguous */
    int64_t share;         /* as above */
};
TT_MUST_USE tt_status tt_grouped_gradients(struct tt_stream *stream,
                                           const struct tt_grouped_gradients_args *args);

#endif
