/* The choice of experts for each token, and their weights (routers of mixtures of experts; Shazeer et al., arXiv
 * 1701.06538). Letters: T tokens, X experts, S experts chosen for a token (slots). For a row l of logits:
 *
 *     score     TT_ROUTE_SOFTMAX  s = softmax(l)           (Qwen3-MoE, Mixtral, OLMoE; Mistral 4, Gemma 4)
 *               TT_ROUTE_CHOSEN   s = softmax of the chosen logits alone           (gpt-oss, Granite MoE)
 *               TT_ROUTE_SIGMOID  s = 1 / (1 + exp(-l))    (DeepSeek V3, GLM-4.5, MiniMax-M2, Llama 4)
 *     choice    the S largest of s + bias (CHOSEN: of l + bias), of equal ones the first. With `groups` only those of
 *               the `kept_groups` groups of experts with the largest sum of their two best values.
 *     weight    w = s, without the bias; `normalizes`: w / (sum over the slots of w + epsilon); then w * factor *
 *               scale[expert].
 *
 * Slots are in order of their value, the largest first. Arithmetic is fp32. `rounds_scores` rounds s to the type of the
 * logits, and `rounds_weights` w, as the reference does that computes them in that type. Sources: the modeling files of
 * these families in transformers 5.24. */
#ifndef TT_BACKEND_OPS_ROUTE_H
#define TT_BACKEND_OPS_ROUTE_H

#include "backend/device.h"
#include "tensor/tensor.h"

enum tt_route_score { TT_ROUTE_SOFTMAX, TT_ROUTE_CHOSEN, TT_ROUTE_SIGMOID };

enum { TT_ROUTE_EXPERTS_MAX = 1024, TT_ROUTE_SLOTS_MAX = 32, TT_ROUTE_GROUPS_MAX = 64 };

struct tt_route_rule {
    enum tt_route_score score;
    int groups, kept_groups; /* 0: none. X is a multiple of groups, with at least 2 experts in each */
    bool normalizes, rounds_scores, rounds_weights;
    float epsilon, factor; /* factor 0: 1 */
};

struct tt_route_forward_args {
    struct tt_route_rule rule;
    tt_tensor logits_TX;  /* f32 | bf16, contiguous */
    tt_tensor bias_X;     /* f32, of the choice; empty: 0 */
    tt_tensor scale_X;    /* f32; empty: 1 */
    tt_tensor ids_TS;     /* i32, to write, contiguous */
    tt_tensor weights_TS; /* f32, to write, contiguous */
    /* Empty, or f32 [2, X], contiguous, to which the sums of the call are added: the tokens among whose S largest
     * logits an expert is, and softmax(l); in an order that depends on the number of tokens alone. */
    tt_tensor load_2X;
};
TT_MUST_USE tt_status tt_route_forward(struct tt_stream *stream, const struct tt_route_forward_args *args);

/* The gradient of the logits, through the weights of the chosen experts; the choice itself has none. */
struct tt_route_backward_args {
    struct tt_route_rule rule;
    tt_tensor logits_TX, scale_X, ids_TS; /* as in forward */
    tt_tensor dweights_TS;                /* f32, contiguous */
    tt_tensor dload_X;    /* f32, contiguous: the gradient of each sum of softmax(l); empty: none */
    tt_tensor dlogits_TX; /* the logits' type, to write, contiguous; apart from all others */
};
TT_MUST_USE tt_status tt_route_backward(struct tt_stream *stream, const struct tt_route_backward_args *args);

/* The auxiliary loss that balances experts (load_balancing_loss_func of transformers' Mixtral, after Switch
 * Transformers, arXiv 2101.03961), over all rows whose `load` was added up:
 *     X sum_e f_e P_e,  f = counts / rows, P = sums / rows, rows = sum of the counts / S
 * Only P has a gradient. Without rows both are 0. */
struct tt_route_balance_args {
    tt_tensor load_2X; /* f32, contiguous */
    int64_t slots;     /* S */
    float scale;       /* of the gradient: the loss's coefficient */
    tt_tensor dload_X; /* f32, to write, contiguous: scale * d loss / d sums */
    float loss_scale;
    tt_tensor loss; /* f64 [1], to which loss_scale * loss is added; empty: not wanted */
};
TT_MUST_USE tt_status tt_route_balance(struct tt_stream *stream, const struct tt_route_balance_args *args);

#endif
