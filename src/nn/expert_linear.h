/* A linear of every expert of a mixture (nn/experts.h), y = x W_e^T (+ bias_e) + s (x A_e^T) B_e^T for the rows of
 * expert e, which `border` has (ops/expert_rows.h).
 *
 * Letters: X experts, M rows, I inputs, O outputs, R rank of the adapter.
 *
 * A and B are as PEFT's adapters of a parameter have them (peft/tuners/lora/layer.py, ParamWrapper): A [X R, I] with
 * row e R + j, B [O, R X] with column j X + e. Products read B by expert, [X, O, R], from a copy that each makes in
 * scratch; the gradient goes the other way.
 *
 * A frozen weight may be coded in a format (tensor/quant.h), as one matrix [X O, I]: its experts are decoded for each
 * product in scratch of at most TT_LINEAR_SCRATCH_BYTES, or of one expert where that is larger and on hosts. FP8 with a
 * scale a row is multiplied as it is where `forward` and `backward` say so (nn/linear.h): for the gradient of the input
 * the codes of some experts at a time are transposed in such scratch.
 *
 * Where ranks share the experts (nn/expert_exchange.h) the weight and the borders are those of this rank's own, and
 * bias, A and B those of all: products read the part of the own experts, whose gradients alone are added.
 *
 * Several adapters side by side (nn/linear.h) are one of all their ranks together: of each expert the rows of the first
 * adapter, then those of the second ... */
#ifndef TT_NN_EXPERT_LINEAR_H
#define TT_NN_EXPERT_LINEAR_H

#include "nn/expert_exchange.h"
#include "nn/linear.h"

struct tt_expert_linear {
    tt_param *weight; /* [X, O, I], or the segment of its codes; lent: those of this rank's experts */
    tt_param *bias;   /* [X, O]; NULL: none */
    tt_param *lora_A, *lora_B;              /* NULL: no adapter, and r is 0 */
    enum tt_product_kind forward, backward; /* DECODED; or CODED and TRANSPOSED */
    int64_t experts, slots, in, out, r;     /* experts: all; slots: experts of a token */
    int64_t adapters;                       /* side by side, of r / adapters each; 0: one */
    float scaling;
};

/* The bias of this rank's experts; empty: none. */
tt_tensor tt_expert_linear_bias(const struct tt_expert_linear *linear, const struct tt_pass *pass);
bool tt_expert_linear_trains(const struct tt_expert_linear *linear);
/* Whether the gradients of its parameters read its input. */
bool tt_expert_linear_needs_x(const struct tt_expert_linear *linear);
/* Pushes h_MR or dh_MR in the compute type; empty without an adapter. */
TT_MUST_USE tt_status tt_expert_linear_push_h(const struct tt_expert_linear *linear,
                                              const struct tt_pass *pass, int64_t rows, tt_tensor *h_MR);
/* Whether the weight is multiplied coded. */
static inline bool tt_expert_linear_takes_quantized(const struct tt_expert_linear *linear,
                                                    enum tt_linear_way way)
{
    return (way == TT_LINEAR_FORWARD ? linear->forward : linear->backward) >= TT_PRODUCT_CODED;
}

/* The rows of experts' tokens: their borders, and the slot of each (ops/expert_rows.h); with codes x (backward: dy) in
 * FP8, made, where the linear takes it. Its values are then read by what trains alone. */
struct tt_expert_rows {
    tt_tensor border_X1, slot_M;
    struct tt_quantized_rows quantized;
};
/* h = s x A^T, y. An empty y: h alone. */
TT_MUST_USE tt_status tt_expert_linear_forward(const struct tt_expert_linear *linear,
                                               const struct tt_pass *pass, const struct tt_expert_rows *rows,
                                               tt_tensor x_MI, tt_tensor h_MR, tt_tensor y_MO);
/* dh = s dy B, dx = dy W + dh A. An empty dx: dh alone. */
TT_MUST_USE tt_status tt_expert_linear_back(const struct tt_expert_linear *linear, const struct tt_pass *pass,
                                            const struct tt_expert_rows *rows, tt_tensor dy_MO,
                                            tt_tensor dh_MR, tt_tensor dx_MI);
/* Adds to the gradients of what trains. x_MI may be empty where tt_expert_linear_needs_x is false. */
TT_MUST_USE tt_status tt_expert_linear_gradients(const struct tt_expert_linear *linear,
                                                 const struct tt_pass *pass, tt_tensor border_X1,
                                                 tt_tensor x_MI, tt_tensor h_MR, tt_tensor dy_MO,
                                                 tt_tensor dh_MR);
/* Shows it as a linear with `experts`. */
TT_MUST_USE tt_status tt_expert_linear_visit(const struct tt_expert_linear *linear, tt_linear_visit *visit,
                                             void *context);
/* Training FLOPs a token, as tt_linear_group_flops: of the experts that it has. */
double tt_expert_linear_flops(const struct tt_expert_linear *linear, bool full);

#endif
