#include "model/dense.h"

const struct tt_mlp_names tt_dense_mlp_names = {TT_MLP_NAMES, .norm = "post_attention_layernorm"};
static const struct tt_attention_names pre_attention_names = {TT_ATTENTION_NAMES};
static const struct tt_attention_names post_attention_names = {
    TT_ATTENTION_LINEARS, .q_norm = "self_attn.q_norm", .k_norm = "self_attn.k_norm",
    .post_norm = "post_attention_layernorm"};
static const struct tt_mlp_names post_mlp_names = {TT_MLP_NAMES, .post_norm = "post_feedforward_layernorm"};

const struct tt_gguf_name tt_dense_post_gguf_names[] = {
    {"post_attention_layernorm", "post_attention_norm", false},
    {"post_feedforward_layernorm", "post_ffw_norm", false},
    {NULL, NULL, false},
};

tt_status tt_dense_parse(const struct tt_json *json, const struct tt_decoder_defaults *defaults,
                         double norm_eps, const struct tt_rope_rules *rules, struct tt_model_facts *facts)
{
    struct tt_dense *dense = TT_FAMILY_OWN(facts, struct tt_dense);
    TT_TRY(tt_family_parse_shape(json, defaults, facts, &dense->shape));
    TT_TRY(tt_family_parse_activation(json, "hidden_act", &dense->shape.activation));
    if (tt_json_get(json->root, "rms_norm_eps") == NULL) dense->shape.norm_eps = norm_eps;
    struct tt_rope_rules whole = {.theta = defaults->rope_theta};
    if (rules != NULL) whole = *rules;
    whole.head_dim = dense->shape.head_dim;
    facts->rope_count = 1;
    return tt_family_parse_rope(json, &whole, facts, &facts->ropes[0]);
}

tt_status tt_dense_parse_windows(const struct tt_json *json, int64_t pattern, struct tt_model_facts *facts)
{
    bool sliding[TT_MODEL_LAYERS_MAX];
    int64_t window = 4096;
    const struct tt_json_value *value = tt_json_get(json->root, "sliding_window");
    if (value != NULL && tt_json_is_null(value)) return TT_OK;
    TT_TRY(tt_json_opt_int(json, json->root, "sliding_window", &window));
    TT_TRY(tt_family_check_range(json, "sliding_window", window, 1, INT32_MAX));
    for (int64_t i = 0; i < facts->num_hidden_layers; i++)
        sliding[i] = pattern == 0 || (i + 1) % pattern != 0;
    TT_TRY(tt_family_parse_layer_types(json, facts, sliding));
    for (int64_t i = 0; i < facts->num_hidden_layers; i++) facts->layers[i].window = sliding[i] ? window : 0;
    return TT_OK;
}

void tt_dense_build(const struct tt_model_facts *facts, struct tt_builder *builder,
                    const struct tt_attention_names *attention_names, const struct tt_mlp_names *mlp_names)
{
    tt_dense_build_with(facts, builder, attention_names, mlp_names, &(struct tt_dense_halves){NULL, NULL});
}

void tt_dense_build_with(const struct tt_model_facts *facts, struct tt_builder *builder,
                         const struct tt_attention_names *attention_names,
                         const struct tt_mlp_names *mlp_names, const struct tt_dense_halves *halves)
{
    const struct tt_dense *dense = TT_FAMILY_OWN_CONST(facts, struct tt_dense);
    const struct tt_decoder_shape *shape = &dense->shape;
    struct tt_attention_spec attention = {.names = attention_names,
                                          .heads = shape->heads,
                                          .norm_eps = shape->norm_eps,
                                          .post_norm_eps = dense->post_norm_eps,
                                          .norm_offset = dense->norm_offset,
                                          .norm_centers = dense->norm_centers,
                                          .scale = dense->score_scale,
                                          .bias = dense->attention_bias,
                                          .output_bias = dense->output_bias,
                                          .qk_norm = dense->qk_norm,
                                          .qk_norm_bare = dense->qk_norm_bare,
                                          .qk_norm_kind = dense->qk_norm_kind,
                                          .pairs = dense->pairs,
                                          .query_rope = dense->query_rope,
                                          .residual_scale = dense->residual_scale};
    struct tt_mlp_spec mlp = {.names = mlp_names,
                              .ffn = shape->ffn,
                              .norm_eps = shape->norm_eps,
                              .post_norm_eps = dense->post_norm_eps,
                              .norm_offset = dense->norm_offset,
                              .bias = dense->mlp_bias,
                              .bypassed = halves->experts != NULL && halves->experts->shared_bypassed,
                              .beside = dense->beside,
                              .residual_scale = dense->residual_scale,
                              .activation = shape->activation};
    tt_build_decoder(
        builder, facts,
        &(struct tt_decoder_spec){.attention = &attention,
                                  .mlp = &mlp,
                                  .recurrence = halves->recurrence,
                                  .experts = halves->experts,
                                  .embedding_scale = dense->embedding_scale != 0 ? dense->embedding_scale : 1,
                                  .embedding_norm_eps = dense->embedding_norm_eps,
                                  .logit_scale = dense->logit_scale,
                                  .logit_cap = dense->logit_cap,
                                  .norm = {.eps = shape->norm_eps, .centers = dense->norm_centers}});
}

void tt_dense_build_pre(const struct tt_model_facts *facts, struct tt_builder *builder)
{
    tt_dense_build(facts, builder, &pre_attention_names, &tt_dense_mlp_names);
}

void tt_dense_build_post(const struct tt_model_facts *facts, struct tt_builder *builder)
{
    tt_dense_build(facts, builder, &post_attention_names, &post_mlp_names);
}

void tt_dense_gguf_keys(const struct tt_model_facts *facts, struct tt_gguf_keys *keys)
{
    tt_gguf_add_decoder(facts, &TT_FAMILY_OWN_CONST(facts, struct tt_dense)->shape, keys);
}

const char *tt_dense_cannot(const struct tt_model_facts *facts)
{
    const struct tt_dense *dense = TT_FAMILY_OWN_CONST(facts, struct tt_dense);
    if (dense->shape.activation != TT_ACTIVATION_SILU)
        return "an activation other than silu of this model type";
    return dense->output_bias || dense->mlp_bias ? "biases of o_proj and the MLP of this model type" : NULL;
}

const char *tt_dense_cannot_windows(const struct tt_model_facts *facts, int64_t period)
{
    bool windows = false;
    for (int64_t i = 0; i < facts->num_hidden_layers; i++) windows |= facts->layers[i].window > 0;
    for (int64_t i = 0; i < facts->num_hidden_layers && windows; i++)
        if ((facts->layers[i].window > 0) != ((i + 1) % period != 0))
            return "layers without a window other than every fourth";
    return NULL;
}
