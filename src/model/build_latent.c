/* Attention whose heads are made of latents. */
#include "model/builder_impl.h"

void tt_build_latent_attention(struct tt_builder *builder, const struct tt_latent_spec *spec)
{
    const struct tt_model_facts *model = &builder->model->facts;
    const struct tt_layer_facts *facts = &model->layers[builder->layer];
    const struct tt_latent_names *names = spec->names;
    struct tt_self_attention *attention = tt_builder_half(builder, &tt_attention_half, 0, sizeof *attention);
    struct tt_latent *latent = tt_builder_take(builder, sizeof *latent);
    if (attention == NULL || latent == NULL) return;
    int64_t dim = model->hidden_size, heads = spec->heads, q_out = heads * (spec->plain + spec->rotated);
    bool has_q = spec->q_rank > 0;
    const struct tt_norm_spec norm = {.path = names->norm, .eps = spec->norm_eps},
                              q_norm = {.path = has_q ? names->q_norm : NULL, .eps = spec->latent_eps},
                              kv_norm = {.path = names->kv_norm, .eps = spec->latent_eps};
    const struct tt_linear_spec stream[] = {
        {.path = has_q ? NULL : names->q, .out = q_out, .reach = TT_REACH_SCORES},
        {.path = has_q ? names->q_latent : NULL,
         .out = spec->q_rank,
         .bias = spec->bias,
         .reach = TT_REACH_SCORES,
         .bias_reach = TT_REACH_SCORES},
        {.path = names->kv_latent, .out = spec->kv_rank + spec->rotated, .bias = spec->bias},
    };
    const struct tt_linear_spec q = {
        .path = has_q ? names->q_heads : NULL, .out = q_out, .reach = TT_REACH_SCORES};
    *latent = (struct tt_latent){.q_columns = has_q ? spec->q_rank : q_out,
                                 .kv_columns = spec->kv_rank,
                                 .plain = spec->plain,
                                 .rotated = spec->rotated,
                                 .value = spec->value,
                                 .rope = facts->rope,
                                 .temperature = spec->temperature,
                                 .original_positions = spec->original_positions};
    *attention = (struct tt_self_attention){.latent = latent,
                                            .heads = heads,
                                            .kv_heads = facts->kv_heads,
                                            .head_dim = facts->head_dim,
                                            .window = facts->window,
                                            .rope = -1,
                                            .query_rope = -1,
                                            .pairs = spec->pairs,
                                            .scale = spec->scale,
                                            .layer = tt_model_cache_layer(model, builder->layer)};
    tt_build_module(builder, names->module);
    tt_build_norm(builder, &norm, dim, TT_REACH_ALWAYS, &attention->norm);
    tt_build_linears(builder, stream, 3, dim, &attention->qkv);
    tt_build_norm(builder, &q_norm, spec->q_rank, TT_REACH_SCORES, &latent->q_norm);
    tt_build_linears(builder, &q, 1, spec->q_rank, &latent->q);
    tt_build_norm(builder, &kv_norm, spec->kv_rank, TT_REACH_ALWAYS, &latent->kv_norm);
    tt_build_linear(builder, names->kv_heads, spec->kv_rank, heads * (spec->plain + spec->value), false,
                    &latent->kv);
    tt_build_linear(builder, names->o, heads * spec->value, dim, spec->bias, &attention->o);
}
