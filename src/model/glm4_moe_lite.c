/* GLM-4.7-Flash (Glm4MoeLiteConfig) with dense layers alone: DeepSeek V3's attention. */
#include "model/mla.h"

/* mlp_layer_types; without it all layers but the first have experts. */
static tt_status check_layers(const struct tt_json *json, const struct tt_model_facts *facts)
{
    static const char *const names[] = {"dense", "sparse"};
    bool sparse[TT_MODEL_LAYERS_MAX];
    for (int64_t i = 0; i < facts->num_hidden_layers; i++) sparse[i] = i > 0;
    TT_TRY(tt_family_parse_layer_kinds(json, "mlp_layer_types", facts, names, sparse));
    for (int64_t i = 0; i < facts->num_hidden_layers; i++)
        if (sparse[i]) return tt_mla_refuse_experts(json, i);
    return TT_OK;
}

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
    TT_TRY(tt_mla_parse(json, &defaults, facts));
    return check_layers(json, facts);
}

const struct tt_model_family tt_family_glm4_moe_lite = {
    .model_type = "glm4_moe_lite",
    .architecture = "Glm4MoeLiteForCausalLM",
    .parse = parse,
    .build = tt_mla_build,
};
