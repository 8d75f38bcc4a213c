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
#include "nn/step.h"
#include "tensor/param.h"

/* Parameters are lent by the model. Without LoRA: lora_A and lora_B are NULL and r is 0. A weight that is quantized is
 * dequantized into scratch for each product (nn/quantized.h). */
struct tt_linear {
    tt_param *weight;
    tt_param *bias; /* NULL: none */
    tt_param *lora_A, *lora_B;
    int64_t in, out, r;
    float scaling;
    double dropout; /* on the input of A, while step->training */
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
TT_MUST_USE tt_status tt_linear_push_h(const struct tt_linear_group *group, struct tt_step *step,
                                       int64_t rows, tt_tensor *h_TR);

/* `row_keys_T` belongs to the rows of x. y_TO is overwritten and may be of a wider type than x; when it is empty only
 * h_TR is made (a block that is run again for backward needs no more of its last linear). */
TT_MUST_USE tt_status tt_linear_forward(const struct tt_linear_group *group, struct tt_step *step,
                                        tt_tensor row_keys_T, tt_tensor x_TI, tt_tensor h_TR, tt_tensor y_TO);
/* As tt_linear_forward for a group of one, with `residual_TO` (y's type and shape, apart from y) added to y. */
TT_MUST_USE tt_status tt_linear_forward_add(const struct tt_linear_group *group, struct tt_step *step,
                                            tt_tensor row_keys_T, tt_tensor x_TI, tt_tensor h_TR,
                                            tt_tensor residual_TO, tt_tensor y_TO);
/* As tt_linear_forward, and then the first columns of y rotated as `rotation` says. */
TT_MUST_USE tt_status tt_linear_forward_rotated(const struct tt_linear_group *group, struct tt_step *step,
                                                tt_tensor row_keys_T, tt_tensor x_TI, tt_tensor h_TR,
                                                const struct tt_rotation *rotation, tt_tensor y_TO);
/* As tt_linear_forward for a group of two, and act = silu(gate) * up of its two halves. Without `keep` what is left in
 * gate_up_TF2 is arbitrary, and act_TF may be its first half. */
TT_MUST_USE tt_status tt_linear_forward_swiglu(const struct tt_linear_group *group, struct tt_step *step,
                                               tt_tensor row_keys_T, tt_tensor x_TI, tt_tensor h_TR,
                                               bool keep, tt_tensor gate_up_TF2, tt_tensor act_TF);
/* dx = dy W + drop'(dh A), dh = s dy B. dx_TI may be empty (nobody below trains): then only dh is made. */
TT_MUST_USE tt_status tt_linear_backward_input(const struct tt_linear_group *group, struct tt_step *step,
                                               tt_tensor row_keys_T, tt_tensor dy_TO, tt_tensor dh_TR,
                                               tt_tensor dx_TI);
/* As tt_linear_backward_input for a group of one whose x was act = silu(gate) * up: turns gate | up into their
 * gradients. dact_TF is scratch; with `wants_act` act is left there. */
TT_MUST_USE tt_status tt_linear_backward_swiglu(const struct tt_linear_group *group, struct tt_step *step,
                                                tt_tensor row_keys_T, tt_tensor dy_TO, tt_tensor dh_TR,
                                                tt_tensor gate_up_TF2, tt_tensor dact_TF, bool wants_act);
/* Adds to the gradients of what trains: dW += dy^T x, dbias += sum dy, dB += dy^T h, dA += dh^T drop(x).
 * After tt_linear_backward_input, which made dh. x_TI may be empty when tt_linear_group_needs_x says no. */
TT_MUST_USE tt_status tt_linear_backward_params(const struct tt_linear_group *group, struct tt_step *step,
                                                tt_tensor row_keys_T, tt_tensor x_TI, tt_tensor h_TR,
                                                tt_tensor dy_TO, tt_tensor dh_TR);

#endif
