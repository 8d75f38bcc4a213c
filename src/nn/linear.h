/* Linear layers y = x W^T (+ bias) + s * (drop(x) A^T) B^T, in groups that read the same x.
 *
 * Low-rank adaptation: Hu et al., arXiv 2106.09685; s = alpha / r or alpha / sqrt(r) as PEFT defines it. W, A
 * and B are stored [out, in], [r, in], [out, r].
 *
 * A group (q, k, v; gate, up; or one alone) writes one matrix y_TO whose columns are the outputs one after
 * the other. Where the weights (or the A's, or their gradients) of a group lie next to each other in memory
 * they are multiplied as one stacked matrix; that is looked up by their addresses at every call, because the
 * views are lent anew each time. Stacked or one by one needs the same scratch, so a plan made without memory
 * holds for both.
 *
 * Dropout masks are a function of (rng, row key, column): they are computed again in the backward pass, never
 * kept. What backward needs besides x is h_TR = s drop(x) A^T, [T, sum of r]: the caller keeps it.
 */
#ifndef TT_NN_LINEAR_H
#define TT_NN_LINEAR_H

#include "backend/ops/gemm_fused.h"
#include "nn/pass.h"
#include "tensor/param.h"

/* Parameters are lent by the model. Without LoRA: lora_A and lora_B are NULL and r is 0. A weight that is quantized is
 * dequantized into scratch for each product (nn/quantized.h). */
struct tt_linear {
    tt_param *weight;
    tt_param *bias; /* NULL: none */
    tt_param *lora_A, *lora_B;
    int64_t in, out, r;
    float scaling;
    double dropout; /* on the input of A, in training passes */
};

enum { TT_LINEAR_GROUP_MAX = 3 };

struct tt_linear_group {
    struct tt_linear linears[TT_LINEAR_GROUP_MAX]; /* the same `in` */
    int count;
};

int64_t tt_linear_group_out(const struct tt_linear_group *group); /* O: columns of y */
int64_t tt_linear_group_r(const struct tt_linear_group *group);   /* R: columns of h; 0 without LoRA */
bool tt_linear_group_trains(const struct tt_linear_group *group);
/* Whether tt_linear_backward_params reads x. */
bool tt_linear_group_needs_x(const struct tt_linear_group *group);
/* Pushes h_TR (or dh_TR) of `rows` rows in the compute type; empty when R is 0. */
TT_MUST_USE tt_status tt_linear_push_h(const struct tt_linear_group *group, const struct tt_pass *pass,
                                       int64_t rows, tt_tensor *h_TR);

/* One use of a group in a pass, as its forward and both of its backward functions read it. */
struct tt_linear_call {
    const struct tt_linear_group *group;
    const struct tt_pass *pass;
    tt_tensor row_keys_T; /* of the rows of x; read where dropout is active */
    tt_tensor x_TI;       /* may be empty in backward where tt_linear_group_needs_x is false */
    tt_tensor h_TR;       /* written by forward; empty when R is 0 */
};
/* A call whose rows are the tokens of the batch. */
struct tt_linear_call tt_linear_call_tokens(const struct tt_linear_group *group, const struct tt_pass *pass,
                                            tt_tensor x_TI, tt_tensor h_TR);

/* y_TO is overwritten and may be of a wider type than x; when it is empty only h_TR is made (a block that is run again
 * for backward needs no more of its last linear). */
TT_MUST_USE tt_status tt_linear_forward(const struct tt_linear_call *call, tt_tensor y_TO);
/* As tt_linear_forward for a group of one, with `residual_TO` (y's type and shape, apart from y) added to y. */
TT_MUST_USE tt_status tt_linear_forward_add(const struct tt_linear_call *call, tt_tensor residual_TO,
                                            tt_tensor y_TO);
/* As tt_linear_forward, and then the first columns of y rotated as `rotation` says. */
TT_MUST_USE tt_status tt_linear_forward_rotated(const struct tt_linear_call *call,
                                                const struct tt_rotation *rotation, tt_tensor y_TO);
/* dx = dy W + drop'(dh A), dh = s dy B. dx_TI may be empty (nobody below trains): then only dh is made. Reads neither x
 * nor h. */
TT_MUST_USE tt_status tt_linear_backward_input(const struct tt_linear_call *call, tt_tensor dy_TO,
                                               tt_tensor dh_TR, tt_tensor dx_TI);
/* Adds to the gradients of what trains: dW += dy^T x, dbias += sum dy, dB += dy^T h, dA += dh^T drop(x).
 * After tt_linear_backward_input, which made dh. */
TT_MUST_USE tt_status tt_linear_backward_params(const struct tt_linear_call *call, tt_tensor dy_TO,
                                                tt_tensor dh_TR);

/* SwiGLU beside a product: act = silu(gate) * up. */
struct tt_linear_swiglu {
    tt_tensor gate_up_TF2; /* gate | up; backward turns them into their gradients */
    tt_tensor act_TF;
    /* Forward: gate and up stay; otherwise gate_up_TF2 is arbitrary afterwards, and act_TF may be its first half.
     * Backward: act is left in act_TF; otherwise that is scratch. */
    bool keep;
};
/* As tt_linear_forward for a group of two whose output is gate | up, and act of its two halves. */
TT_MUST_USE tt_status tt_linear_forward_swiglu(const struct tt_linear_call *call,
                                               const struct tt_linear_swiglu *swiglu);
/* As tt_linear_backward_input for a group of one whose x was act. */
TT_MUST_USE tt_status tt_linear_backward_swiglu(const struct tt_linear_call *call, tt_tensor dy_TO,
                                                tt_tensor dh_TR, const struct tt_linear_swiglu *swiglu);

#endif
