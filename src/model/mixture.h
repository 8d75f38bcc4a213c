/* Mixtures of experts in the place of MLPs: the keys that families share. A family of other halves has a struct
 * tt_mixture in its own; families that are otherwise those of dense.h are a struct tt_dense_mixture. */
#ifndef TT_MODEL_MIXTURE_H
#define TT_MODEL_MIXTURE_H

#include "model/dense.h"

struct tt_mixture {
    int64_t count, slots, ffn; /* X experts, S of them for a token, I of each */
    int64_t shared_ffn;        /* of the expert that every token has; 0: none */
    struct tt_route_rule rule;
    bool wide_logits;
    bool bias; /* of the router and of the experts' linears */
    /* PEFT takes the linears of MLPs, and of the expert that every token has, for those of experts by their names, and
     * adapts none of them (model/lora_convert.h) */
    bool bypassed;
};

struct tt_dense_mixture {
    struct tt_dense dense; /* the first member: helpers of dense read it */
    struct tt_mixture mixture;
};

/* Values of missing keys; 0: the key is required. */
struct tt_mixture_defaults {
    int64_t count, slots, ffn;
    const char *ffn_key;   /* "moe_intermediate_size" */
    const char *slots_key; /* NULL: num_experts_per_tok */
    bool bypassed;
    /* of tt_mixture_parse_grouped alone: first_k_dense_replace, n_shared_experts, n_group, topk_group,
     * routed_scaling_factor */
    int64_t dense_layers, shared, groups, kept_groups;
    double factor;
};

/* Reads num_experts (or num_local_experts, n_routed_experts), num_experts_per_tok and the width of an expert; all
 * layers get experts. */
TT_MUST_USE tt_status tt_mixture_parse(const struct tt_json *json, const struct tt_mixture_defaults *defaults,
                                       struct tt_model_facts *facts, struct tt_mixture *mixture);
/* The same with the choice of DeepSeek V3 (DeepseekV3TopkRouter): by sigmoids, in groups, with a factor. Experts that
 * every token has are one of their widths together; layers from first_k_dense_replace on have experts. */
TT_MUST_USE tt_status tt_mixture_parse_grouped(const struct tt_json *json,
                                               const struct tt_mixture_defaults *defaults,
                                               struct tt_model_facts *facts, struct tt_mixture *mixture);
/* Reads router_aux_loss_coef, by which TRL adds the loss that balances experts; without the key `coefficient`. */
TT_MUST_USE tt_status tt_mixture_parse_balance(const struct tt_json *json, double coefficient,
                                               const struct tt_mixture *mixture,
                                               struct tt_model_facts *facts);
/* Takes experts from layers by mlp_only_layers and decoder_sparse_step, as Qwen's families choose. */
TT_MUST_USE tt_status tt_mixture_parse_dense_layers(const struct tt_json *json, struct tt_model_facts *facts);

TT_MUST_USE tt_status tt_mixture_refuse_jitter(const struct tt_json *json); /* router_jitter_noise but 0 */

/* The half of a model with this shape. */
struct tt_experts_spec tt_mixture_spec(const struct tt_mixture *mixture, const struct tt_decoder_shape *shape,
                                       const struct tt_experts_names *names);
/* build() of a struct tt_dense_mixture. */
void tt_mixture_build(const struct tt_model_facts *facts, struct tt_builder *builder,
                      const struct tt_attention_names *attention, const struct tt_experts_names *experts);

/* Older names of the linears of an expert. */
extern const struct tt_older_experts tt_mixture_older, tt_mixtral_older;

/* ---- GGUF ---- */

enum { TT_GGUF_GATING_SOFTMAX = 1, TT_GGUF_GATING_SIGMOID = 2 }; /* llama_expert_gating_func_type */

/* The number of experts, how many a token has, and their width where it has a key of its own there. */
void tt_mixture_gguf_keys(const struct tt_mixture *mixture, bool width, struct tt_gguf_keys *keys);
/* Those of the choice of tt_mixture_parse_grouped, and how many of the first layers have no experts. */
void tt_mixture_gguf_grouped_keys(const struct tt_model_facts *facts, const struct tt_mixture *mixture,
                                  struct tt_gguf_keys *keys);
/* add_keys of a struct tt_dense_mixture: those of dense.h and of tt_mixture_gguf_keys, with the width. */
void tt_dense_mixture_gguf_keys(const struct tt_model_facts *facts, struct tt_gguf_keys *keys);
/* A layer without experts behind the first one with some, or before it unless `leading`; NULL: none. */
const char *tt_mixture_cannot_layers(const struct tt_model_facts *facts, bool leading);
/* cannot of a struct tt_dense_mixture whose architecture always divides the weights of a token's experts by their sum,
 * or never does, and has experts in all layers. */
const char *tt_dense_mixture_cannot(const struct tt_model_facts *facts, bool normalizes);

/* Names inside a layer of most families, and their places in folders with a tensor for each linear of an expert. */
#define TT_EXPERTS_NAMES                                                                                     \
    .module = "mlp", .router = "mlp.gate", .experts = "mlp.experts", .activation = "mlp.experts.act_fn",     \
    .gate_up = "gate_up_proj", .down = "down_proj", .norm = "post_attention_layernorm"
#define TT_SHARED_NAMES(path)                                                                                \
    .shared = path, .shared_gate = path ".gate_proj", .shared_up = path ".up_proj",                          \
    .shared_down = path ".down_proj", .shared_activation = path ".act_fn"
#define TT_SHARED_GGUF_NAMES(path)                                                                           \
    {path ".gate_proj", "ffn_gate_shexp", false}, {path ".up_proj", "ffn_up_shexp", false},                  \
    {                                                                                                        \
        path ".down_proj", "ffn_down_shexp", false                                                           \
    }
extern const struct tt_experts_names tt_mixture_names;
/* An expert that every token has: behind a gate (Qwen2-MoE), or without one and with a bias of the choice (DeepSeek
 * V3). */
extern const struct tt_experts_names tt_mixture_gated_names, tt_mixture_grouped_names;
#define TT_EXPERTS_SOURCES                                                                                   \
    {.param = "layers.#.mlp.experts.gate_up_proj",                                                           \
     .parts = {{.tensor = "layers.#.mlp.experts.*.gate_proj.weight"},                                        \
               {.tensor = "layers.#.mlp.experts.*.up_proj.weight"}}},                                        \
    {                                                                                                        \
        .param = "layers.#.mlp.experts.down_proj", .parts = {                                                \
            {.tensor = "layers.#.mlp.experts.*.down_proj.weight"}                                            \
        }                                                                                                    \
    }
extern const struct tt_param_source tt_mixture_sources[]; /* these and the end */
/* Those of Mixtral's first versions, which files still have. */
#define TT_MIXTRAL_SOURCES                                                                                   \
    {.param = "layers.#.mlp.gate.weight", .parts = {{.tensor = "layers.#.block_sparse_moe.gate.weight"}}},   \
        {.param = "layers.#.mlp.experts.gate_up_proj",                                                       \
         .parts = {{.tensor = "layers.#.block_sparse_moe.experts.*.w1.weight"},                              \
                   {.tensor = "layers.#.block_sparse_moe.experts.*.w3.weight"}}},                            \
    {                                                                                                        \
        .param = "layers.#.mlp.experts.down_proj", .parts = {                                                \
            {.tensor = "layers.#.block_sparse_moe.experts.*.w2.weight"}                                      \
        }                                                                                                    \
    }

#endif
