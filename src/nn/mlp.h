/* The feed-forward half of a layer (nn/half.h), with its norm:
 *     x_next = x + down(act(gate(n)) * up(n)),  n = norm(x)
 * Some families norm the output of down before the sum, of which a few do not norm the stream (n = x).
 *
 * Kept for backward, in elements per token (c: compute type, f: fp32): gate and up 2F c, rstd 1 f, LoRA h of gate, up
 * and down; with a norm after down its input and rstd, D c and 1 f. n (D c) and act(gate) * up
 * (F c), read by the gradients of LoRA and weights, are kept at TT_KEEP_ALL and recomputed otherwise.
 *
 * With `codes_gate_up` gate and up are kept in FP8 (2F bytes and 2 f), each with a scale a row; forward computes with
 * gate and up themselves, backward with the decoded codes. The activation is then recomputed at every level. */
#ifndef TT_NN_MLP_H
#define TT_NN_MLP_H

#include "nn/half.h"

struct tt_mlp {
    struct tt_norm norm;
    struct tt_linear_group gate_up;
    struct tt_linear_group down;
    struct tt_norm post_norm; /* of down's output; weight NULL: none */
    enum tt_activation activation;
    bool codes_gate_up;
};

#endif
