/* The text model of Muse Glimmer (MuseGlimmerTextConfig): normed embeddings, q and k normed without weights and q
 * enlarged, a gate on the output of attention, four norms a layer, layers without a rotation, capped logits. */
#include <inttypes.h>
#include <math.h>

#include "model/dense.h"

static const struct tt_attention_names attention_names = {
    TT_ATTENTION_LINEARS, .q_norm = "self_attn.qk_norm", .gate = "self_attn.gate_proj",
    .norm = "input_layernorm", .post_norm = "post_attention_layernorm"};
static const struct tt_mlp_names mlp_names = {TT_MLP_NAMES, .norm = "pre_feedforward_layernorm",
                                              .post_norm = "post_feedforward_layernorm"};

static tt_status read_positive(const struct tt_json *json, const char *key, double missing, double *value)
{
    *value = missing;
    TT_TRY(tt_json_opt_double(json, json->root, key, value));
    return tt_family_check_positive(json, key, *value, 1e6);
}

/* Every fourth layer, counted from the last one. */
static bool is_fourth(const struct tt_model_facts *facts, int64_t layer)
{
    return (facts->num_hidden_layers - 1 - layer) % 4 == 0;
}

static tt_status parse_windows(const struct tt_json *json, struct tt_model_facts *facts)
{
    bool sliding[TT_MODEL_LAYERS_MAX];
    int64_t window = 2048;
    const struct tt_json_value *value = tt_json_get(json->root, "sliding_window");
    for (int64_t i = 0; i < facts->num_hidden_layers; i++) sliding[i] = !is_fourth(facts, i);
    TT_TRY(tt_family_parse_layer_types(json, facts, sliding));
    if (value != NULL && tt_json_is_null(value)) return TT_OK;
    TT_TRY(tt_json_opt_int(json, json->root, "sliding_window", &window));
    TT_TRY(tt_family_check_range(json, "sliding_window", window, 1, INT32_MAX));
    for (int64_t i = 0; i < facts->num_hidden_layers; i++) facts->layers[i].window = sliding[i] ? window : 0;
    return TT_OK;
}

/* layer_rope_theta: 0 where a layer does not rotate. The other values are not read: all rotate by rope_theta. */
static tt_status parse_rotating(const struct tt_json *json, struct tt_model_facts *facts)
{
    const struct tt_json_value *list = tt_json_get(json->root, "layer_rope_theta");
    bool given = list != NULL && !tt_json_is_null(list);
    if (given) TT_TRY(tt_json_array(json, json->root, "layer_rope_theta", &list));
    if (given && (int64_t)tt_json_count(list) != facts->num_hidden_layers)
        return tt_fail(TT_ERR_DATA, "%s: layer_rope_theta has %zu entries for %" PRId64 " layers",
                       json->origin, tt_json_count(list), facts->num_hidden_layers);
    for (int64_t i = 0; i < facts->num_hidden_layers; i++) {
        const struct tt_json_value *theta = given ? tt_json_at(list, (size_t)i) : NULL;
        if (given && !tt_json_is_number(theta))
            return tt_fail(TT_ERR_DATA, "%s: layer_rope_theta is not a list of numbers", json->origin);
        if (given ? tt_json_number(theta) == 0 : is_fourth(facts, i)) facts->layers[i].rope = -1;
    }
    return TT_OK;
}

static tt_status parse(const struct tt_json *json, struct tt_model_facts *facts)
{
    struct tt_dense *dense = TT_FAMILY_OWN(facts, struct tt_dense);
    struct tt_decoder_defaults defaults = {
        .vocab = 202048, .heads = 32, .kv_heads = 2, .head_dim = 128, .positions = 131072};
    double query_scale;
    TT_TRY(tt_dense_parse(json, &defaults, 1e-5, NULL, facts));
    TT_TRY(tt_family_parse_activation(json, "hidden_activation", &dense->shape.activation));
    TT_TRY(tt_json_opt_bool(json, json->root, "attention_bias", &dense->attention_bias));
    dense->output_bias = dense->attention_bias;
    dense->qk_norm = dense->qk_norm_bare = dense->norm_offset = true;
    dense->embedding_norm_eps = dense->shape.norm_eps;
    TT_TRY(read_positive(json, "post_norm_eps", 1e-8, &dense->post_norm_eps));
    TT_TRY(read_positive(json, "output_multiplier", 0.19611613513818404, &dense->logit_scale));
    TT_TRY(read_positive(json, "final_logit_softcapping", 20, &dense->logit_cap));
    TT_TRY(read_positive(json, "qk_scale_factor", 3.87, &query_scale));
    dense->score_scale = query_scale / sqrt((double)dense->shape.head_dim);
    TT_TRY(parse_windows(json, facts));
    return parse_rotating(json, facts);
}

static void build(const struct tt_model_facts *facts, struct tt_builder *builder)
{
    tt_dense_build(facts, builder, &attention_names, &mlp_names);
}

static const struct tt_gguf_name gguf_names[] = {
    {"self_attn.gate_proj", "attn_gate", false},
    {"post_attention_layernorm", "post_attention_norm", false},
    {"pre_feedforward_layernorm", "ffn_norm", false},
    {"post_feedforward_layernorm", "post_ffw_norm", false},
    {NULL, NULL, false},
};

/* Keys: src/models/muse-glimmer.cpp of llama.cpp, which has this post_norm_eps. */
static const double gguf_post_norm_eps = 1e-8;

static void add_keys(const struct tt_model_facts *facts, struct tt_gguf_keys *keys)
{
    const struct tt_dense *dense = TT_FAMILY_OWN_CONST(facts, struct tt_dense);
    tt_dense_gguf_keys(facts, keys);
    tt_gguf_add_f32(keys, "final_logit_softcapping", dense->logit_cap);
    tt_gguf_add_f32(keys, "logit_scale", dense->logit_scale);
    tt_gguf_add_windows(facts, keys);
}

/* Norms of q and k have weights there: the factor of q, and 1. */
static int constants(const struct tt_model_facts *facts, struct tt_gguf_constant list[TT_GGUF_CONSTANTS_MAX])
{
    const struct tt_dense *dense = TT_FAMILY_OWN_CONST(facts, struct tt_dense);
    int64_t columns = dense->shape.head_dim;
    float query_scale = (float)(dense->score_scale * sqrt((double)columns));
    list[0] = (struct tt_gguf_constant){.name = "attn_q_norm", .count = columns, .value = query_scale};
    list[1] = (struct tt_gguf_constant){.name = "attn_k_norm", .count = columns, .value = 1};
    return 2;
}

static const char *cannot(const struct tt_model_facts *facts)
{
    const struct tt_dense *dense = TT_FAMILY_OWN_CONST(facts, struct tt_dense);
    if (dense->attention_bias) return "attention_bias of this model type";
    if (dense->post_norm_eps != gguf_post_norm_eps) return "a post_norm_eps other than 1e-8";
    if (facts->tie_word_embeddings) return "tied embeddings of this model type";
    if (facts->ropes[0].type != TT_ROPE_DEFAULT) return "a scaled rotation of this model type";
    for (int64_t i = 0; i < facts->num_hidden_layers; i++)
        if ((facts->layers[i].window > 0) != (facts->layers[i].rope >= 0))
            return "layers of this model type that have a window and no rotation, or the reverse";
    return tt_dense_cannot(facts);
}

static const struct tt_gguf_family gguf = {.name = "muse-glimmer",
                                           .pairs = true,
                                           .windows = true,
                                           .names = gguf_names,
                                           .add_keys = add_keys,
                                           .constants = constants,
                                           .cannot = cannot};

const struct tt_model_family tt_family_muse_glimmer = {
    .model_type = "muse_glimmer_text",
    .architecture = "MuseGlimmerForConditionalGeneration",
    .gguf = &gguf,
    .parse = parse,
    .build = build,
};
