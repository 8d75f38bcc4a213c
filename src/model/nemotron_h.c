/* Nemotron-H and Nemotron 3 (NemotronHConfig): each layer is one half, Mamba-2, attention without rotation, an MLP of
 * ReLU^2 without a gate, or experts that are such MLPs, chosen as DeepSeek V3's. Files call the text model
 * "backbone". */
#include <string.h>

#include "model/mamba.h"
#include "model/mixture.h"

struct nemotron {
    struct tt_decoder_shape shape;
    struct tt_mamba mamba;
    bool mlp_bias;
    struct tt_mixture mixture;
};

static const struct tt_attention_names attention_names = {.module = "mixer",
                                                          .q = "mixer.q_proj",
                                                          .k = "mixer.k_proj",
                                                          .v = "mixer.v_proj",
                                                          .o = "mixer.o_proj",
                                                          .norm = "norm"};
static const struct tt_mlp_names mlp_names = {.module = "mixer",
                                              .activation = "mixer.act_fn",
                                              .up = "mixer.up_proj",
                                              .down = "mixer.down_proj",
                                              .norm = "norm"};
static const struct tt_recurrence_names recurrence_names = {.module = "mixer",
                                                            .in = "mixer.in_proj",
                                                            .out = "mixer.out_proj",
                                                            .conv = "mixer.conv1d",
                                                            .activation = "mixer.act",
                                                            .gate_norm = "mixer.norm",
                                                            .norm = "norm"};
static const struct tt_experts_names experts_names = {.module = "mixer",
                                                      .router = "mixer.gate",
                                                      .experts = "mixer.experts",
                                                      .activation = "mixer.experts.act_fn",
                                                      .gate_up = "up_proj",
                                                      .down = "down_proj",
                                                      .norm = "norm",
                                                      .choice_bias = "mixer.gate.e_score_correction_bias",
                                                      .shared = "mixer.shared_experts",
                                                      .shared_up = "mixer.shared_experts.up_proj",
                                                      .shared_down = "mixer.shared_experts.down_proj",
                                                      .shared_activation = "mixer.shared_experts.act_fn"};
static const struct tt_param_source sources[] = {
    {.param = "layers.#.mixer.experts.up_proj",
     .parts = {{.tensor = "layers.#.mixer.experts.*.up_proj.weight"}}},
    {.param = "layers.#.mixer.experts.down_proj",
     .parts = {{.tensor = "layers.#.mixer.experts.*.down_proj.weight"}}},
    {.param = NULL},
};
static const struct tt_part_rename renames[] = {{"backbone.", "model."}, {NULL, NULL}};

/* ---- Kinds of layers ---- */

enum kind { MAMBA, ATTENTION, MLP, EXPERTS, KINDS };
static const struct {
    const char *name, *older;
    char letter; /* of hybrid_override_pattern */
} kinds[KINDS] = {
    [MAMBA] = {"linear_attention", "mamba", 'M'},
    [ATTENTION] = {"full_attention", "attention", '*'},
    [MLP] = {"mlp", "mlp", '-'},
    [EXPERTS] = {"moe", "moe", 'E'},
};

/* The list of kinds by name, or the pattern with a letter for each layer; neither: NULL and NULL. */
struct layers {
    const struct tt_json_value *names;
    const char *pattern;
    int64_t count;
};

static tt_status find_layers(const struct tt_json *json, struct layers *layers)
{
    static const char *const keys[] = {"layers_block_type", "layer_types"};
    *layers = (struct layers){.names = NULL};
    for (int k = 0; k < 2 && layers->names == NULL; k++) {
        const struct tt_json_value *value = tt_json_get(json->root, keys[k]);
        if (value == NULL || tt_json_is_null(value)) continue;
        TT_TRY(tt_json_array(json, json->root, keys[k], &layers->names));
        layers->count = (int64_t)tt_json_count(layers->names);
    }
    if (layers->names == NULL)
        TT_TRY(tt_json_opt_string(json, json->root, "hybrid_override_pattern", &layers->pattern));
    if (layers->pattern != NULL) layers->count = (int64_t)strlen(layers->pattern);
    if (layers->count > 0)
        return tt_family_check_range(json, "the number of layers", layers->count, 1, TT_MODEL_LAYERS_MAX);
    return tt_fail(TT_ERR_DATA, "%s: there is neither layers_block_type nor hybrid_override_pattern",
                   json->origin);
}

static tt_status find_kind(const struct tt_json *json, const struct layers *layers, int64_t layer,
                           enum kind *kind)
{
    const char *name = tt_json_text(tt_json_at(layers->names, (size_t)layer));
    char letter[2] = {layers->pattern != NULL ? layers->pattern[layer] : '\0', '\0'};
    for (int k = 0; k < KINDS; k++) {
        bool is = name != NULL ? strcmp(name, kinds[k].name) == 0 || strcmp(name, kinds[k].older) == 0
                               : letter[0] == kinds[k].letter;
        if (!is) continue;
        *kind = (enum kind)k;
        return TT_OK;
    }
    return tt_fail(TT_ERR_UNSUPPORTED, "%s: layer type '%s' of layer %lld is not supported", json->origin,
                   name != NULL              ? name
                   : layers->pattern != NULL ? letter
                                             : "(not a string)",
                   (long long)layer);
}

/* ---- Keys ---- */

/* Two keys of the same value: configurations before NemotronHConfig have the second. */
static tt_status read_size(const struct tt_json *json, const char *key, const char *older, int64_t maximum,
                           int64_t *size)
{
    return tt_family_parse_size(json, tt_json_get(json->root, older) != NULL ? older : key, maximum, size);
}

static tt_status parse_state(const struct tt_json *json, struct nemotron *nemotron,
                             struct tt_kv_states *state)
{
    struct tt_mamba *mamba = &nemotron->mamba;
    int64_t kernel = 4;
    const char *act = NULL;
    *state = (struct tt_kv_states){.heads = 128, .rows = 128, .columns = 64};
    mamba->groups = 8;
    mamba->conv_bias = true;
    TT_TRY(tt_family_parse_size(json, "mamba_num_heads", 1 << 14, &state->heads));
    TT_TRY(tt_family_parse_size(json, "mamba_head_dim", TT_SCAN_WIDTH_MAX, &state->columns));
    TT_TRY(read_size(json, "n_groups", "mamba_n_groups", 1 << 14, &mamba->groups));
    TT_TRY(tt_family_parse_size(json, "ssm_state_size", TT_SCAN_WIDTH_MAX, &state->rows));
    TT_TRY(read_size(json, "conv_kernel", "mamba_d_conv", TT_CONV1D_KERNEL_MAX, &kernel));
    TT_TRY(tt_json_opt_bool(json, json->root, "use_conv_bias", &mamba->conv_bias));
    TT_TRY(tt_json_opt_bool(json, json->root, "use_bias", &mamba->linear_bias));
    TT_TRY(tt_json_opt_string(json, json->root, "mamba_hidden_act", &act));
    if (act != NULL && strcmp(act, "silu") != 0)
        return tt_fail(TT_ERR_UNSUPPORTED, "%s: mamba_hidden_act '%s' is not supported", json->origin, act);
    TT_TRY(tt_family_check_range(json, "ssm_state_size * mamba_head_dim", state->rows * state->columns, 1,
                                 TT_SCAN_STATE_MAX));
    if (state->heads % mamba->groups != 0)
        return tt_fail(TT_ERR_DATA, "%s: mamba_num_heads is not a multiple of n_groups", json->origin);
    state->conv_rows = kernel - 1;
    state->conv_columns = 2 * mamba->groups * state->rows + state->heads * state->columns;
    return tt_family_parse_time_steps(json, &mamba->dt_min, &mamba->dt_max);
}

static tt_status parse_experts(const struct tt_json *json, struct nemotron *nemotron,
                               struct tt_model_facts *facts)
{
    static const struct tt_mixture_defaults defaults = {.count = 8,
                                                        .slots = 2,
                                                        .ffn = 7688,
                                                        .ffn_key = "moe_intermediate_size",
                                                        .shared = 1,
                                                        .groups = 1,
                                                        .kept_groups = 1,
                                                        .factor = 1};
    struct tt_mixture *mixture = &nemotron->mixture;
    const struct tt_json_value *latent = tt_json_get(json->root, "moe_latent_size");
    TT_TRY(tt_mixture_parse_grouped(json, &defaults, facts, mixture));
    mixture->shared_ffn = 7688;
    TT_TRY(tt_family_parse_size(json, "moe_shared_expert_intermediate_size", 1 << 22, &mixture->shared_ffn));
    if (latent == NULL || tt_json_is_null(latent)) return TT_OK;
    return tt_fail(TT_ERR_UNSUPPORTED,
                   "%s: moe_latent_size, experts behind a narrow linear, is not supported; only null is",
                   json->origin);
}

static tt_status parse(const struct tt_json *json, struct tt_model_facts *facts)
{
    struct nemotron *nemotron = TT_FAMILY_OWN(facts, struct nemotron);
    struct tt_decoder_defaults defaults = {.vocab = 131072,
                                           .heads = 32,
                                           .kv_heads = 8,
                                           .head_dim = 128,
                                           .ffn = 21504,
                                           .positions = 4096,
                                           .norm_eps = 1e-5,
                                           .norm_eps_key = "layer_norm_epsilon"};
    struct layers layers;
    struct tt_kv_states state;
    bool experts = false, experts_of[TT_MODEL_LAYERS_MAX];
    TT_TRY(find_layers(json, &layers));
    defaults.layers = layers.count;
    TT_TRY(tt_family_parse_shape(json, &defaults, facts, &nemotron->shape));
    if (facts->num_hidden_layers != layers.count)
        return tt_fail(TT_ERR_DATA, "%s: num_hidden_layers is %lld, and there are types of %lld layers",
                       json->origin, (long long)facts->num_hidden_layers, (long long)layers.count);
    nemotron->shape.activation = TT_ACTIVATION_RELU2;
    TT_TRY(tt_family_parse_activation(json, "mlp_hidden_act", &nemotron->shape.activation));
    TT_TRY(tt_json_opt_bool(json, json->root, "mlp_bias", &nemotron->mlp_bias));
    TT_TRY(parse_state(json, nemotron, &state));
    for (int64_t i = 0; i < layers.count; i++) {
        enum kind kind;
        TT_TRY(find_kind(json, &layers, i, &kind));
        facts->layers[i].rope = -1;
        if (kind != ATTENTION) facts->layers[i] = (struct tt_layer_facts){.rope = -1};
        if (kind == MAMBA) facts->layers[i].state = state;
        experts_of[i] = kind == EXPERTS;
        experts |= experts_of[i];
    }
    if (!experts) return TT_OK;
    TT_TRY(parse_experts(json, nemotron, facts));
    for (int64_t i = 0; i < layers.count; i++) facts->layers[i].experts = experts_of[i];
    return TT_OK;
}

static void build(const struct tt_model_facts *facts, struct tt_builder *builder)
{
    const struct nemotron *nemotron = TT_FAMILY_OWN_CONST(facts, struct nemotron);
    const struct tt_decoder_shape *shape = &nemotron->shape;
    struct tt_attention_spec attention = {
        .names = &attention_names, .heads = shape->heads, .norm_eps = shape->norm_eps};
    struct tt_mlp_spec mlp = {.names = &mlp_names,
                              .ffn = shape->ffn,
                              .norm_eps = shape->norm_eps,
                              .bias = nemotron->mlp_bias,
                              .activation = shape->activation};
    struct tt_recurrence_spec recurrence = {.names = &recurrence_names,
                                            .rule = TT_SCAN_MAMBA2,
                                            .key_heads = nemotron->mamba.groups,
                                            .norm_eps = shape->norm_eps,
                                            .gate_eps = shape->norm_eps,
                                            .conv_bias = nemotron->mamba.conv_bias,
                                            .linear_bias = nemotron->mamba.linear_bias,
                                            .out_bypassed = true,
                                            .dt_min = nemotron->mamba.dt_min,
                                            .dt_max = nemotron->mamba.dt_max};
    struct tt_experts_spec experts = tt_mixture_spec(&nemotron->mixture, shape, &experts_names);
    experts.plain = true;
    experts.shared_bias = nemotron->mlp_bias;
    tt_build_decoder(builder, facts,
                     &(struct tt_decoder_spec){.attention = &attention,
                                               .lone_mlp = &mlp,
                                               .experts = &experts,
                                               .recurrence = &recurrence,
                                               .embedding_scale = 1,
                                               .norm = {.path = "norm_f", .eps = shape->norm_eps}});
}

/* ---- GGUF ---- */

/* Source: conversion/nemotron.py and src/models/nemotron-h.cpp of llama.cpp b10605. The converter permutes rows of q
 * and k as if they rotated, which scores do not show. */
static const struct tt_gguf_name gguf_names[] = {
    {"model.embeddings", "token_embd", false},
    {"model.norm_f", "output_norm", false},
    {"norm", "attn_norm", false},
    TT_MAMBA_GGUF_NAMES("mixer"),
    {"mixer.q_proj", "attn_q", true},
    {"mixer.k_proj", "attn_k", true},
    {"mixer.v_proj", "attn_v", false},
    {"mixer.o_proj", "attn_output", false},
    {"mixer.up_proj", "ffn_up", false},
    {"mixer.down_proj", "ffn_down", false},
    {"mixer.gate", "ffn_gate_inp", false},
    {"mixer.gate.e_score_correction_bias", "exp_probs_b.bias", false},
    {"mixer.experts.up_proj", "ffn_up_exps.weight", false},
    {"mixer.experts.down_proj", "ffn_down_exps.weight", false},
    {"mixer.shared_experts.up_proj", "ffn_up_shexp", false},
    {"mixer.shared_experts.down_proj", "ffn_down_shexp", false},
    {NULL, NULL, false},
};

static bool is_mlp(const struct tt_model_facts *facts, int64_t layer)
{
    const struct tt_layer_facts *of = &facts->layers[layer];
    return of->state.heads == 0 && of->kv_heads == 0 && !of->experts;
}

/* 0: of attention, or with a state. */
static int32_t ffn_of(const struct tt_model_facts *facts, int64_t layer)
{
    const struct nemotron *nemotron = TT_FAMILY_OWN_CONST(facts, struct nemotron);
    if (facts->layers[layer].experts) return (int32_t)nemotron->mixture.ffn;
    return is_mlp(facts, layer) ? (int32_t)nemotron->shape.ffn : 0;
}

static void add_keys(const struct tt_model_facts *facts, struct tt_gguf_keys *keys)
{
    const struct nemotron *nemotron = TT_FAMILY_OWN_CONST(facts, struct nemotron);
    tt_gguf_add_decoder(facts, &nemotron->shape, keys);
    tt_mamba_gguf_keys(facts, &nemotron->mamba, false, keys);
    tt_gguf_add_layers_i32(keys, "feed_forward_length", ffn_of);
    tt_gguf_add_u32(keys, "rope.dimension_count", nemotron->shape.head_dim);
    /* Readers need it, and have it for layers that predict further tokens alone. */
    tt_gguf_add_f32(keys, "attention.layer_norm_epsilon", nemotron->shape.norm_eps);
    if (nemotron->mixture.count == 0) return;
    tt_mixture_gguf_grouped_keys(facts, &nemotron->mixture, keys);
    tt_gguf_add_u32(keys, "leading_dense_block_count", 0);
    tt_gguf_add_u32(keys, "expert_shared_count", 1);
    tt_gguf_add_u32(keys, "expert_shared_feed_forward_length", nemotron->mixture.shared_ffn);
}

static void arrange(const struct tt_model_facts *facts, const char *tensor,
                    struct tt_gguf_arrangement *arrangement)
{
    if (strncmp(tensor, "mixer.", 6) == 0)
        tt_mamba_gguf_arrange(facts, &TT_FAMILY_OWN_CONST(facts, struct nemotron)->mamba, tensor + 6,
                              arrangement);
}

static const char *cannot(const struct tt_model_facts *facts)
{
    const struct nemotron *nemotron = TT_FAMILY_OWN_CONST(facts, struct nemotron);
    bool experts = nemotron->mixture.count > 0;
    if (nemotron->shape.activation != TT_ACTIVATION_RELU2)
        return "an activation other than relu2 of this model type";
    if (experts && nemotron->mlp_bias) return "mlp_bias of this model type with experts";
    for (int64_t i = 0; i < facts->num_hidden_layers && experts; i++)
        if (is_mlp(facts, i)) return "layers of an MLP beside those of experts of this model type";
    return tt_mamba_gguf_cannot(facts, &nemotron->mamba);
}

static const struct tt_gguf_family *instead(const struct tt_model_facts *facts)
{
    static const struct tt_gguf_family of[] = {
        {.name = "nemotron_h",
         .pairs = true,
         .names = gguf_names,
         .add_keys = add_keys,
         .arrange = arrange,
         .cannot = cannot},
        {.name = "nemotron_h_moe",
         .pairs = true,
         .names = gguf_names,
         .add_keys = add_keys,
         .arrange = arrange,
         .cannot = cannot},
    };
    return &of[TT_FAMILY_OWN_CONST(facts, struct nemotron)->mixture.count > 0];
}

static const struct tt_gguf_family gguf = {.name = "nemotron_h", .names = gguf_names, .instead = instead};

const struct tt_model_family tt_family_nemotron_h = {
    .model_type = "nemotron_h",
    .architecture = "NemotronHForCausalLM",
    .default_target_modules = "[\"q_proj\", \"k_proj\", \"v_proj\", \"o_proj\"]",
    .gguf = &gguf,
    .sources = sources,
    .renames = renames,
    .table = "model.embeddings.weight",
    .parse = parse,
    .build = build,
};
