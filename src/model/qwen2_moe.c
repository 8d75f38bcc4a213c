/* Qwen2 and Qwen1.5 with experts (Qwen2MoeConfig): q, k and v have a bias unless qkv_bias says no, and a layer with
 * experts has one that every token goes through, whose output has a gate. */
#include "model/mixture.h"

static tt_status parse(const struct tt_json *json, struct tt_model_facts *facts)
{
    struct tt_dense_mixture *own = TT_FAMILY_OWN(facts, struct tt_dense_mixture);
    struct tt_mixture *mixture = &own->mixture;
    struct tt_decoder_defaults defaults = {.vocab = 151936, .heads = 16, .kv_heads = 16, .positions = 32768};
    struct tt_mixture_defaults experts = {
        .count = 60, .slots = 4, .ffn = 1408, .ffn_key = "moe_intermediate_size"};
    TT_TRY(tt_dense_parse(json, &defaults, 1e-6, NULL, facts));
    TT_TRY(tt_mixture_parse(json, &experts, facts, mixture));
    TT_TRY(tt_mixture_parse_dense_layers(json, facts));
    TT_TRY(tt_mixture_parse_balance(json, 0.001, mixture, facts));
    mixture->shared_ffn = 5632;
    own->dense.attention_bias = true;
    mixture->rule = (struct tt_route_rule){.score = TT_ROUTE_SOFTMAX, .rounds_weights = true};
    TT_TRY(tt_family_parse_size(json, "shared_expert_intermediate_size", 1 << 22, &mixture->shared_ffn));
    TT_TRY(tt_json_opt_bool(json, json->root, "norm_topk_prob", &mixture->rule.normalizes));
    TT_TRY(tt_json_opt_bool(json, json->root, "qkv_bias", &own->dense.attention_bias));
    return tt_family_parse_qwen_windows(json, 28, facts);
}

static void build(const struct tt_model_facts *facts, struct tt_builder *builder)
{
    static const struct tt_attention_names attention = {TT_ATTENTION_NAMES};
    tt_mixture_build(facts, builder, &attention, &tt_mixture_gated_names);
}

static const struct tt_gguf_name gguf_names[] = {TT_SHARED_GGUF_NAMES("mlp.shared_expert"),
                                                 {"mlp.shared_expert_gate", "ffn_gate_inp_shexp", false},
                                                 {NULL, NULL, false}};

static void add_keys(const struct tt_model_facts *facts, struct tt_gguf_keys *keys)
{
    tt_dense_mixture_gguf_keys(facts, keys);
    tt_gguf_add_u32(keys, "expert_shared_feed_forward_length",
                    TT_FAMILY_OWN_CONST(facts, struct tt_dense_mixture)->mixture.shared_ffn);
}

static const char *cannot(const struct tt_model_facts *facts)
{
    if (facts->tie_word_embeddings) return "tied embeddings of this model type";
    return tt_dense_mixture_cannot(facts, false);
}

static const struct tt_gguf_family gguf = {
    .name = "qwen2moe", .names = gguf_names, .add_keys = add_keys, .cannot = cannot};

const struct tt_model_family tt_family_qwen2_moe = {
    .model_type = "qwen2_moe",
    .architecture = "Qwen2MoeForCausalLM",
    .gguf = &gguf,
    .sources = tt_mixture_sources,
    .parse = parse,
    .build = build,
};
