/* GLM-4.5, 4.6 and 4.7 (Glm4MoeConfig): half of each head rotates, q and k are normed in the larger sizes, and experts
 * are those of DeepSeek V3. */
#include "model/mixture.h"

static tt_status parse(const struct tt_json *json, struct tt_model_facts *facts)
{
    struct tt_dense_mixture *own = TT_FAMILY_OWN(facts, struct tt_dense_mixture);
    const struct tt_decoder_defaults defaults = {
        .vocab = 151552, .heads = 96, .kv_heads = 8, .ffn = 10944, .positions = 131072};
    const struct tt_mixture_defaults experts = {.count = 128,
                                                .slots = 8,
                                                .ffn = 1408,
                                                .ffn_key = "moe_intermediate_size",
                                                .bypassed = true,
                                                .dense_layers = 1,
                                                .shared = 1,
                                                .groups = 1,
                                                .kept_groups = 1,
                                                .factor = 1};
    TT_TRY(tt_dense_parse(json, &defaults, 1e-5, &(struct tt_rope_rules){.partial = 0.5}, facts));
    TT_TRY(tt_json_opt_bool(json, json->root, "attention_bias", &own->dense.attention_bias));
    TT_TRY(tt_json_opt_bool(json, json->root, "use_qk_norm", &own->dense.qk_norm));
    return tt_mixture_parse_grouped(json, &experts, facts, &own->mixture);
}

static void build(const struct tt_model_facts *facts, struct tt_builder *builder)
{
    static const struct tt_attention_names attention = {TT_ATTENTION_NAMES};
    tt_mixture_build(facts, builder, &attention, &tt_mixture_grouped_names);
}

const struct tt_model_family tt_family_glm4_moe = {
    .model_type = "glm4_moe",
    .architecture = "Glm4MoeForCausalLM",
    .older_experts = &tt_mixture_older,
    .sources = tt_mixture_sources,
    .predicts_further = true,
    .parse = parse,
    .build = build,
};
