/* Seed-OSS (SeedOssConfig): Llama with biases of q, k and v. */
#include "base/log.h"
#include "model/dense.h"

static tt_status parse(const struct tt_json *json, struct tt_model_facts *facts)
{
    struct tt_dense *dense = TT_FAMILY_OWN(facts, struct tt_dense);
    struct tt_decoder_defaults defaults = {.kv_heads = 8, .head_dim = 128, .positions = 524288};
    double dropout = 0.1;
    TT_TRY(tt_dense_parse(json, &defaults, 1e-6, NULL, facts));
    dense->attention_bias = true;
    TT_TRY(tt_json_opt_bool(json, json->root, "attention_bias", &dense->attention_bias));
    TT_TRY(tt_json_opt_bool(json, json->root, "attention_out_bias", &dense->output_bias));
    TT_TRY(tt_json_opt_bool(json, json->root, "mlp_bias", &dense->mlp_bias));
    TT_TRY(tt_json_opt_double(json, json->root, "residual_dropout", &dropout));
    if (dropout != 0) tt_warn("%s: residual_dropout %g is not applied in training", json->origin, dropout);
    return TT_OK;
}

static const struct tt_gguf_name gguf_names[] = {
    {"post_attention_layernorm", "post_attention_norm", false},
    {NULL, NULL, false},
};

static const struct tt_gguf_family gguf = {
    .name = "seed_oss", .names = gguf_names, .add_keys = tt_dense_gguf_keys, .cannot = tt_dense_cannot};

const struct tt_model_family tt_family_seed_oss = {
    .model_type = "seed_oss",
    .architecture = "SeedOssForCausalLM",
    .gguf = &gguf,
    .parse = parse,
    .build = tt_dense_build_pre,
};
