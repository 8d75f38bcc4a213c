/* GLM-4 0414 without experts (Glm4Config): norms before and behind each half, gate and up in one linear, and the first
 * half of a head's columns rotated, neighbours together. */
#include "model/dense.h"

static const struct tt_attention_names attention_names = {TT_ATTENTION_NAMES,
                                                          .post_norm = "post_self_attn_layernorm"};
static const struct tt_mlp_names mlp_names = {
    .module = "mlp",
    .activation = "mlp.activation_fn",
    .norm = "post_attention_layernorm",
    .gate_up = "mlp.gate_up_proj",
    .down = "mlp.down_proj",
    .post_norm = "post_mlp_layernorm",
};

static tt_status parse(const struct tt_json *json, struct tt_model_facts *facts)
{
    struct tt_dense *dense = TT_FAMILY_OWN(facts, struct tt_dense);
    struct tt_decoder_defaults defaults = {.kv_heads = 2, .head_dim = 128, .positions = 131072};
    TT_TRY(tt_dense_parse(json, &defaults, 1.5625e-7, &(struct tt_rope_rules){.partial = 0.5}, facts));
    dense->pairs = true;
    dense->attention_bias = true;
    return tt_json_opt_bool(json, json->root, "attention_bias", &dense->attention_bias);
}

static void build(const struct tt_model_facts *facts, struct tt_builder *builder)
{
    tt_dense_build(facts, builder, &attention_names, &mlp_names);
}

static const struct tt_gguf_name gguf_names[] = {
    {"post_self_attn_layernorm", "post_attention_norm", false},
    {"mlp.gate_up_proj", "ffn_up", false},
    {"post_mlp_layernorm", "post_ffw_norm", false},
    {NULL, NULL, false},
};

static const struct tt_gguf_family gguf = {
    .name = "glm4", .names = gguf_names, .add_keys = tt_dense_gguf_keys, .cannot = tt_dense_cannot};

const struct tt_model_family tt_family_glm4 = {
    .model_type = "glm4",
    .architecture = "Glm4ForCausalLM",
    .gguf = &gguf,
    .parse = parse,
    .build = build,
};
