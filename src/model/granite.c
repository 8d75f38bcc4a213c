/* Granite 3 without experts (GraniteConfig): Llama with multipliers of the embeddings, the scores, each half's result
 * and, as a divisor, the logits. */
#include "model/dense.h"

static tt_status read_multiplier(const struct tt_json *json, const char *key, double *value)
{
    *value = 1;
    TT_TRY(tt_json_opt_double(json, json->root, key, value));
    return tt_family_check_positive(json, key, *value, 1e6);
}

tt_status tt_granite_parse(const struct tt_json *json, const struct tt_decoder_defaults *defaults,
                           struct tt_model_facts *facts)
{
    struct tt_dense *dense = TT_FAMILY_OWN(facts, struct tt_dense);
    double divisor;
    TT_TRY(tt_dense_parse(json, defaults, 1e-6, NULL, facts));
    TT_TRY(tt_json_opt_bool(json, json->root, "attention_bias", &dense->attention_bias));
    dense->output_bias = dense->attention_bias;
    TT_TRY(tt_json_opt_bool(json, json->root, "mlp_bias", &dense->mlp_bias));
    TT_TRY(read_multiplier(json, "embedding_multiplier", &dense->embedding_scale));
    TT_TRY(read_multiplier(json, "attention_multiplier", &dense->score_scale));
    TT_TRY(read_multiplier(json, "residual_multiplier", &dense->residual_scale));
    TT_TRY(read_multiplier(json, "logits_scaling", &divisor));
    dense->logit_scale = 1 / divisor;
    return TT_OK;
}

static tt_status parse(const struct tt_json *json, struct tt_model_facts *facts)
{
    return tt_granite_parse(json, &(struct tt_decoder_defaults){.positions = 2048}, facts);
}

void tt_granite_gguf_keys(const struct tt_model_facts *facts, struct tt_gguf_keys *keys)
{
    const struct tt_dense *dense = TT_FAMILY_OWN_CONST(facts, struct tt_dense);
    tt_dense_gguf_keys(facts, keys);
    tt_gguf_add_f32(keys, "embedding_scale", dense->embedding_scale);
    tt_gguf_add_f32(keys, "attention.scale", dense->score_scale);
    tt_gguf_add_f32(keys, "residual_scale", dense->residual_scale);
    tt_gguf_add_f32(keys, "logit_scale", 1 / dense->logit_scale);
}

static const struct tt_gguf_family gguf = {
    .name = "granite", .pairs = true, .add_keys = tt_granite_gguf_keys, .cannot = tt_dense_cannot};

const struct tt_model_family tt_family_granite = {
    .model_type = "granite",
    .architecture = "GraniteForCausalLM",
    .gguf = &gguf,
    .parse = parse,
    .build = tt_dense_build_pre,
};
