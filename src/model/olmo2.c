/* OLMo 2 (Olmo2Config): norms behind the halves and none before them, and q and k normed over all heads at once. */
#include "model/olmo2.h"

tt_status tt_olmo2_parse(const struct tt_json *json, const struct tt_rope_rules *rules,
                         struct tt_model_facts *facts)
{
    struct tt_dense *dense = TT_FAMILY_OWN(facts, struct tt_dense);
    TT_TRY(tt_dense_parse(json, &(struct tt_decoder_defaults){.positions = 2048}, 1e-5, rules, facts));
    dense->qk_norm = true;
    dense->qk_norm_kind = TT_QK_NORM_ALL;
    TT_TRY(tt_json_opt_bool(json, json->root, "attention_bias", &dense->attention_bias));
    dense->output_bias = dense->attention_bias;
    return TT_OK;
}

static tt_status parse(const struct tt_json *json, struct tt_model_facts *facts)
{
    return tt_olmo2_parse(json, NULL, facts);
}

const char *tt_olmo2_cannot(const struct tt_model_facts *facts)
{
    const struct tt_dense *dense = TT_FAMILY_OWN_CONST(facts, struct tt_dense);
    return dense->attention_bias ? "attention_bias of this model type" : tt_dense_cannot(facts);
}

static const struct tt_gguf_family gguf = {.name = "olmo2",
                                           .names = tt_dense_post_gguf_names,
                                           .add_keys = tt_dense_gguf_keys,
                                           .cannot = tt_olmo2_cannot};

const struct tt_model_family tt_family_olmo2 = {
    .model_type = "olmo2",
    .architecture = "Olmo2ForCausalLM",
    .gguf = &gguf,
    .parse = parse,
    .build = tt_dense_build_post,
};
