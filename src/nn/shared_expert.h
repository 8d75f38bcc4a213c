/* The expert of a mixture that every token has (nn/experts.h):
 *     y += [sigmoid(<gate, n>)] down(act(gate(n)) * up(n))
 * or y += down(act(up(n))), with a gate of one output (Qwen2-MoE, Qwen3-Next, Qwen3.5-MoE) or without (DeepSeek,
 * GLM-4.5). Its linears are as those of an MLP, with adapters and in the formats of bases; the gate of the output is a
 * mixture of one expert (TT_ROUTE_SIGMOID).
 *
 * Kept for backward, in elements per token: gate and up 2F c, LoRA h, and of the gate 1 c, 1 f and 1 i32. act and, for
 * the gradient of the gate, the output of down are made again. */
#ifndef TT_NN_SHARED_EXPERT_H
#define TT_NN_SHARED_EXPERT_H

#include "nn/half.h"

struct tt_shared_expert {
    struct tt_linear_group gate_up; /* no linears: there is no such expert */
    struct tt_linear_group down;
    struct tt_linear_group gate; /* no linears: none */
    enum tt_activation activation;
};

struct tt_shared_saved {
    tt_tensor gate_up_TF2, h_gate_up_TR, h_down_TR;
    tt_tensor logit_T1, weight_T1, id_T1, h_gate_TR; /* of the gate */
};

bool tt_shared_expert_trains(const struct tt_shared_expert *shared);
bool tt_shared_expert_needs_x(const struct tt_shared_expert *shared);
TT_MUST_USE tt_status tt_shared_expert_push(const struct tt_shared_expert *shared, const struct tt_pass *pass,
                                            int64_t tokens, struct tt_shared_saved *saved);
/* Makes what is kept from the normed input. */
TT_MUST_USE tt_status tt_shared_expert_first(const struct tt_shared_expert *shared,
                                             const struct tt_pass *pass, const struct tt_shared_saved *saved,
                                             tt_tensor n_TD);
/* Adds the result to y; with an empty y it makes what backward needs alone. */
TT_MUST_USE tt_status tt_shared_expert_add(const struct tt_shared_expert *shared, const struct tt_pass *pass,
                                           const struct tt_shared_saved *saved, tt_tensor y_TD);
/* Adds to dn (empty: not wanted) and to the gradients of its parameters; gate_up_TF2 is arbitrary afterwards. */
TT_MUST_USE tt_status tt_shared_expert_back(const struct tt_shared_expert *shared, const struct tt_pass *pass,
                                            const struct tt_shared_saved *saved, tt_tensor dout_TD,
                                            tt_tensor n_TD, tt_tensor dn_TD);
TT_MUST_USE tt_status tt_shared_expert_visit(const struct tt_shared_expert *shared, tt_linear_visit *visit,
                                             void *context);
double tt_shared_expert_flops(const struct tt_shared_expert *shared, bool full);

#endif
