/* Gemma 4, text (Gemma4TextConfig): four norms a layer with plain weights, q, k and v normed, scores without a scale, a
 * factor of each layer's output; heads of another size in the layers without a window, whose values may be the outputs
 * of the keys' linear, and which rotate in proportion. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/gemma.h"
#include "model/mixture.h"

enum { ROPE_FULL, ROPE_SLIDING, ROPE_COUNT, HEAD_DIM_MAX = 512 };

struct gemma4 {
    struct tt_decoder_shape shape;
    double logit_cap;
    int64_t inputs, inputs_vocab; /* columns of embeddings for each layer, 0: none; rows of their table */
    bool wide;                    /* the MLP of layers that read keys of others has twice the width */
    bool attention_bias;
    struct tt_mixture mixture; /* count 0: no layer has experts */
};

static const struct tt_attention_names attention_names = {TT_ATTENTION_NAMES,
                                                          .post_norm = "post_attention_layernorm"};
static const struct tt_mlp_names mlp_names = {TT_MLP_NAMES, .norm = "pre_feedforward_layernorm",
                                              .post_norm = "post_feedforward_layernorm"};
/* The MLP and the experts beside it have norms of their own, and their sum has one more. */
static const struct tt_mlp_names mlp_beside_names = {TT_MLP_NAMES, .norm = "pre_feedforward_layernorm",
                                                     .post_norm = "post_feedforward_layernorm_1"};
static const struct tt_experts_names experts_names = {.module = "router",
                                                      .router = "router.proj",
                                                      .experts = "experts",
                                                      .activation = "experts.act_fn",
                                                      .gate_up = "gate_up_proj",
                                                      .down = "down_proj",
                                                      .norm = "pre_feedforward_layernorm_2",
                                                      .post_norm = "post_feedforward_layernorm_2",
                                                      .router_norm = "router.norm",
                                                      .router_module = "router",
                                                      .router_weight = "scale",
                                                      .weights_scale = "router.per_expert_scale",
                                                      .joint_norm = "post_feedforward_layernorm"};

static tt_status refuse(const struct tt_json *json, const char *key, const char *part)
{
    tt_status status =
        tt_fail(TT_ERR_UNSUPPORTED, "%s: %s of a gemma4_text model needs %s", json->origin, key, part);
    tt_hint("docs/models.md lists what is supported");
    return status;
}

/* Parts of other sizes are refused by name. */
static tt_status check_parts(const struct tt_json *json)
{
    const char *bidirectional = NULL;
    TT_TRY(tt_json_opt_string(json, json->root, "use_bidirectional_attention", &bidirectional));
    if (bidirectional != NULL && strcmp(bidirectional, "all") == 0)
        return refuse(json, "use_bidirectional_attention \"all\"", "attention to later tokens");
    return TT_OK;
}

static tt_status read_heads(const struct tt_json *json, const struct tt_json_value *object,
                            const char *dim_key, const char *heads_key, int64_t heads,
                            struct tt_layer_facts *layer)
{
    TT_TRY(tt_json_opt_int(json, object, dim_key, &layer->head_dim));
    TT_TRY(tt_family_check_range(json, dim_key, layer->head_dim, 2, HEAD_DIM_MAX));
    if (heads_key != NULL) TT_TRY(tt_json_opt_int(json, object, heads_key, &layer->kv_heads));
    TT_TRY(tt_family_check_range(json, "num_key_value_heads", layer->kv_heads, 1, heads));
    if (layer->head_dim % 2 == 0 && heads % layer->kv_heads == 0) return TT_OK;
    return tt_fail(TT_ERR_DATA,
                   "%s: %" PRId64 " heads cannot share %" PRId64 " key/value heads of %" PRId64 " columns",
                   json->origin, heads, layer->kv_heads, layer->head_dim);
}

/* The layer of a key of per_layer_config, "5" or, with ten layers and more, "05". */
static tt_status find_layer(const struct tt_json *json, const char *key, struct tt_model_facts *facts,
                            struct tt_layer_facts **layer)
{
    char *end = NULL;
    long long index = *key >= '0' && *key <= '9' ? strtoll(key, &end, 10) : -1;
    if (index < 0 || *end != '\0' || index >= facts->num_hidden_layers)
        return tt_fail(TT_ERR_DATA, "%s: per_layer_config: '%.40s' is no layer of %" PRId64, json->origin,
                       key, facts->num_hidden_layers);
    *layer = &facts->layers[index];
    return TT_OK;
}

static tt_status parse_heads_of_layers(const struct tt_json *json, const struct tt_json_value *each,
                                       int64_t heads, struct tt_model_facts *facts)
{
    const char *key;
    const struct tt_json_value *own;
    struct tt_layer_facts *layer = NULL;
    TT_TRY(tt_json_object(json, json->root, "per_layer_config", &each));
    for (size_t member = 0; tt_json_next_member(each, &member, &key, &own);) {
        TT_TRY(find_layer(json, key, facts, &layer));
        TT_TRY(read_heads(json, own, "head_dim", "num_key_value_heads", heads, layer));
    }
    return TT_OK;
}

/* Published files have global_head_dim and num_global_key_value_heads; files that transformers saves have
 * per_layer_config, an object by the index of a layer; null leaves all layers alike, as there. */
static tt_status parse_heads(const struct tt_json *json, bool keys_as_values, int64_t heads,
                             struct tt_model_facts *facts)
{
    const struct tt_json_value *each = tt_json_get(json->root, "per_layer_config");
    if (each != NULL && tt_json_is_null(each)) return TT_OK;
    if (each != NULL) return parse_heads_of_layers(json, each, heads, facts);
    for (int64_t i = 0; i < facts->num_hidden_layers; i++) {
        struct tt_layer_facts *layer = &facts->layers[i];
        if (layer->window > 0) continue;
        layer->head_dim = HEAD_DIM_MAX;
        TT_TRY(read_heads(json, json->root, "global_head_dim",
                          keys_as_values ? "num_global_key_value_heads" : NULL, heads, layer));
    }
    return TT_OK;
}

/* Every sixth layer sees all keys where layer_types is missing, and the last one always does. */
static tt_status parse_layers(const struct tt_json *json, bool keys_as_values, struct tt_model_facts *facts)
{
    bool sliding[TT_MODEL_LAYERS_MAX];
    int64_t window = 512, last = facts->num_hidden_layers - 1;
    TT_TRY(tt_json_opt_int(json, json->root, "sliding_window", &window));
    TT_TRY(tt_family_check_range(json, "sliding_window", window, 1, INT32_MAX));
    for (int64_t i = 0; i <= last; i++) sliding[i] = (i + 1) % 6 != 0;
    TT_TRY(tt_family_parse_layer_types(json, facts, sliding));
    sliding[last] = false;
    for (int64_t i = 0; i <= last; i++) {
        facts->layers[i].window = sliding[i] ? window : 0;
        facts->layers[i].rope = sliding[i] ? ROPE_SLIDING : ROPE_FULL;
        facts->layers[i].keys_as_values = keys_as_values && !sliding[i];
    }
    return TT_OK;
}

/* The head_dim of the layers that rotate so; where there are none, any. */
static tt_status find_head_dim(const struct tt_json *json, const struct tt_model_facts *facts, int rope,
                               int64_t *head_dim)
{
    *head_dim = 0;
    for (int64_t i = 0; i < facts->num_hidden_layers; i++) {
        const struct tt_layer_facts *layer = &facts->layers[i];
        if (layer->rope != rope) continue;
        if (*head_dim != 0 && *head_dim != layer->head_dim)
            return tt_fail(TT_ERR_UNSUPPORTED,
                           "%s: head_dim of layer %" PRId64 " differs from that of others of its type",
                           json->origin, i);
        *head_dim = layer->head_dim;
    }
    if (*head_dim == 0) *head_dim = facts->layers[0].head_dim;
    return TT_OK;
}

static tt_status parse_rotation(const struct tt_json *json, struct tt_model_facts *facts, int rope,
                                struct tt_rope_rules rules)
{
    const struct tt_json_value *parameters = tt_json_get(json->root, "rope_parameters");
    TT_TRY(find_head_dim(json, facts, rope, &rules.head_dim));
    TT_TRY(tt_family_parse_rope(json, &rules, facts, &facts->ropes[rope]));
    if (rope != ROPE_FULL || (parameters != NULL && !tt_json_is_null(parameters))) return TT_OK;
    facts->ropes[rope].type = TT_ROPE_PROPORTIONAL;
    facts->ropes[rope].turning = rules.head_dim / 8;
    return TT_OK;
}

/* The last num_kv_shared_layers layers read the keys and values of the last layer of their type before them. */
static tt_status parse_shared(const struct tt_json *json, struct tt_model_facts *facts)
{
    int64_t shared = 0, layers = facts->num_hidden_layers;
    TT_TRY(tt_json_opt_int(json, json->root, "num_kv_shared_layers", &shared));
    TT_TRY(tt_family_check_range(json, "num_kv_shared_layers", shared, 0, layers - 1));
    for (int64_t i = layers - shared; i < layers; i++) {
        int64_t from = layers - shared - 1;
        while (from >= 0 && (facts->layers[from].window > 0) != (facts->layers[i].window > 0)) from--;
        if (from < 0)
            return tt_fail(TT_ERR_DATA, "%s: no layer of the type of layer %" PRId64 " has keys of its own",
                           json->origin, i);
        facts->layers[i].keys_back = i - from;
        facts->layers[i].keys_as_values = false;
    }
    return TT_OK;
}

/* Each token has a row of its own in the table for layers. */
static tt_status parse_inputs(const struct tt_json *json, int64_t vocab_size, struct gemma4 *gemma)
{
    gemma->inputs = 256;
    gemma->inputs_vocab = 262144;
    TT_TRY(tt_json_opt_int(json, json->root, "hidden_size_per_layer_input", &gemma->inputs));
    TT_TRY(tt_family_check_range(json, "hidden_size_per_layer_input", gemma->inputs, 0, 1 << 16));
    TT_TRY(tt_json_opt_int(json, json->root, "vocab_size_per_layer_input", &gemma->inputs_vocab));
    TT_TRY(tt_family_check_range(json, "vocab_size_per_layer_input", gemma->inputs_vocab,
                                 gemma->inputs > 0 ? vocab_size : 1, 1 << 24));
    return tt_json_opt_bool(json, json->root, "use_double_wide_mlp", &gemma->wide);
}

/* Experts beside the MLP of every layer (Gemma4TextRouter, Gemma4TextExperts). */
static tt_status parse_experts(const struct tt_json *json, struct tt_model_facts *facts,
                               struct tt_mixture *mixture)
{
    struct tt_mixture_defaults required = {.ffn_key = "moe_intermediate_size", .slots_key = "top_k_experts"};
    bool has = false;
    TT_TRY(tt_json_opt_bool(json, json->root, "enable_moe_block", &has));
    if (!has) return TT_OK;
    TT_TRY(tt_json_int(json, json->root, "num_experts", &required.count));
    TT_TRY(tt_mixture_parse(json, &required, facts, mixture));
    mixture->rule = (struct tt_route_rule){.score = TT_ROUTE_SOFTMAX, .normalizes = true};
    return TT_OK;
}

static tt_status parse(const struct tt_json *json, struct tt_model_facts *facts)
{
    struct gemma4 *gemma = TT_FAMILY_OWN(facts, struct gemma4);
    struct tt_decoder_defaults defaults = {
        .vocab = 262144, .heads = 8, .kv_heads = 4, .head_dim = 256, .positions = 131072};
    bool keys_as_values = false;
    if (tt_json_get(json->root, "tie_word_embeddings") == NULL) facts->tie_word_embeddings = true;
    TT_TRY(check_parts(json));
    TT_TRY(tt_family_parse_shape(json, &defaults, facts, &gemma->shape));
    gemma->shape.activation = TT_ACTIVATION_GELU_TANH;
    TT_TRY(tt_family_parse_activation(json, "hidden_activation", &gemma->shape.activation));
    TT_TRY(tt_json_opt_bool(json, json->root, "attention_bias", &gemma->attention_bias));
    TT_TRY(tt_json_opt_bool(json, json->root, "attention_k_eq_v", &keys_as_values));
    TT_TRY(tt_gemma_parse_cap(json, "final_logit_softcapping", 0, &gemma->logit_cap));
    TT_TRY(parse_layers(json, keys_as_values, facts));
    TT_TRY(parse_heads(json, keys_as_values, gemma->shape.heads, facts));
    TT_TRY(parse_shared(json, facts));
    TT_TRY(parse_inputs(json, facts->vocab_size, gemma));
    facts->fixed_vocab = gemma->inputs > 0;
    TT_TRY(parse_experts(json, facts, &gemma->mixture));
    facts->rope_count = ROPE_COUNT;
    TT_TRY(parse_rotation(json, facts, ROPE_FULL,
                          (struct tt_rope_rules){.theta = 1e6, .layer_type = "full_attention"}));
    return parse_rotation(json, facts, ROPE_SLIDING,
                          (struct tt_rope_rules){.theta = 1e4, .layer_type = "sliding_attention"});
}

static void build(const struct tt_model_facts *facts, struct tt_builder *builder)
{
    const struct gemma4 *gemma = TT_FAMILY_OWN_CONST(facts, struct gemma4);
    const struct tt_decoder_shape *shape = &gemma->shape;
    struct tt_attention_spec attention = {.names = &attention_names,
                                          .heads = shape->heads,
                                          .norm_eps = shape->norm_eps,
                                          .scale = 1,
                                          .bias = gemma->attention_bias,
                                          .output_bias = gemma->attention_bias,
                                          .qk_norm = true,
                                          .value_norm = true};
    struct tt_mlp_spec mlp = {
        .names = &mlp_names, .ffn = shape->ffn, .norm_eps = shape->norm_eps, .activation = shape->activation};
    struct tt_experts_spec experts = tt_mixture_spec(&gemma->mixture, shape, &experts_names);
    experts.beside = experts.router_adapts = true;
    experts.router_scale = 1 / sqrt((double)facts->hidden_size);
    if (gemma->mixture.count > 0) mlp.names = &mlp_beside_names;
    struct tt_layer_input_spec inputs = {.table = "embed_tokens_per_layer",
                                         .projection = "per_layer_model_projection",
                                         .norm = "per_layer_projection_norm",
                                         .gate = "per_layer_input_gate",
                                         .activation = "act_fn",
                                         .out = "per_layer_projection",
                                         .post_norm = "post_per_layer_input_norm",
                                         .columns = gemma->inputs,
                                         .vocab = gemma->inputs_vocab,
                                         .norm_eps = shape->norm_eps,
                                         .kind = shape->activation};
    tt_build_decoder(builder, facts,
                     &(struct tt_decoder_spec){.attention = &attention,
                                               .mlp = &mlp,
                                               .experts = &experts,
                                               .inputs = gemma->inputs > 0 ? &inputs : NULL,
                                               .reading_ffn = gemma->wide ? 2 * shape->ffn : 0,
                                               .embedding_scale = sqrt((double)facts->hidden_size),
                                               .logit_cap = gemma->logit_cap,
                                               .norm = {.eps = shape->norm_eps},
                                               .layer_scalar = "layer_scalar"});
}

static const struct tt_gguf_name gguf_names[] = {
    {"model.embed_tokens_per_layer", "per_layer_token_embd", false},
    {"model.per_layer_model_projection", "per_layer_model_proj", false},
    {"model.per_layer_projection_norm", "per_layer_proj_norm", false},
    {"post_attention_layernorm", "post_attention_norm", false},
    {"pre_feedforward_layernorm", "ffn_norm", false},
    {"post_feedforward_layernorm", "post_ffw_norm", false},
    {"per_layer_input_gate", "inp_gate", false},
    {"per_layer_projection", "proj", false},
    {"post_per_layer_input_norm", "post_norm", false},
    {"layer_scalar", "layer_output_scale", false},
    {"pre_feedforward_layernorm_2", "pre_ffw_norm_2", false},
    {"post_feedforward_layernorm_1", "post_ffw_norm_1", false},
    {"post_feedforward_layernorm_2", "post_ffw_norm_2", false},
    {"router.proj", "ffn_gate_inp", false},
    {"router.scale", "ffn_gate_inp.scale", false},
    {"router.per_expert_scale", "ffn_down_exps.scale", false},
    {"experts.gate_up_proj", "ffn_gate_up_exps.weight", false},
    {"experts.down_proj", "ffn_down_exps.weight", false},
    {NULL, NULL, false},
};

static int32_t kv_heads_of(const struct tt_model_facts *facts, int64_t layer)
{
    return (int32_t)facts->layers[layer].kv_heads;
}

static int32_t ffn_of(const struct tt_model_facts *facts, int64_t layer)
{
    const struct gemma4 *gemma = TT_FAMILY_OWN_CONST(facts, struct gemma4);
    return (int32_t)gemma->shape.ffn * (gemma->wide && facts->layers[layer].keys_back > 0 ? 2 : 1);
}

/* Keys: src/models/gemma4.cpp of llama.cpp, which takes "swa" for the layers with a window. */
static void add_keys(const struct tt_model_facts *facts, struct tt_gguf_keys *keys)
{
    const struct gemma4 *gemma = TT_FAMILY_OWN_CONST(facts, struct gemma4);
    const struct tt_rope *full = &facts->ropes[ROPE_FULL], *sliding = &facts->ropes[ROPE_SLIDING];
    int64_t shared = 0;
    for (int64_t i = 0; i < facts->num_hidden_layers; i++) shared += facts->layers[i].keys_back > 0;
    tt_gguf_add_decoder(facts, &gemma->shape, keys);
    tt_gguf_add_layers_i32(keys, "feed_forward_length", ffn_of);
    tt_gguf_add_layers_i32(keys, "attention.head_count_kv", kv_heads_of);
    tt_gguf_add_u32(keys, "attention.key_length", full->columns);
    tt_gguf_add_u32(keys, "attention.value_length", full->columns);
    tt_gguf_add_u32(keys, "attention.key_length_swa", sliding->columns);
    tt_gguf_add_u32(keys, "attention.value_length_swa", sliding->columns);
    tt_gguf_add_u32(keys, "attention.shared_kv_layers", shared);
    tt_gguf_add_u32(keys, "embedding_length_per_layer_input", gemma->inputs);
    tt_gguf_add_windows(facts, keys);
    /* Readers take 30 where there is no key, and 0 for none. */
    tt_gguf_add_f32(keys, "final_logit_softcapping", gemma->logit_cap);
    tt_gguf_add_u32(keys, "rope.dimension_count_swa", sliding->columns);
    tt_gguf_add_f32(keys, "rope.freq_base_swa", sliding->theta);
    if (gemma->mixture.count > 0) tt_mixture_gguf_keys(&gemma->mixture, true, keys);
}

/* Layers that read keys of others read those of the last layer of their type that makes some; llama.cpp takes the last
 * one of all for layers without a window, and the one before it for the others (llama-model.cpp). */
static bool reads_last_two(const struct tt_model_facts *facts)
{
    int64_t made = 0;
    while (made < facts->num_hidden_layers && facts->layers[made].keys_back == 0) made++;
    for (int64_t i = made; i < facts->num_hidden_layers; i++)
        if (i - facts->layers[i].keys_back != made - (facts->layers[i].window > 0 ? 2 : 1)) return false;
    return true;
}

static const char *cannot(const struct tt_model_facts *facts)
{
    const struct gemma4 *gemma = TT_FAMILY_OWN_CONST(facts, struct gemma4);
    enum tt_rope_type full = facts->ropes[ROPE_FULL].type;
    if (gemma->attention_bias) return "attention_bias of this model type";
    if (tt_gemma_cannot_activation(&gemma->shape) != NULL) return tt_gemma_cannot_activation(&gemma->shape);
    if (!reads_last_two(facts)) return "num_kv_shared_layers with this order of layer_types";
    if (gemma->inputs > 0 && gemma->inputs_vocab != facts->vocab_size)
        return "a vocab_size_per_layer_input other than vocab_size";
    if ((full != TT_ROPE_PROPORTIONAL && full != TT_ROPE_DEFAULT) ||
        facts->ropes[ROPE_SLIDING].type != TT_ROPE_DEFAULT)
        return "these rotations of this model type";
    return NULL;
}

static const char *const unadapted[] = {"per_layer_model_proj.weight", NULL};
static const struct tt_gguf_family gguf = {.name = "gemma4",
                                           .windows = true,
                                           .factors = true,
                                           .tokenizer = "gemma4",
                                           .unadapted = unadapted,
                                           .names = gguf_names,
                                           .add_keys = add_keys,
                                           .cannot = cannot};

const struct tt_model_family tt_family_gemma4 = {
    .model_type = "gemma4_text",
    .architecture = "Gemma4ForCausalLM",
    /* PEFT's for folders of the class gemma4; it has none for the text model alone */
    .default_target_modules = "[\"q_proj\", \"v_proj\"]",
    .gguf = &gguf,
    .parse = parse,
    .build = build,
};
