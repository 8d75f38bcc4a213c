/* The half of a layer with a mixture of experts (nn/half.h), with its norm:
 *     x_next = x + sum over the chosen experts e of weight_e down_e(act(gate_e(n)) * up_e(n)) [+ shared(n)]
 * with n = norm(x), or where experts have no gate with down_e(act(up_e(n))), and with a post norm post_norm(that sum).
 * The router reads n, or with a norm of its own that of x, whose logits then have a factor (Gemma 4).
 * The router's linear makes the logits, ops/route.h chooses, ops/expert_rows.h orders the rows of the chosen by expert,
 * ops/grouped_gemm.h multiplies them.
 *
 * Letters: X experts, S of them for a token, M = T S rows, I outputs of gate and of up.
 *
 * Kept for backward, in elements per token (c: compute type, f: fp32, i: int32): logits X c or f, weights S f, ids,
 * place and slot 3S i, gate and up 2SI c, rstd 1 f (and 1 f of each other norm), with a post norm its input D c, LoRA h
 * of gate_up, down and the router. n (D c), which the
 * gradients of LoRA and weights read, and act(gate) * up (SI c) are kept at TT_KEEP_ALL and recomputed otherwise.
 * The rows themselves and the output of down are never kept: the gradient of a weight is that of down's input times act
 * (ops/expert_rows.h), and with a bias of down that of dy times the bias.
 *
 * The loss that balances experts (struct tt_balance) has its gradient from the logits too.
 *
 * The router reads, trains and is adapted as other linears are; it is not quantized. */
#ifndef TT_NN_EXPERTS_H
#define TT_NN_EXPERTS_H

#include "backend/ops/route.h"
#include "nn/expert_linear.h"
#include "nn/shared_expert.h"

struct tt_experts {
    struct tt_norm norm, post_norm; /* post_norm: not beside shared experts */
    struct tt_norm router_norm;     /* instead of `norm`, of what the router reads */
    float router_scale;             /* of its logits; 0: none */
    struct tt_linear_group router;  /* [X, D] */
    struct tt_route_rule rule;
    bool wide_logits;                /* they are fp32 whatever the compute type */
    tt_param *choice_bias;           /* f32 [X], of the choice; NULL: none */
    tt_param *scale;                 /* f32 [X], of the weights; NULL: none */
    int64_t slots;                   /* S */
    struct tt_expert_linear gate_up; /* out 2I: gate, then up; out I: up, without a gate */
    struct tt_expert_linear down;
    enum tt_activation activation;
    struct tt_shared_expert shared;
};

#endif
