/* Cohere 2, Command R7B and Command A (Cohere2Config): attention and MLP side by side on one layer norm, neighbouring
 * columns rotated in the layers with a window and none in the others, logits with a multiplier. */
#include "model/dense.h"

enum { PERIOD = 4 };

static const struct tt_mlp_names mlp_names = {TT_MLP_NAMES};

static tt_status parse(const struct tt_json *json, struct tt_model_facts *facts)
{
    struct tt_dense *dense = TT_FAMILY_OWN(facts, struct tt_dense);
    int64_t pattern = PERIOD;
    if (tt_json_get(json->root, "tie_word_embeddings") == NULL) facts->tie_word_embeddings = true;
    TT_TRY(tt_dense_parse(json, &(struct tt_decoder_defaults){.positions = 8192}, 1e-5, NULL, facts));
    dense->pairs = dense->beside = dense->norm_centers = true;
    dense->shape.norm_eps = 1e-5;
    TT_TRY(tt_json_opt_double(json, json->root, "layer_norm_eps", &dense->shape.norm_eps));
    TT_TRY(tt_family_check_positive(json, "layer_norm_eps", dense->shape.norm_eps, 1));
    dense->logit_scale = 0.0625;
    TT_TRY(tt_json_opt_double(json, json->root, "logit_scale", &dense->logit_scale));
    TT_TRY(tt_family_check_positive(json, "logit_scale", dense->logit_scale, 1e6));
    TT_TRY(tt_json_opt_bool(json, json->root, "attention_bias", &dense->attention_bias));
    dense->output_bias = dense->attention_bias;
    TT_TRY(tt_json_opt_int(json, json->root, "sliding_window_pattern", &pattern));
    TT_TRY(tt_family_check_range(json, "sliding_window_pattern", pattern, 1, INT32_MAX));
    TT_TRY(tt_dense_parse_windows(json, pattern, facts));
    for (int64_t i = 0; i < facts->num_hidden_layers; i++)
        if (facts->layers[i].window == 0) facts->layers[i].rope = -1;
    return TT_OK;
}

static void build(const struct tt_model_facts *facts, struct tt_builder *builder)
{
    static const struct tt_attention_names attention_names = {TT_ATTENTION_NAMES};
    tt_dense_build(facts, builder, &attention_names, &mlp_names);
}

static void add_keys(const struct tt_model_facts *facts, struct tt_gguf_keys *keys)
{
    const struct tt_dense *dense = TT_FAMILY_OWN_CONST(facts, struct tt_dense);
    tt_dense_gguf_keys(facts, keys);
    tt_gguf_add_f32(keys, "attention.layer_norm_epsilon", dense->shape.norm_eps);
    tt_gguf_add_f32(keys, "logit_scale", dense->logit_scale);
    tt_gguf_add_u32(keys, "attention.sliding_window", facts->layers[0].window);
}

static const char *cannot(const struct tt_model_facts *facts)
{
    const char *windows = tt_dense_cannot_windows(facts, PERIOD);
    const struct tt_dense *dense = TT_FAMILY_OWN_CONST(facts, struct tt_dense);
    if (dense->attention_bias) return "attention_bias of this model type";
    if (facts->layers[0].window == 0) return "layers without a window other than every fourth";
    return windows != NULL ? windows : tt_dense_cannot(facts);
}

static const struct tt_gguf_family gguf = {
    .name = "cohere2", .windows = true, .add_keys = add_keys, .cannot = cannot};

const struct tt_model_family tt_family_cohere2 = {
    .model_type = "cohere2",
    .architecture = "Cohere2ForCausalLM",
    .gguf = &gguf,
    .parse = parse,
    .build = build,
};
