/* Ops over flat fp32 slices of parameters. */
#ifndef TT_BACKEND_OPS_OPTIM_H
#define TT_BACKEND_OPS_OPTIM_H

#include "backend/device.h"
#include "tensor/tensor.h"

/* AdamW (Loshchilov and Hutter, arXiv 1711.05101) in PyTorch's order of operations, step counted from 1:
 *     g = grad * grad_scale;  p -= lr * weight_decay * p;  m = b1 m + (1-b1) g;  v = b2 v + (1-b2) g^2
 *     p -= lr / (1 - b1^step) * m / (sqrt(v) / sqrt(1 - b2^step) + eps) */
struct tt_adamw_args {
    tt_tensor param, grad, m, v; /* f32 [N] */
    double lr, beta1, beta2, eps, weight_decay;
    float grad_scale; /* the clipping coefficient */
    int64_t step;
};
TT_MUST_USE tt_status tt_adamw(struct tt_stream *stream, const struct tt_adamw_args *args);

/* Stochastic gradient descent with momentum in PyTorch's order (torch.optim.SGD without dampening); v is 0 before the
 * first step:
 *     g = grad * grad_scale + weight_decay * p;  v = momentum v + g;  p -= lr v
 * Nesterov's form: p -= lr (g + momentum v). Without v (an empty tensor) momentum is 0: p -= lr g. */
struct tt_sgd_args {
    tt_tensor param, grad, v; /* f32 [N] */
    double lr, momentum, weight_decay;
    float grad_scale; /* the clipping coefficient */
    bool nesterov;
};
TT_MUST_USE tt_status tt_sgd(struct tt_stream *stream, const struct tt_sgd_args *args);

/* out[0] (f64) += sum x^2, summed in fp64 in fixed groups (the result does not depend on the thread count) */
struct tt_sum_squares_args {
    tt_tensor x;   /* f32 [N] */
    tt_tensor out; /* f64 [1], device memory */
};
TT_MUST_USE tt_status tt_sum_squares(struct tt_stream *stream, const struct tt_sum_squares_args *args);

#endif
