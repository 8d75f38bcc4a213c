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

/* Lion (Chen et al., arXiv 2302.06675):
 *     g = grad * grad_scale;  p -= lr * weight_decay * p;  p -= lr * sign(b1 m + (1-b1) g);  m = b2 m + (1-b2) g
 * The sign of 0 is 0. */
struct tt_lion_args {
    tt_tensor param, grad, m; /* f32 [N] */
    double lr, beta1, beta2, weight_decay;
    float grad_scale; /* the clipping coefficient */
};
TT_MUST_USE tt_status tt_lion(struct tt_stream *stream, const struct tt_lion_args *args);

/* A moment in 8 bits: in blocks of TT_MOMENT_BLOCK elements, the first of which is element 0, map[code] * absmax of the
 * block. The map is tt_quant_nested_map (with signs) or tt_quant_unsigned_map. To encode a block, absmax is its largest
 * |x|, and the code is that of the nearest entry to x / absmax; where the entry's sign bit is not that of x, its
 * neighbour on the side of x. (bitsandbytes 0.50.2, csrc/cuda/optimizers.cu, kOptimizerStatic8bit2StateBlockwise.) A
 * block of zeros has absmax 0 and one code, the library's: TT_MOMENT_ZERO_SIGNED of the map with signs, TT_MOMENT_ZERO
 * of the other. */
enum { TT_MOMENT_BLOCK = 256, TT_MOMENT_ZERO = 0, TT_MOMENT_ZERO_SIGNED = 255 };
struct tt_coded_moment {
    tt_tensor codes;  /* u8 [N] */
    tt_tensor absmax; /* f32 [blocks of N] */
};
struct tt_coded_moment tt_coded_moment(uint8_t *codes, float *absmax, int64_t count);

/* AdamW with moments of 8 bits, as bitsandbytes computes it: m with signs, v without.
 *     g = grad * grad_scale;  m = b1 m + (1-b1) g;  v = b2 v + (1-b2) g^2
 *     p -= lr sqrt(1-b2^step) / (1-b1^step) * m / (sqrt(v) + eps sqrt(1-b2^step));  p -= lr * weight_decay * p
 * p is computed from m and v before they are encoded. */
struct tt_adamw8_args {
    tt_tensor param, grad; /* f32 [N] */
    struct tt_coded_moment m, v;
    double lr, beta1, beta2, eps, weight_decay;
    float grad_scale; /* the clipping coefficient */
    int64_t step;     /* from 1 */
};
TT_MUST_USE tt_status tt_adamw8(struct tt_stream *stream, const struct tt_adamw8_args *args);

/* Lion with a moment of 8 bits, with signs. */
struct tt_lion8_args {
    tt_tensor param, grad; /* f32 [N] */
    struct tt_coded_moment m;
    double lr, beta1, beta2, weight_decay;
    float grad_scale; /* the clipping coefficient */
};
TT_MUST_USE tt_status tt_lion8(struct tt_stream *stream, const struct tt_lion8_args *args);

/* out[0] (f64) += sum x^2, summed in fp64 in fixed groups (the result does not depend on the thread count) */
struct tt_sum_squares_args {
    tt_tensor x;   /* f32 [N] */
    tt_tensor out; /* f64 [1], device memory */
};
TT_MUST_USE tt_status tt_sum_squares(struct tt_stream *stream, const struct tt_sum_squares_args *args);

#endif
