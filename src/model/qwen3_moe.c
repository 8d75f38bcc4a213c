/* Qwen3 with experts (Qwen3MoeConfig): Qwen3's attention, and a mixture of experts in all layers but those of
 * mlp_only_layers and decoder_sparse_step. */
#include "model/mixture.h"

static tt_status parse(const struct tt_json *json, struct tt_model_facts *facts)
{
    struct tt_dense_mixture *own = TT_FAMILY_OWN(facts, struct tt_dense_mixture);
    struct tt_mixture *mixture = &own->mixture;
    struct tt_decoder_defaults defaults = {.vocab = 151936, .heads = 32, .kv_heads = 4, .positions = 32768};
    bool windows = false;
    struct tt_mixture_defaults experts = {
        .count = 128, .slots = 8, .ffn = 768, .ffn_key = "moe_intermediate_size", .bypassed = true};
    TT_TRY(tt_dense_parse(json, &defaults, 1e-6, NULL, facts));
    TT_TRY(tt_mixture_parse(json, &experts, facts, mixture));
    TT_TRY(tt_mixture_parse_dense_layers(json, facts));
    TT_TRY(tt_mixture_parse_balance(json, 0.001, mixture, facts));
    own->dense.qk_norm = true;
    mixture->rule = (struct tt_route_rule){.score = TT_ROUTE_SOFTMAX, .rounds_weights = true};
    TT_TRY(tt_json_opt_bool(json, json->root, "norm_topk_prob", &mixture->rule.normalizes));
    TT_TRY(tt_json_opt_bool(json, json->root, "attention_bias", &own->dense.attention_bias));
    own->dense.output_bias = own->dense.attention_bias;
    TT_TRY(tt_json_opt_bool(json, json->root, "use_sliding_window", &windows));
    return windows ? tt_dense_parse_windows(json, 0, facts) : TT_OK;
}

static void build(const struct tt_model_facts *facts, struct tt_builder *builder)
{
    static const struct tt_attention_names attention = {TT_ATTENTION_NAMES};
    tt_mixture_build(facts, builder, &attention, &tt_mixture_names);
}

static const char *cannot(const struct tt_model_facts *facts)
{
    return tt_dense_mixture_cannot(facts, true);
}

static const struct tt_gguf_family gguf = {
    .name = "qwen3moe", .add_keys = tt_dense_mixture_gguf_keys, .cannot = cannot};

const struct tt_model_family tt_family_qwen3_moe = {
    .model_type = "qwen3_moe",
    .architecture = "Qwen3MoeForCausalLM",
    .gguf = &gguf,
    .older_experts = &tt_mixture_older,
    .sources = tt_mixture_sources,
    .parse = parse,
    .build = build,
};
