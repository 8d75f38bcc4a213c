/* A root-mean-square norm with its weight, as the layers use it. */
#ifndef TT_NN_NORM_H
#define TT_NN_NORM_H

#include "nn/pass.h"
#include "tensor/param.h"

struct tt_norm {
    tt_param *weight; /* NULL: this norm does not exist (q/k norms of most families) */
    double eps;
    float offset; /* added to the weight (backend/ops/rmsnorm.h) */
};

/* y = norm(x); rstd may be empty. y may alias x. */
TT_MUST_USE tt_status tt_norm_forward(const struct tt_norm *norm, const struct tt_pass *pass, tt_tensor x_ND,
                                      tt_tensor y_ND, tt_tensor rstd_N);
/* x := x + residual in place, y = norm(x) */
TT_MUST_USE tt_status tt_norm_forward_add(const struct tt_norm *norm, const struct tt_pass *pass,
                                          tt_tensor x_ND, tt_tensor residual_ND, tt_tensor y_ND,
                                          tt_tensor rstd_N);
/* dx = gradient of x (+ dres_ND unless empty), in place of dy; adds to the gradient of a trainable weight.
 * tt_norm_backward_to leaves dy alone. */
TT_MUST_USE tt_status tt_norm_backward(const struct tt_norm *norm, const struct tt_pass *pass, tt_tensor x_ND,
                                       tt_tensor rstd_N, tt_tensor dres_ND, tt_tensor dy_ND);
TT_MUST_USE tt_status tt_norm_backward_to(const struct tt_norm *norm, const struct tt_pass *pass,
                                          tt_tensor x_ND, tt_tensor rstd_N, tt_tensor dy_ND, tt_tensor dx_ND);

#endif
