/* Root-mean-square norm of groups of columns, with a gate (rmsnorm.h has the norm alone). Row t has the G groups of
 * N / G columns each of x; act is SiLU or the logistic function.
 *
 * Gate after the norm (gated delta rule: a group is a value head, whose weight all heads share):
 *     rstd[t,g] = 1 / sqrt(mean over the group of x^2 + eps);   y[t,n] = weight[n] * x[t,n] * rstd[t,g] * act(z[t,n])
 * Gate before it (`gate_first`, Mamba-2; arXiv 2405.21060, and transformers' MambaRMSNormGated):
 *     u[t,n] = x[t,n] * act(z[t,n]);   rstd of u;   y[t,n] = weight[n] * u[t,n] * rstd[t,g]
 *
 * Arithmetic is fp32 for all types, rounded once. Forward can also make y's rows in FP8, as tt_quantize_rows
 * (gemm_scaled.h) makes them of the rounded y. */
#ifndef TT_BACKEND_OPS_GATED_NORM_H
#define TT_BACKEND_OPS_GATED_NORM_H

#include "backend/device.h"
#include "tensor/tensor.h"

enum tt_gate { TT_GATE_SILU, TT_GATE_SIGMOID };

struct tt_gated_norm_forward_args {
    tt_tensor x_TN, z_TN; /* f32 | bf16, both of one type; rows may be strided */
    tt_tensor weight_N;   /* f32 | bf16 [N], or [N / G] for all groups alike */
    int64_t groups;       /* G, a divisor of N */
    double eps;
    enum tt_gate gate;
    bool gate_first;
    tt_tensor y_TN;              /* x's type; may be x or z */
    tt_tensor rstd_TG;           /* f32, contiguous; empty when no backward follows */
    tt_tensor codes_TN, scale_T; /* empty, or F8_E4M3 contiguous, f32; apart from the others */
};
TT_MUST_USE tt_status tt_gated_norm_forward(struct tt_stream *stream,
                                            const struct tt_gated_norm_forward_args *args);

struct tt_gated_norm_backward_args {
    tt_tensor dy_TN, x_TN, z_TN;
    tt_tensor weight_N;
    int64_t groups;
    enum tt_gate gate;
    bool gate_first;
    tt_tensor rstd_TG;      /* of forward */
    tt_tensor dx_TN, dz_TN; /* overwritten; dx may be dy or x, dz may be z; apart from each other */
    /* f32, as weight, accumulated into (rows in order, in fixed groups); empty when the weight is frozen */
    tt_tensor dweight_N;
};
TT_MUST_USE tt_status tt_gated_norm_backward(struct tt_stream *stream,
                                             const struct tt_gated_norm_backward_args *args);

#endif
