/* Causal depthwise convolution along the rows of each sequence (families with layers of a state: Qwen3-Next and
 * Qwen3.5, J = 4, SiLU; Mamba-2, J = 4, bias, SiLU; LFM2, J = 3, gates). As torch.nn.functional.conv1d with
 * groups = C and J - 1 rows of padding on the left, whose weight is stored [C, 1, J]:
 *
 *     u[t,c] = x[t,c] * in_gate[t,c];   z[t,c] = bias[c] + sum_j w[c,j] u[t - J + 1 + j, c]
 *     y[t,c] = silu(z[t,c]) * out_gate[t,c]
 *
 * with u = 0 before a sequence's first row. Missing gates are 1, a missing bias is 0, and without `silu` z is taken as
 * it is. Arithmetic is fp32 for all types, rounded once. A state is the last J - 1 rows of u, the latest last; rows
 * before the first one are 0. */
#ifndef TT_BACKEND_OPS_CONV1D_H
#define TT_BACKEND_OPS_CONV1D_H

#include "backend/ops/sequences.h"

enum { TT_CONV1D_KERNEL_MAX = 8 };

struct tt_conv1d_forward_args {
    struct tt_sequences sequences;
    struct tt_states states;           /* [states, J - 1, C] */
    tt_tensor x_TC;                    /* f32 | bf16; rows may be strided, here and below */
    tt_tensor in_gate_TC, out_gate_TC; /* x's type; empty: 1 */
    tt_tensor w_CJ;                    /* f32 | bf16, contiguous; J <= TT_CONV1D_KERNEL_MAX */
    tt_tensor bias_C;                  /* f32 | bf16, or empty */
    bool silu;
    tt_tensor y_TC; /* x's type; apart from the inputs */
};
TT_MUST_USE tt_status tt_conv1d_forward(struct tt_stream *stream, const struct tt_conv1d_forward_args *args);

/* Gradients of all sequences from zero states. dw and dbias are added to: a sum over the rows in order, for each
 * channel. `forward` has the same views, without states; y is not read and may be empty. */
struct tt_conv1d_backward_args {
    struct tt_conv1d_forward_args forward;
    tt_tensor dy_TC;                     /* x's type, as all gradients of rows */
    tt_tensor dx_TC;                     /* overwritten; apart from all others */
    tt_tensor din_gate_TC, dout_gate_TC; /* overwritten; given with their gates */
    tt_tensor dw_CJ, dbias_C;            /* f32, contiguous, accumulated into; empty: frozen */
};
TT_MUST_USE tt_status tt_conv1d_backward(struct tt_stream *stream,
                                         const struct tt_conv1d_backward_args *args);

#endif
