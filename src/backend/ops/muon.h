/* Muon (torch.optim.Muon, torch 2.15): the parts of its update that are no products of matrices. The orthogonalisation
 * between them is optim/rules/muon.c. */
#ifndef TT_BACKEND_OPS_MUON_H
#define TT_BACKEND_OPS_MUON_H

#include "backend/device.h"
#include "tensor/tensor.h"

/* The momentum and the direction of a step, in PyTorch's order of operations (torch.lerp):
 *     g = grad * grad_scale;  m += (1 - momentum) (g - m);  y = nesterov ? g + momentum (m - g) : m */
struct tt_muon_direction_args {
    tt_tensor grad, m; /* f32 [N] */
    tt_tensor y;       /* f32 | bf16 [N], rounded once */
    double momentum;
    float grad_scale; /* the clipping coefficient */
    bool nesterov;
};
TT_MUST_USE tt_status tt_muon_direction(struct tt_stream *stream, const struct tt_muon_direction_args *args);

/* x /= max(norm, eps), in place; the norm is summed in fp64 in fixed groups (the result does not depend on the thread
 * count) and rounded to x's type. */
struct tt_muon_normalize_args {
    tt_tensor x;       /* f32 | bf16 [N] */
    tt_tensor squares; /* f64 [1], device memory; overwritten by the sum of squares */
    double eps;
};
TT_MUST_USE tt_status tt_muon_normalize(struct tt_stream *stream, const struct tt_muon_normalize_args *args);

/* param = param (1 - decay) - lr x; decay is the learning rate times the weight decay. */
struct tt_muon_apply_args {
    tt_tensor param; /* f32 [N] */
    tt_tensor x;     /* f32 | bf16 [N] */
    double lr, decay;
};
TT_MUST_USE tt_status tt_muon_apply(struct tt_stream *stream, const struct tt_muon_apply_args *args);

#endif
