/* Hunyuan without experts (HunYuanDenseV1Config): Llama whose q and k are normed per head after they rotate. */
#include <math.h>

#include "model/dense.h"

static const struct tt_attention_names attention_names = {TT_ATTENTION_LINEARS, .norm = "input_layernorm",
                                                          .q_norm = "self_attn.query_layernorm",
                                                          .k_norm = "self_attn.key_layernorm"};

/* The type dynamic with an alpha stretches theta, whatever the length. */
static tt_status stretch(const struct tt_json *json, struct tt_rope *rope)
{
    static const char *const keys[] = {"rope_scaling", "rope_parameters"};
    double alpha = 0, columns = (double)rope->columns;
    for (int i = 0; i < 2; i++) {
        const struct tt_json_value *object = tt_json_get(json->root, keys[i]);
        if (tt_json_is_object(object)) TT_TRY(tt_json_opt_double(json, object, "alpha", &alpha));
    }
    if (alpha == 0 || rope->type != TT_ROPE_DYNAMIC) return TT_OK;
    TT_TRY(tt_family_check_positive(json, "alpha", alpha, 1e9));
    rope->theta *= pow(alpha, columns / (columns - 2));
    rope->type = TT_ROPE_DEFAULT;
    return TT_OK;
}

static tt_status parse(const struct tt_json *json, struct tt_model_facts *facts)
{
    struct tt_dense *dense = TT_FAMILY_OWN(facts, struct tt_dense);
    TT_TRY(tt_dense_parse(json, &(struct tt_decoder_defaults){.positions = 2048}, 1e-5, NULL, facts));
    dense->qk_norm = true;
    dense->qk_norm_kind = TT_QK_NORM_AFTER_ROPE;
    TT_TRY(tt_json_opt_bool(json, json->root, "attention_bias", &dense->attention_bias));
    dense->output_bias = dense->attention_bias;
    return stretch(json, &facts->ropes[0]);
}

static void build(const struct tt_model_facts *facts, struct tt_builder *builder)
{
    tt_dense_build(facts, builder, &attention_names, &tt_dense_mlp_names);
}

static const struct tt_gguf_name gguf_names[] = {
    {"self_attn.query_layernorm", "attn_q_norm", false},
    {"self_attn.key_layernorm", "attn_k_norm", false},
    {NULL, NULL, false},
};

static const char *cannot(const struct tt_model_facts *facts)
{
    const struct tt_dense *dense = TT_FAMILY_OWN_CONST(facts, struct tt_dense);
    return dense->attention_bias ? "attention_bias of this model type" : tt_dense_cannot(facts);
}

static const struct tt_gguf_family gguf = {
    .name = "hunyuan-dense", .names = gguf_names, .add_keys = tt_dense_gguf_keys, .cannot = cannot};

const struct tt_model_family tt_family_hunyuan_v1_dense = {
    .model_type = "hunyuan_v1_dense",
    .architecture = "HunYuanDenseV1ForCausalLM",
    .gguf = &gguf,
    .parse = parse,
    .build = build,
};
