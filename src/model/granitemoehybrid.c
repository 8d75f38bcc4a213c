/* Granite 4 (GraniteMoeHybridConfig): Granite's multipliers, layers with a state by Mamba-2 beside those of attention,
 * which rotate only with position_embedding_type "rope", and a gated MLP of its own names, in larger sizes beside
 * experts. */
#include <string.h>

#include "model/mamba.h"
#include "model/mixture.h"

struct hybrid {
    struct tt_dense dense; /* the first member: helpers of dense read it */
    int64_t expand;        /* columns of a state's heads together, as a multiple of the stream's */
    struct tt_mamba mamba;
    struct tt_mixture mixture;
};

static const struct tt_attention_names attention_names = {TT_ATTENTION_LINEARS, .norm = "input_layernorm"};
static const struct tt_mlp_names mlp_names = {.module = "shared_mlp",
                                              .activation = "shared_mlp.activation",
                                              .gate_up = "shared_mlp.input_linear",
                                              .down = "shared_mlp.output_linear",
                                              .norm = "post_attention_layernorm"};
static const struct tt_recurrence_names recurrence_names = {.module = "mamba",
                                                            .in = "mamba.in_proj",
                                                            .out = "mamba.out_proj",
                                                            .conv = "mamba.conv1d",
                                                            .activation = "mamba.act",
                                                            .gate_norm = "mamba.norm",
                                                            .norm = "input_layernorm"};

static const struct tt_experts_names experts_names = {.module = "block_sparse_moe",
                                                      .router = "block_sparse_moe.router",
                                                      .experts = "block_sparse_moe.experts",
                                                      .activation = "block_sparse_moe.experts.act_fn",
                                                      .gate_up = "gate_up_proj",
                                                      .down = "down_proj",
                                                      .norm = "post_attention_layernorm",
                                                      .shared = "shared_mlp",
                                                      .shared_gate_up = "shared_mlp.input_linear",
                                                      .shared_down = "shared_mlp.output_linear",
                                                      .shared_activation = "shared_mlp.activation"};
/* Files have the names of the class's first version. */
#define MOE "layers.#.block_sparse_moe."
static const struct tt_param_source sources[] = {
    {.param = MOE "router.weight", .parts = {{.tensor = MOE "router.layer.weight"}}},
    {.param = MOE "experts.gate_up_proj", .parts = {{.tensor = MOE "input_linear.weight"}}},
    {.param = MOE "experts.down_proj", .parts = {{.tensor = MOE "output_linear.weight"}}},
    {.param = NULL},
};

/* num_local_experts 0: no layer has experts. */
static tt_status parse_experts(const struct tt_json *json, struct hybrid *hybrid,
                               struct tt_model_facts *facts)
{
    static const struct tt_mixture_defaults defaults = {
        .count = 8, .slots = 2, .ffn = 11008, .ffn_key = "intermediate_size"};
    int64_t count = defaults.count;
    TT_TRY(tt_json_opt_int(json, json->root, "num_local_experts", &count));
    if (count == 0) return TT_OK;
    TT_TRY(tt_mixture_parse(json, &defaults, facts, &hybrid->mixture));
    TT_TRY(tt_mixture_parse_balance(json, 0.001, &hybrid->mixture, facts));
    hybrid->mixture.rule = (struct tt_route_rule){.score = TT_ROUTE_CHOSEN, .rounds_weights = true};
    hybrid->mixture.shared_ffn = hybrid->dense.shape.ffn;
    return TT_OK;
}

static tt_status parse_state(const struct tt_json *json, const struct tt_model_facts *facts,
                             struct hybrid *hybrid, struct tt_kv_states *state)
{
    struct tt_mamba *mamba = &hybrid->mamba;
    int64_t kernel = 4, expand = 2;
    *state = (struct tt_kv_states){.heads = 128, .rows = 256};
    mamba->groups = 1;
    mamba->conv_bias = true;
    TT_TRY(tt_family_parse_size(json, "mamba_n_heads", 1 << 14, &state->heads));
    TT_TRY(tt_family_parse_size(json, "mamba_n_groups", 1 << 14, &mamba->groups));
    TT_TRY(tt_family_parse_size(json, "mamba_d_state", TT_SCAN_WIDTH_MAX, &state->rows));
    TT_TRY(tt_family_parse_size(json, "mamba_d_conv", TT_CONV1D_KERNEL_MAX, &kernel));
    TT_TRY(tt_family_parse_size(json, "mamba_expand", 1 << 10, &expand));
    TT_TRY(tt_json_opt_bool(json, json->root, "mamba_conv_bias", &mamba->conv_bias));
    TT_TRY(tt_json_opt_bool(json, json->root, "mamba_proj_bias", &mamba->linear_bias));
    state->columns = expand * facts->hidden_size / state->heads;
    TT_TRY(tt_family_check_range(json, "mamba_expand * hidden_size / mamba_n_heads", state->columns, 1,
                                 TT_SCAN_WIDTH_MAX));
    TT_TRY(tt_family_check_range(json, "mamba_d_state * mamba_d_head", state->rows * state->columns, 1,
                                 TT_SCAN_STATE_MAX));
    if (state->heads % mamba->groups != 0 || expand * facts->hidden_size % state->heads != 0)
        return tt_fail(TT_ERR_DATA,
                       "%s: mamba_n_heads does not divide mamba_expand * hidden_size, or is not a multiple "
                       "of mamba_n_groups",
                       json->origin);
    state->conv_rows = kernel - 1;
    state->conv_columns = 2 * mamba->groups * state->rows + state->heads * state->columns;
    hybrid->expand = expand;
    return tt_family_parse_time_steps(json, &mamba->dt_min, &mamba->dt_max);
}

/* layer_types of today, and those of files before transformers 5: "mamba" and "attention". */
static tt_status parse_layers(const struct tt_json *json, const struct tt_kv_states *state,
                              struct tt_model_facts *facts)
{
    static const char *const names[] = {"full_attention", "linear_attention"}, *const older[] = {"attention",
                                                                                                 "mamba"};
    const struct tt_json_value *types = tt_json_get(json->root, "layer_types");
    const char *first = tt_json_text(tt_json_at(types, 0)), *positions = NULL;
    bool linear[TT_MODEL_LAYERS_MAX];
    bool old = first != NULL && (strcmp(first, older[0]) == 0 || strcmp(first, older[1]) == 0);
    for (int64_t i = 0; i < facts->num_hidden_layers; i++) linear[i] = true;
    TT_TRY(tt_family_parse_layer_kinds(json, "layer_types", facts, old ? older : names, linear));
    TT_TRY(tt_json_opt_string(json, json->root, "position_embedding_type", &positions));
    for (int64_t i = 0; i < facts->num_hidden_layers; i++) {
        if (positions == NULL || strcmp(positions, "rope") != 0) facts->layers[i].rope = -1;
        if (linear[i]) facts->layers[i] = (struct tt_layer_facts){.rope = -1, .state = *state};
    }
    return TT_OK;
}

static tt_status parse(const struct tt_json *json, struct tt_model_facts *facts)
{
    struct hybrid *hybrid = TT_FAMILY_OWN(facts, struct hybrid);
    struct tt_kv_states state;
    struct tt_decoder_defaults defaults = {.vocab = 32000, .heads = 32, .positions = 2048};
    TT_TRY(tt_granite_parse(json, &defaults, facts));
    hybrid->dense.shape.ffn = 1024;
    TT_TRY(tt_family_parse_size(json, "shared_intermediate_size", 1 << 22, &hybrid->dense.shape.ffn));
    TT_TRY(parse_state(json, facts, hybrid, &state));
    TT_TRY(parse_layers(json, &state, facts));
    return parse_experts(json, hybrid, facts);
}

static void build(const struct tt_model_facts *facts, struct tt_builder *builder)
{
    const struct hybrid *hybrid = TT_FAMILY_OWN_CONST(facts, struct hybrid);
    double eps = hybrid->dense.shape.norm_eps;
    struct tt_recurrence_spec recurrence = {.names = &recurrence_names,
                                            .rule = TT_SCAN_MAMBA2,
                                            .key_heads = hybrid->mamba.groups,
                                            .norm_eps = eps,
                                            .gate_eps = eps,
                                            .conv_bias = hybrid->mamba.conv_bias,
                                            .linear_bias = hybrid->mamba.linear_bias,
                                            .dt_min = hybrid->mamba.dt_min,
                                            .dt_max = hybrid->mamba.dt_max,
                                            .residual_scale = hybrid->dense.residual_scale};
    struct tt_experts_spec experts = tt_mixture_spec(&hybrid->mixture, &hybrid->dense.shape, &experts_names);
    experts.residual_scale = hybrid->dense.residual_scale;
    tt_dense_build_with(facts, builder, &attention_names, &mlp_names,
                        &(struct tt_dense_halves){.recurrence = &recurrence, .experts = &experts});
}

/* ---- GGUF ---- */

/* Source: conversion/granite.py, src/models/granite-hybrid.cpp and granite.cpp of llama.cpp b10605. */
#define HYBRID_NAMES TT_MAMBA_GGUF_NAMES("mamba")
static const struct tt_gguf_name dense_names[] = {
    HYBRID_NAMES,
    {"shared_mlp.input_linear", "ffn_gate ffn_up", false},
    {"shared_mlp.output_linear", "ffn_down", false},
    {NULL, NULL, false},
};
static const struct tt_gguf_name mixture_names[] = {
    HYBRID_NAMES,
    {"block_sparse_moe.router", "ffn_gate_inp", false},
    {"block_sparse_moe.experts.gate_up_proj", "ffn_gate_exps.weight ffn_up_exps.weight", false},
    {"block_sparse_moe.experts.down_proj", "ffn_down_exps.weight", false},
    {"shared_mlp.input_linear", "ffn_gate_shexp ffn_up_shexp", false},
    {"shared_mlp.output_linear", "ffn_down_shexp", false},
    {NULL, NULL, false},
};

static bool rotates(const struct tt_model_facts *facts)
{
    for (int64_t i = 0; i < facts->num_hidden_layers; i++)
        if (facts->layers[i].rope >= 0) return true;
    return false;
}

/* llama.cpp takes the width of an expert for that of all MLPs. */
static void add_alone_keys(const struct tt_model_facts *facts, struct tt_gguf_keys *keys)
{
    const struct hybrid *hybrid = TT_FAMILY_OWN_CONST(facts, struct hybrid);
    tt_granite_gguf_keys(facts, keys);
    tt_mixture_gguf_keys(&hybrid->mixture, false, keys);
    tt_gguf_add_u32(keys, "expert_shared_feed_forward_length", hybrid->dense.shape.ffn);
    if (hybrid->mixture.count > 0) tt_gguf_add_u32(keys, "feed_forward_length", hybrid->mixture.ffn);
    tt_gguf_add_bool(keys, "rope.scaling.finetuned", rotates(facts));
}

static void add_keys(const struct tt_model_facts *facts, struct tt_gguf_keys *keys)
{
    add_alone_keys(facts, keys);
    tt_mamba_gguf_keys(facts, &TT_FAMILY_OWN_CONST(facts, struct hybrid)->mamba, rotates(facts), keys);
}

/* Gate and up are two matrices. */
static void arrange(const struct tt_model_facts *facts, const char *tensor,
                    struct tt_gguf_arrangement *arrangement)
{
    const struct hybrid *hybrid = TT_FAMILY_OWN_CONST(facts, struct hybrid);
    int64_t ffn = hybrid->dense.shape.ffn;
    if (strcmp(tensor, "shared_mlp.input_linear.weight") == 0)
        *arrangement = (struct tt_gguf_arrangement){.period = 2 * ffn, .part = ffn};
    if (strncmp(tensor, "mamba.", 6) == 0)
        tt_mamba_gguf_arrange(facts, &hybrid->mamba, tensor + 6, arrangement);
}

static const char *cannot(const struct tt_model_facts *facts)
{
    const struct hybrid *hybrid = TT_FAMILY_OWN_CONST(facts, struct hybrid);
    if (hybrid->dense.shape.activation != TT_ACTIVATION_SILU)
        return "an activation other than silu of this model type";
    if (hybrid->dense.mlp_bias) return "mlp_bias of this model type";
    if (hybrid->expand != 2) return "a mamba_expand other than 2";
    return tt_mamba_gguf_cannot(facts, &hybrid->mamba);
}

/* A model without a layer that has a state is of an architecture of attention alone. */
static const char *cannot_alone(const struct tt_model_facts *facts)
{
    const char *dense = tt_dense_cannot(facts);
    return dense != NULL || rotates(facts) ? dense : "attention without rotation and without a state";
}

static const struct tt_gguf_family *instead(const struct tt_model_facts *facts)
{
    static const struct tt_gguf_family of[2][2] = {
        {{.name = "granite",
          .pairs = true,
          .names = dense_names,
          .add_keys = add_alone_keys,
          .arrange = arrange,
          .cannot = cannot_alone},
         {.name = "granitemoe",
          .pairs = true,
          .names = mixture_names,
          .add_keys = add_alone_keys,
          .arrange = arrange,
          .cannot = cannot_alone}},
        {{.name = "granitehybrid",
          .pairs = true,
          .names = dense_names,
          .add_keys = add_keys,
          .arrange = arrange,
          .cannot = cannot},
         {.name = "granitehybrid",
          .pairs = true,
          .names = mixture_names,
          .add_keys = add_keys,
          .arrange = arrange,
          .cannot = cannot}},
    };
    const struct hybrid *hybrid = TT_FAMILY_OWN_CONST(facts, struct hybrid);
    return &of[tt_family_state(facts) != NULL][hybrid->mixture.count > 0];
}

static const struct tt_gguf_family gguf = {
    .name = "granitehybrid", .names = mixture_names, .instead = instead};

const struct tt_model_family tt_family_granitemoehybrid = {
    .model_type = "granitemoehybrid",
    .architecture = "GraniteMoeHybridForCausalLM",
    .gguf = &gguf,
    .sources = sources,
    .parse = parse,
    .build = build,
};
