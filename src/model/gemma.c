#include "model/gemma.h"

#include <math.h>

const struct tt_attention_names tt_gemma_attention_names = {
    .module = "self_attn",
    .norm = "input_layernorm",
    .q = "self_attn.q_proj",
    .k = "self_attn.k_proj",
    .v = "self_attn.v_proj",
    .o = "self_attn.o_proj",
    .q_norm = "self_attn.q_norm",
    .k_norm = "self_attn.k_norm",
    .post_norm = "post_attention_layernorm",
};
const struct tt_mlp_names tt_gemma_mlp_names = {
    .module = "mlp",
    .activation = "mlp.act_fn",
    .norm = "pre_feedforward_layernorm",
    .gate = "mlp.gate_proj",
    .up = "mlp.up_proj",
    .down = "mlp.down_proj",
    .post_norm = "post_feedforward_layernorm",
};

const struct tt_gguf_name tt_gemma_gguf_names[] = {
    {"model.embed_tokens", "token_embd", false},
    {"model.norm", "output_norm", false},
    {"lm_head", "output", false},
    {"input_layernorm", "attn_norm", false},
    {"self_attn.q_proj", "attn_q", false},
    {"self_attn.k_proj", "attn_k", false},
    {"self_attn.v_proj", "attn_v", false},
    {"self_attn.o_proj", "attn_output", false},
    {"self_attn.q_norm", "attn_q_norm", false},
    {"self_attn.k_norm", "attn_k_norm", false},
    {"post_attention_layernorm", "post_attention_norm", false},
    {"pre_feedforward_layernorm", "ffn_norm", false},
    {"mlp.gate_proj", "ffn_gate", false},
    {"mlp.up_proj", "ffn_up", false},
    {"mlp.down_proj", "ffn_down", false},
    {"post_feedforward_layernorm", "post_ffw_norm", false},
    {NULL, NULL, false},
};

bool tt_gemma_gguf_has_scale(const struct tt_model_facts *facts, const struct tt_decoder_shape *shape,
                             int64_t large, double scale)
{
    bool is_large = facts->num_hidden_layers == large;
    double under_root = (double)(is_large ? facts->hidden_size / shape->heads : shape->head_dim);
    return fabs(scale * sqrt(under_root) - 1) < 1e-6;
}

bool tt_gemma_gguf_has_windows(const struct tt_model_facts *facts, int64_t period)
{
    for (int64_t i = 0; i < facts->num_hidden_layers; i++)
        if ((facts->layers[i].window > 0) != ((i + 1) % period != 0)) return false;
    return true;
}

const char *tt_gemma_cannot_activation(const struct tt_decoder_shape *shape)
{
    return shape->activation != TT_ACTIVATION_GELU_TANH
               ? "an activation other than GELU by tanh of this model type"
               : NULL;
}

tt_status tt_gemma_parse_cap(const struct tt_json *json, const char *key, double missing, double *cap)
{
    const struct tt_json_value *value = tt_json_get(json->root, key);
    bool none = value == NULL ? missing == 0 : tt_json_is_null(value);
    *cap = none ? 0 : missing;
    if (none) return TT_OK;
    TT_TRY(tt_json_opt_double(json, json->root, key, cap));
    return tt_family_check_positive(json, key, *cap, 1e6);
}

tt_status tt_gemma_parse(const struct tt_json *json, struct tt_decoder_shape *shape)
{
    bool bidirectional = false;
    shape->activation = TT_ACTIVATION_GELU_TANH;
    TT_TRY(tt_family_parse_activation(json, "hidden_activation", &shape->activation));
    TT_TRY(tt_json_opt_bool(json, json->root, "use_bidirectional_attention", &bidirectional));
    if (bidirectional)
        return tt_fail(TT_ERR_UNSUPPORTED, "%s: use_bidirectional_attention is not supported", json->origin);
    return TT_OK;
}
