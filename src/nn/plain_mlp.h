/* The feed-forward half without a gate (nn/half.h): x_next = x + down(act(up(norm(x)))), Nemotron's with ReLU^2.
 *
 * Kept for backward, in elements per token (c: compute type, f: fp32): up's output, F c, rstd 1 f, LoRA h. At
 * TT_KEEP_ALL also the activation, F c, where LoRA or the weight of down trains, and the normed input, D c, where that
 * of up does. */
#ifndef TT_NN_PLAIN_MLP_H
#define TT_NN_PLAIN_MLP_H

#include "backend/ops/swiglu.h"
#include "nn/half.h"

struct tt_plain_mlp {
    struct tt_norm norm;
    struct tt_linear_group up, down;
    enum tt_activation activation;
};

#endif
