/* Root-mean-square norm (Zhang and Sennrich 2019, arXiv 1910.07467), in Llama's form:
 *     rstd[n] = 1 / sqrt(mean_d x[n,d]^2 + eps);   y[n,d] = (offset + weight[d]) * x[n,d] * rstd[n]
 * offset is 0, or 1 for weights that are stored as their distance from 1 (Gemma). An empty weight stands for zeros.
 * Arithmetic is fp32 for all types. Rows N may be tokens, or tokens x heads for the q/k norms: then the tensors have
 * rank 3 [T, H, E] and rstd [T*H] (contiguous).
 *
 * With `residual`: x := x + residual is computed first (rounded to x's type), stored in `sum` and normalised.
 *
 * Both directions can also make the rows of their result in FP8, as tt_quantize_rows (gemm_scaled.h) makes them: of the
 * result as it is rounded to its type, whether it is stored or not.
 *
 * Backward: dx[n,d] = rstd * (g - xhat * mean_d(g * xhat)) (+ dres[n,d] when given), g = dy * (offset + weight),
 * xhat = x * rstd; dweight[d] += sum_n dy * xhat (rows added in order of n, in fixed groups). */
#ifndef TT_BACKEND_OPS_RMSNORM_H
#define TT_BACKEND_OPS_RMSNORM_H

#include "backend/device.h"
#include "tensor/tensor.h"

struct tt_rmsnorm_forward_args {
    tt_tensor x_ND;        /* f32 | bf16, rank 2 or 3 with contiguous last dimension */
    tt_tensor residual_ND; /* empty, or x's type and shape */
    tt_tensor weight_D;    /* f32 | bf16; empty: zeros */
    float offset;
    double eps;
    tt_tensor sum_ND; /* with residual: x + residual; may alias x or residual */
    /* x's type; may alias x when there is no residual; with codes, empty where tt_rmsnorm_may_store_rows_alone */
    tt_tensor y_ND;
    tt_tensor rstd_N;            /* f32; empty when no backward follows */
    tt_tensor codes_ND, scale_N; /* empty, or x of rank 2: F8_E4M3 contiguous, f32 */
};
TT_MUST_USE tt_status tt_rmsnorm_forward(struct tt_stream *stream,
                                         const struct tt_rmsnorm_forward_args *args);

struct tt_rmsnorm_backward_args {
    tt_tensor dy_ND;
    tt_tensor x_ND; /* the normalised input (`sum` when there was a residual) */
    tt_tensor weight_D;
    float offset;
    tt_tensor rstd_N;
    tt_tensor dres_ND;           /* empty, or a gradient added to dx; may alias dx */
    tt_tensor dx_ND;             /* may alias dy */
    tt_tensor dweight_D;         /* f32, accumulated into; empty when the weight is frozen or empty */
    tt_tensor codes_ND, scale_N; /* empty, or x of rank 2: dx in F8_E4M3 contiguous, f32 */
};
TT_MUST_USE tt_status tt_rmsnorm_backward(struct tt_stream *stream,
                                          const struct tt_rmsnorm_backward_args *args);

/* Whether this device makes the rows in FP8 without storing the result in its own type. */
bool tt_rmsnorm_may_store_rows_alone(const struct tt_device *device);

#endif
