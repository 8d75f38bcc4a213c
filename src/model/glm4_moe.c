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

static const struct tt_gguf_name gguf_names[] = {
    {"post_attention_layernorm", "post_attention_norm", false},
    {"mlp.gate.e_score_correction_bias", "exp_probs_b.bias", false},
    TT_SHARED_GGUF_NAMES("mlp.shared_experts"),
    {NULL, NULL, false},
};

static void add_keys(const struct tt_model_facts *facts, struct tt_gguf_keys *keys)
{
    tt_dense_gguf_keys(facts, keys);
    tt_mixture_gguf_grouped_keys(facts, &TT_FAMILY_OWN_CONST(facts, struct tt_dense_mixture)->mixture, keys);
}

static const char *cannot(const struct tt_model_facts *facts)
{
    const char *layers = tt_mixture_cannot_layers(facts, true);
    return layers != NULL ? layers : tt_dense_cannot(facts);
}

static const struct tt_gguf_family gguf = {
    .name = "glm4moe", .names = gguf_names, .add_keys = add_keys, .cannot = cannot};

const struct tt_model_family tt_family_glm4_moe = {
    .model_type = "glm4_moe",
    .architecture = "Glm4MoeForCausalLM",
    .gguf = &gguf,
    .older_experts = &tt_mixture_older,
    .sources = tt_mixture_sources,
    .predicts_further = true,
    .parse = parse,
    .build = build,
};
