/* Gated linear units (Shazeer, arXiv 2002.05202): h = act(gate) * up. The activations have the form act(x) = x f(x):
 *     SiLU       f = 1 / (1 + exp(-x))
 *     GELU       f = (1 + erf(x / sqrt(2))) / 2 (Hendrycks and Gimpel, arXiv 1606.08415)
 *     GELU tanh  f = (1 + tanh(u)) / 2 = 1 / (1 + exp(-2 u)), u = sqrt(2 / pi) (x + 0.044715 x^3)
 * Backward: dup = dh * act(gate); dgate = dh * up * (f + gate * f'). */
#ifndef TT_BACKEND_OPS_SWIGLU_H
#define TT_BACKEND_OPS_SWIGLU_H

#include "backend/device.h"
#include "tensor/tensor.h"

enum tt_activation { TT_ACTIVATION_SILU, TT_ACTIVATION_GELU, TT_ACTIVATION_GELU_TANH };

struct tt_swiglu_forward_args {
    enum tt_activation activation;
    tt_tensor gate_TF, up_TF; /* f32 | bf16; rows may be strided (halves of one [T, 2F]) */
    tt_tensor h_TF;           /* may alias gate */
};
TT_MUST_USE tt_status tt_swiglu_forward(struct tt_stream *stream, const struct tt_swiglu_forward_args *args);

struct tt_swiglu_backward_args {
    enum tt_activation activation;
    tt_tensor dh_TF;
    tt_tensor gate_TF, up_TF;
    tt_tensor dgate_TF, dup_TF; /* may alias gate and up */
    tt_tensor h_TF;             /* empty, or output: act(gate) * up, recomputed; may alias dh */
};
TT_MUST_USE tt_status tt_swiglu_backward(struct tt_stream *stream,
                                         const struct tt_swiglu_backward_args *args);

#endif
