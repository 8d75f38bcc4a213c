/* GLM-4.7-Flash (Glm4MoeLiteConfig): DeepSeek V3's attention and experts; mlp_layer_types says which layers have
 * experts. */
#include "model/mla.h"

static tt_status parse(const struct tt_json *json, struct tt_model_facts *facts)
{
    static const struct tt_mla_defaults defaults = {.decoder = {.vocab = 154880,
                                                                .heads = 20,
                                                                .kv_heads = 20,
                                                                .ffn = 10240,
                                                                .positions = 202752,
                                                                .norm_eps = 1e-5},
                                                    .q_rank = 768,
                                                    .kv_rank = 512,
                                                    .plain = 192,
                                                    .rotated = 64,
                                                    .value = 256};
    static const struct tt_mixture_defaults experts = {.count = 64,
                                                       .slots = 4,
                                                       .ffn = 1536,
                                                       .ffn_key = "moe_intermediate_size",
                                                       .bypassed = true,
                                                       .dense_layers = 1,
                                                       .shared = 1,
                                                       .groups = 1,
                                                       .kept_groups = 1,
                                                       .factor = 1.8};
    static const char *const kinds[] = {"dense", "sparse"};
    bool sparse[TT_MODEL_LAYERS_MAX];
    TT_TRY(tt_mla_parse(json, &defaults, facts));
    TT_TRY(tt_mixture_parse_grouped(json, &experts, facts, &TT_FAMILY_OWN(facts, struct tt_mla)->mixture));
    for (int64_t i = 0; i < facts->num_hidden_layers; i++) sparse[i] = i > 0;
    TT_TRY(tt_family_parse_layer_kinds(json, "mlp_layer_types", facts, kinds, sparse));
    for (int64_t i = 0; i < facts->num_hidden_layers; i++) facts->layers[i].experts = sparse[i];
    return TT_OK;
}

const struct tt_model_family tt_family_glm4_moe_lite = {
    .model_type = "glm4_moe_lite",
    .architecture = "Glm4MoeLiteForCausalLM",
    .gguf = &tt_mla_gguf,
    .older_experts = &tt_mixture_older,
    .sources = tt_mixture_sources,
    .predicts_further = true,
    .parse = parse,
    .build = tt_mla_build_grouped,
};
