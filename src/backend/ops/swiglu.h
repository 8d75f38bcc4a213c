/* SwiGLU (Shazeer, arXiv 2002.05202): h = silu(gate) * up, silu(x) = x / (1 + exp(-x)).
 * Backward: dup = dh * silu(gate); dgate = dh * up * s * (1 + gate * (1 - s)), s = sigmoid(gate). */
#ifndef TT_BACKEND_OPS_SWIGLU_H
#define TT_BACKEND_OPS_SWIGLU_H

#include "backend/device.h"
#include "tensor/tensor.h"

struct tt_swiglu_forward_args {
    tt_tensor gate_TF, up_TF; /* f32 | bf16; rows may be strided (halves of one [T, 2F]) */
    tt_tensor h_TF;           /* may alias gate */
};
TT_MUST_USE tt_status tt_swiglu_forward(struct tt_stream *stream, const struct tt_swiglu_forward_args *args);

struct tt_swiglu_backward_args {
    tt_tensor dh_TF;
    tt_tensor gate_TF, up_TF;
    tt_tensor dgate_TF, dup_TF; /* may alias gate and up */
    tt_tensor h_TF;             /* empty, or output: silu(gate) * up, recomputed; may alias dh */
};
TT_MUST_USE tt_status tt_swiglu_backward(struct tt_stream *stream,
                                         const struct tt_swiglu_backward_args *args);

#endif
