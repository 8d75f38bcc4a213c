/* Decoders with mixtures of experts in the place of MLPs that are otherwise families of dense.h. */
#ifndef TT_MODEL_MIXTURE_H
#define TT_MODEL_MIXTURE_H

#include "model/dense.h"

struct tt_mixture {
    struct tt_dense dense;     /* the first member: helpers of dense read it */
    int64_t count, slots, ffn; /* X experts, of them S for a token, I of each */
    int64_t shared_ffn;        /* of the expert that every token has; 0: none */
    struct tt_route_rule rule;
};

/* Values of missing keys; 0: the key is required. */
struct tt_mixture_defaults {
    int64_t count, slots, ffn;
    const char *ffn_key; /* "moe_intermediate_size" */
};

/* Reads num_experts (or num_local_experts), num_experts_per_tok and the width of an expert, behind tt_dense_parse; all
 * layers get experts. */
TT_MUST_USE tt_status tt_mixture_parse(const struct tt_json *json, const struct tt_mixture_defaults *defaults,
                                       struct tt_model_facts *facts);
/* Reads router_aux_loss_coef, by which TRL adds the loss that balances experts; without the key `coefficient`. */
TT_MUST_USE tt_status tt_mixture_parse_balance(const struct tt_json *json, double coefficient,
                                               struct tt_model_facts *facts);
/* Takes experts from layers by mlp_only_layers and decoder_sparse_step, as Qwen's families choose. */
TT_MUST_USE tt_status tt_mixture_parse_dense_layers(const struct tt_json *json, struct tt_model_facts *facts);
void tt_mixture_build(const struct tt_model_facts *facts, struct tt_builder *builder,
                      const struct tt_attention_names *attention, const struct tt_experts_names *experts);

/* Names inside a layer of most families, and their places in folders with a tensor for each linear of an expert. */
#define TT_EXPERTS_NAMES                                                                                     \
    .module = "mlp", .router = "mlp.gate", .experts = "mlp.experts", .activation = "mlp.experts.act_fn",     \
    .gate_up = "gate_up_proj", .down = "down_proj", .norm = "post_attention_layernorm"
extern const struct tt_experts_names tt_mixture_names;
extern const struct tt_param_source tt_mixture_sources[];

#endif
