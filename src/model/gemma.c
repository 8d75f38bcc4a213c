#include "model/gemma.h"

#include <math.h>

static const struct tt_attention_names attention_names = {TT_ATTENTION_NAMES,
                                                          .post_norm = "post_attention_layernorm"};
static const struct tt_mlp_names mlp_names = {TT_MLP_NAMES, .norm = "pre_feedforward_layernorm",
                                              .post_norm = "post_feedforward_layernorm"};

const struct tt_gguf_name tt_gemma_gguf_names[] = {
    {"post_attention_layernorm", "post_attention_norm", false},
    {"pre_feedforward_layernorm", "ffn_norm", false},
    {"post_feedforward_layernorm", "post_ffw_norm", false},
    {NULL, NULL, false},
};

void tt_gemma_build(const struct tt_model_facts *facts, struct tt_builder *builder)
{
    const struct tt_gemma *gemma = TT_FAMILY_OWN_CONST(facts, struct tt_gemma);
    const struct tt_decoder_shape *shape = &gemma->shape;
    struct tt_attention_spec attention = {.names = &attention_names,
                                          .heads = shape->heads,
                                          .norm_eps = shape->norm_eps,
                                          .norm_offset = true,
                                          .scale = gemma->score_scale,
                                          .soft_cap = gemma->score_cap,
                                          .bias = gemma->attention_bias,
                                          .output_bias = gemma->attention_bias,
                                          .qk_norm = gemma->qk_norm};
    struct tt_mlp_spec mlp = {.names = &mlp_names,
                              .ffn = shape->ffn,
                              .norm_eps = shape->norm_eps,
                              .norm_offset = true,
                              .activation = shape->activation};
    tt_build_decoder(builder, facts,
                     &(struct tt_decoder_spec){.attention = &attention,
                                               .mlp = &mlp,
                                               .embedding_scale = sqrt((double)facts->hidden_size),
                                               .logit_cap = gemma->logit_cap,
                                               .norm = {.eps = shape->norm_eps, .offset = true}});
}

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

tt_status tt_gemma_parse(const struct tt_json *json, int64_t vocab, int64_t positions,
                         struct tt_model_facts *facts)
{
    struct tt_gemma *gemma = TT_FAMILY_OWN(facts, struct tt_gemma);
    struct tt_decoder_defaults defaults = {
        .vocab = vocab, .heads = 8, .kv_heads = 4, .head_dim = 256, .positions = positions};
    bool bidirectional = false;
    double scalar = 256;
    if (tt_json_get(json->root, "tie_word_embeddings") == NULL) facts->tie_word_embeddings = true;
    TT_TRY(tt_family_parse_shape(json, &defaults, facts, &gemma->shape));
    gemma->shape.activation = TT_ACTIVATION_GELU_TANH;
    TT_TRY(tt_family_parse_activation(json, "hidden_activation", &gemma->shape.activation));
    TT_TRY(tt_json_opt_bool(json, json->root, "use_bidirectional_attention", &bidirectional));
    if (bidirectional)
        return tt_fail(TT_ERR_UNSUPPORTED, "%s: use_bidirectional_attention is not supported", json->origin);
    TT_TRY(tt_json_opt_double(json, json->root, "query_pre_attn_scalar", &scalar));
    TT_TRY(tt_family_check_positive(json, "query_pre_attn_scalar", scalar, 1e6));
    gemma->score_scale = 1 / sqrt(scalar);
    return tt_json_opt_bool(json, json->root, "attention_bias", &gemma->attention_bias);
}
