#include "model/mla.h"

#include <inttypes.h>
#include <math.h>

#include "backend/ops/attention.h"

static const struct tt_latent_names names = {.module = "self_attn",
                                             .q = "self_attn.q_proj",
                                             .q_latent = "self_attn.q_a_proj",
                                             .q_norm = "self_attn.q_a_layernorm",
                                             .q_heads = "self_attn.q_b_proj",
                                             .kv_latent = "self_attn.kv_a_proj_with_mqa",
                                             .kv_norm = "self_attn.kv_a_layernorm",
                                             .kv_heads = "self_attn.kv_b_proj",
                                             .o = "self_attn.o_proj",
                                             .norm = "input_layernorm"};

const double tt_mla_latent_eps = 1e-6;

static bool has(const struct tt_json *json, const char *key)
{
    const struct tt_json_value *value = tt_json_get(json->root, key);
    return value != NULL && !tt_json_is_null(value);
}

/* A missing rank of q's latent is the default's, null means none. */
static tt_status read_widths(const struct tt_json *json, const struct tt_mla_defaults *defaults,
                             struct tt_mla *mla)
{
    mla->kv_rank = defaults->kv_rank;
    mla->plain = defaults->plain;
    mla->rotated = defaults->rotated;
    mla->value = defaults->value;
    mla->q_rank = tt_json_get(json->root, "q_lora_rank") == NULL ? defaults->q_rank : 0;
    if (has(json, "q_lora_rank")) TT_TRY(tt_family_parse_size(json, "q_lora_rank", 1 << 20, &mla->q_rank));
    TT_TRY(tt_family_parse_size(json, "kv_lora_rank", 1 << 20, &mla->kv_rank));
    TT_TRY(tt_family_parse_size(json, "qk_nope_head_dim", TT_ATTENTION_HEAD_DIM_MAX, &mla->plain));
    TT_TRY(tt_family_parse_size(json, "qk_rope_head_dim", TT_ATTENTION_HEAD_DIM_MAX, &mla->rotated));
    TT_TRY(tt_family_parse_size(json, "v_head_dim", TT_ATTENTION_HEAD_DIM_MAX, &mla->value));
    TT_TRY(tt_family_check_range(json, "qk_nope_head_dim + qk_rope_head_dim", mla->plain + mla->rotated, 1,
                                 TT_ATTENTION_HEAD_DIM_MAX));
    if (mla->rotated % 2 == 0) return TT_OK;
    return tt_fail(TT_ERR_DATA,
                   "%s: qk_rope_head_dim is %" PRId64 "; rotary positions need an even number of columns",
                   json->origin, mla->rotated);
}

static double log_scale(double factor, double mscale)
{
    return factor <= 1 ? 1 : 0.1 * mscale * log(factor) + 1;
}

/* Scores are scaled by 1 / sqrt(E), and where the rotation is scaled by the square of YaRN's factor for all columns
 * (mscale_all_dim) too. */
static tt_status read_scale(const struct tt_json *json, const struct tt_rope *rope, double mscale_all,
                            struct tt_mla *mla)
{
    static const char *const keys[] = {"rope_scaling", "rope_parameters"};
    for (int i = 0; i < 2; i++) {
        const struct tt_json_value *object = tt_json_get(json->root, keys[i]);
        if (!tt_json_is_object(object)) continue;
        TT_TRY(tt_json_opt_double(json, object, "mscale_all_dim", &mscale_all));
        TT_TRY(tt_json_opt_double(json, object, "llama_4_scaling_beta", &mla->temperature));
    }
    double factor =
        rope->type != TT_ROPE_DEFAULT && mscale_all != 0 ? log_scale(rope->factor, mscale_all) : 1;
    mla->scale = factor * factor / sqrt((double)(mla->plain + mla->rotated));
    mla->mscale_all = rope->type != TT_ROPE_DEFAULT ? mscale_all : 0;
    if (mla->temperature == 0) return TT_OK;
    TT_TRY(tt_family_check_positive(json, "llama_4_scaling_beta", mla->temperature, 1e3));
    return tt_family_check_range(json, "original_max_position_embeddings", rope->original_max_position, 1,
                                 INT32_MAX);
}

static tt_status read_rotation(const struct tt_json *json, const struct tt_mla_defaults *defaults,
                               struct tt_model_facts *facts, struct tt_mla *mla)
{
    struct tt_rope *rope = &facts->ropes[0];
    double width = (double)(mla->plain + mla->rotated);
    const struct tt_rope_rules rules = {
        .head_dim = defaults->shares_columns ? mla->plain + mla->rotated : mla->rotated,
        .theta = defaults->decoder.rope_theta,
        .partial = defaults->shares_columns ? (double)mla->rotated / width : 0};
    double mscale_all = 0;
    facts->rope_count = 1;
    TT_TRY(tt_family_parse_rope(json, &rules, facts, rope));
    if (defaults->rope != NULL && !has(json, "rope_scaling") && !has(json, "rope_parameters")) {
        int64_t columns = rope->columns;
        *rope = *defaults->rope;
        rope->columns = columns;
        mla->temperature = rope->temperature;
        rope->temperature = 0;
        mscale_all = 1;
    }
    if (rope->columns != mla->rotated)
        return tt_fail(TT_ERR_DATA,
                       "%s: %" PRId64 " columns of a head rotate by partial_rotary_factor, and %" PRId64
                       " by qk_rope_head_dim",
                       json->origin, rope->columns, mla->rotated);
    return read_scale(json, rope, mscale_all, mla);
}

tt_status tt_mla_parse(const struct tt_json *json, const struct tt_mla_defaults *defaults,
                       struct tt_model_facts *facts)
{
    struct tt_mla *mla = TT_FAMILY_OWN(facts, struct tt_mla);
    struct tt_decoder_shape *shape = &mla->shape;
    struct tt_decoder_defaults decoder = defaults->decoder;
    /* hidden_size need not be a multiple of the heads */
    decoder.head_dim = defaults->plain + defaults->rotated;
    TT_TRY(tt_family_parse_shape(json, &decoder, facts, shape));
    TT_TRY(tt_family_parse_activation(json, "hidden_act", &shape->activation));
    TT_TRY(read_widths(json, defaults, mla));
    if (shape->kv_heads != shape->heads)
        return tt_fail(TT_ERR_UNSUPPORTED,
                       "%s: num_key_value_heads is %" PRId64
                       "; latents make k and v of as many heads as q, %" PRId64,
                       json->origin, shape->kv_heads, shape->heads);
    mla->pairs = true;
    TT_TRY(tt_json_opt_bool(json, json->root, "rope_interleave", &mla->pairs));
    TT_TRY(tt_json_opt_bool(json, json->root, "attention_bias", &mla->bias));
    int64_t keys = mla->plain + mla->rotated;
    shape->head_dim = keys > mla->value ? keys : mla->value;
    for (int64_t i = 0; i < facts->num_hidden_layers; i++) facts->layers[i].head_dim = shape->head_dim;
    return read_rotation(json, defaults, facts, mla);
}

void tt_mla_build(const struct tt_model_facts *facts, struct tt_builder *builder,
                  const struct tt_experts_names *experts_names)
{
    const struct tt_mla *mla = TT_FAMILY_OWN_CONST(facts, struct tt_mla);
    const struct tt_decoder_shape *shape = &mla->shape;
    const struct tt_latent_spec latent = {.names = &names,
                                          .heads = shape->heads,
                                          .q_rank = mla->q_rank,
                                          .kv_rank = mla->kv_rank,
                                          .plain = mla->plain,
                                          .rotated = mla->rotated,
                                          .value = mla->value,
                                          .norm_eps = shape->norm_eps,
                                          .latent_eps = tt_mla_latent_eps,
                                          .scale = mla->scale,
                                          .temperature = mla->temperature,
                                          .original_positions = facts->ropes[0].original_max_position,
                                          .pairs = mla->pairs,
                                          .bias = mla->bias};
    const struct tt_mlp_spec mlp = {.names = &tt_dense_mlp_names,
                                    .ffn = shape->ffn,
                                    .norm_eps = shape->norm_eps,
                                    .bypassed = mla->mixture.bypassed,
                                    .activation = shape->activation};
    const struct tt_experts_spec experts = tt_mixture_spec(&mla->mixture, shape, experts_names);
    tt_build_decoder(builder, facts,
                     &(struct tt_decoder_spec){.latent = &latent,
                                               .mlp = &mlp,
                                               .experts = &experts,
                                               .embedding_scale = 1,
                                               .norm = {.eps = shape->norm_eps}});
}

void tt_mla_build_grouped(const struct tt_model_facts *facts, struct tt_builder *builder)
{
    tt_mla_build(facts, builder, &tt_mixture_grouped_names);
}
