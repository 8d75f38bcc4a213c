/* OLMoE (OlmoeConfig): q and k are normed over all heads, and a mixture of experts is in every layer. */
#include "model/mixture.h"

static tt_status parse(const struct tt_json *json, struct tt_model_facts *facts)
{
    struct tt_dense_mixture *own = TT_FAMILY_OWN(facts, struct tt_dense_mixture);
    struct tt_mixture *mixture = &own->mixture;
    struct tt_decoder_defaults defaults = {.vocab = 50304, .heads = 16, .positions = 4096};
    struct tt_mixture_defaults experts = {
        .count = 64, .slots = 8, .ffn = 2048, .ffn_key = "intermediate_size"};
    const struct tt_json_value *clip = tt_json_get(json->root, "clip_qkv");
    TT_TRY(tt_dense_parse(json, &defaults, 1e-5, NULL, facts));
    TT_TRY(tt_mixture_parse(json, &experts, facts, mixture));
    TT_TRY(tt_mixture_parse_balance(json, 0.01, mixture, facts));
    own->dense.qk_norm = true;
    own->dense.qk_norm_kind = TT_QK_NORM_ALL;
    mixture->rule = (struct tt_route_rule){.score = TT_ROUTE_SOFTMAX, .rounds_weights = true};
    TT_TRY(tt_json_opt_bool(json, json->root, "norm_topk_prob", &mixture->rule.normalizes));
    TT_TRY(tt_json_opt_bool(json, json->root, "attention_bias", &own->dense.attention_bias));
    own->dense.output_bias = own->dense.attention_bias;
    if (clip == NULL || tt_json_is_null(clip)) return TT_OK;
    return tt_fail(TT_ERR_UNSUPPORTED, "%s: clip_qkv of an olmoe model is not supported; only null is",
                   json->origin);
}

static void build(const struct tt_model_facts *facts, struct tt_builder *builder)
{
    static const struct tt_attention_names attention = {TT_ATTENTION_NAMES};
    tt_mixture_build(facts, builder, &attention, &tt_mixture_names);
}

static void add_keys(const struct tt_model_facts *facts, struct tt_gguf_keys *keys)
{
    const struct tt_mixture *mixture = &TT_FAMILY_OWN_CONST(facts, struct tt_dense_mixture)->mixture;
    tt_dense_gguf_keys(facts, keys);
    tt_mixture_gguf_keys(mixture, false, keys);
    tt_gguf_add_u32(keys, "feed_forward_length", mixture->ffn);
}

static const char *cannot(const struct tt_model_facts *facts)
{
    const struct tt_dense *dense = TT_FAMILY_OWN_CONST(facts, struct tt_dense);
    if (facts->tie_word_embeddings) return "tied embeddings of this model type";
    if (dense->attention_bias) return "attention_bias of this model type";
    if (dense->shape.kv_heads != dense->shape.heads)
        return "fewer key heads than query heads of this model type";
    return tt_dense_mixture_cannot(facts, false);
}

static const struct tt_gguf_family gguf = {.name = "olmoe", .add_keys = add_keys, .cannot = cannot};

const struct tt_model_family tt_family_olmoe = {
    .model_type = "olmoe",
    .architecture = "OlmoeForCausalLM",
    .gguf = &gguf,
    .older_experts = &tt_mixture_older,
    .sources = tt_mixture_sources,
    .parse = parse,
    .build = build,
};
