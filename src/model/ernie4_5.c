/* ERNIE 4.5 without experts (Ernie4_5Config): Llama whose neighbouring columns rotate together. */
#include "model/dense.h"

static tt_status parse(const struct tt_json *json, struct tt_model_facts *facts)
{
    struct tt_dense *dense = TT_FAMILY_OWN(facts, struct tt_dense);
    struct tt_decoder_defaults defaults = {
        .kv_heads = 2, .head_dim = 128, .positions = 131072, .rope_theta = 5e5};
    if (tt_json_get(json->root, "tie_word_embeddings") == NULL) facts->tie_word_embeddings = true;
    TT_TRY(tt_dense_parse(json, &defaults, 1e-5, NULL, facts));
    dense->pairs = true;
    TT_TRY(tt_json_opt_bool(json, json->root, "use_bias", &dense->attention_bias));
    dense->output_bias = dense->mlp_bias = dense->attention_bias;
    return TT_OK;
}

static const struct tt_gguf_family gguf = {
    .name = "ernie4_5", .add_keys = tt_dense_gguf_keys, .cannot = tt_dense_cannot};

const struct tt_model_family tt_family_ernie4_5 = {
    .model_type = "ernie4_5",
    .architecture = "Ernie4_5ForCausalLM",
    .gguf = &gguf,
    .parse = parse,
    .build = tt_dense_build_pre,
};
