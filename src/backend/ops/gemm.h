/* Matrix product with fp32 accumulation: c = alpha * op(a) * op(b) + beta * c. op(a) is [M, K], op(b) is [K, N], c is
 * [M, N]. With `trans_a` a is stored [K, M], with `trans_b` b is stored [N, K] (like linear weights). Rows may be
 * strided, columns are contiguous. a, b and c are f32 or bf16, independently; sums are fp32 and rounded once to c's
 * type. M, N or K of 0 is allowed (K = 0: c *= beta). c must not overlap a or b. beta = 0 never reads c. With `addend`
 * the sum is alpha * op(a) * op(b) + beta * addend and c is only written. Results do not depend on the number of
 * threads. */
#ifndef TT_BACKEND_OPS_GEMM_H
#define TT_BACKEND_OPS_GEMM_H

#include "backend/device.h"
#include "tensor/tensor.h"

struct tt_gemm_args {
    tt_tensor a;
    tt_tensor b;
    tt_tensor c;
    tt_tensor addend; /* empty: c itself; else c's type, shape and strides, and apart from c */
    bool trans_a;
    bool trans_b;
    float alpha;
    float beta;
};
TT_MUST_USE tt_status tt_gemm(struct tt_stream *stream, const struct tt_gemm_args *args);

/* y[t,n] += bias[n] */
struct tt_bias_forward_args {
    tt_tensor bias_N; /* f32 | bf16 */
    tt_tensor y_TN;   /* f32 | bf16, in place, rows may be strided */
};
TT_MUST_USE tt_status tt_bias_forward(struct tt_stream *stream, const struct tt_bias_forward_args *args);

/* dbias[n] += sum_t dy[t,n], rows in fixed groups */
struct tt_bias_backward_args {
    tt_tensor dy_TN;
    tt_tensor dbias_N; /* f32 */
};
TT_MUST_USE tt_status tt_bias_backward(struct tt_stream *stream, const struct tt_bias_backward_args *args);

#endif
