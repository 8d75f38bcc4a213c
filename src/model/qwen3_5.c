/* The text model of Qwen3.5, 3.6 and 3.8, dense (Qwen3_5TextConfig): three layers of four carry a state by the gated
 * delta rule, the fourth is attention whose q makes a gate of the output too, and rotates a quarter of each head. The
 * weights of norms are distances from 1, but for that of the gated norm. */
#include <string.h>

#include "model/qwen3_5.h"
#include "model/qwen_vl.h"

static const struct tt_attention_names attention_names = {TT_ATTENTION_NAMES};
static const struct tt_mlp_names mlp_names = {TT_MLP_NAMES, .norm = "post_attention_layernorm"};
static const struct tt_recurrence_names recurrence_names = {.module = "linear_attn",
                                                            .in = "linear_attn.in_proj_qkv",
                                                            .gate = "linear_attn.in_proj_z",
                                                            .rate_b = "linear_attn.in_proj_b",
                                                            .rate_a = "linear_attn.in_proj_a",
                                                            .out = "linear_attn.out_proj",
                                                            .conv = "linear_attn.conv1d",
                                                            .activation = "linear_attn.act",
                                                            .gate_norm = "linear_attn.norm",
                                                            .norm = "input_layernorm"};

/* The class's where the configuration has none. */
static const int32_t default_sections[4] = {11, 11, 10, 0};

static tt_status parse_state(const struct tt_json *json, struct tt_qwen3_5 *qwen, struct tt_kv_states *state)
{
    int64_t kernel = 4;
    *state = (struct tt_kv_states){.heads = 32, .rows = 128, .columns = 128};
    qwen->key_heads = 16;
    TT_TRY(tt_family_parse_size(json, "linear_num_value_heads", 1 << 14, &state->heads));
    TT_TRY(tt_family_parse_size(json, "linear_num_key_heads", 1 << 14, &qwen->key_heads));
    TT_TRY(tt_family_parse_size(json, "linear_key_head_dim", TT_SCAN_WIDTH_MAX, &state->rows));
    TT_TRY(tt_family_parse_size(json, "linear_value_head_dim", TT_SCAN_WIDTH_MAX, &state->columns));
    TT_TRY(tt_family_parse_size(json, "linear_conv_kernel_dim", TT_CONV1D_KERNEL_MAX, &kernel));
    TT_TRY(tt_family_check_range(json, "linear_key_head_dim * linear_value_head_dim",
                                 state->rows * state->columns, 1, TT_SCAN_STATE_MAX));
    if (state->heads % qwen->key_heads != 0)
        return tt_fail(TT_ERR_DATA, "%s: linear_num_value_heads is not a multiple of linear_num_key_heads",
                       json->origin);
    state->conv_rows = kernel - 1;
    state->conv_columns = 2 * qwen->key_heads * state->rows + state->heads * state->columns;
    return TT_OK;
}

/* Every fourth layer is attention where layer_types is missing. */
static tt_status parse_layers(const struct tt_json *json, const struct tt_kv_states *state,
                              struct tt_model_facts *facts)
{
    static const char *const names[] = {"full_attention", "linear_attention"};
    bool linear[TT_MODEL_LAYERS_MAX];
    int64_t interval = 4;
    TT_TRY(tt_family_parse_size(json, "full_attention_interval", INT32_MAX, &interval));
    for (int64_t i = 0; i < facts->num_hidden_layers; i++) linear[i] = (i + 1) % interval != 0;
    TT_TRY(tt_family_parse_layer_kinds(json, "layer_types", facts, names, linear));
    for (int64_t i = 0; i < facts->num_hidden_layers; i++)
        if (linear[i]) facts->layers[i] = (struct tt_layer_facts){.rope = -1, .state = *state};
    return TT_OK;
}

tt_status tt_qwen3_5_parse(const struct tt_json *json, const struct tt_decoder_defaults *defaults,
                           const struct tt_rope_rules *rules, struct tt_model_facts *facts)
{
    struct tt_qwen3_5 *qwen = TT_FAMILY_OWN(facts, struct tt_qwen3_5);
    struct tt_rope_rules of_heads = *rules;
    struct tt_kv_states state;
    TT_TRY(tt_family_parse_shape(json, defaults, facts, &qwen->shape));
    TT_TRY(tt_family_parse_activation(json, "hidden_act", &qwen->shape.activation));
    TT_TRY(tt_json_opt_bool(json, json->root, "attention_bias", &qwen->attention_bias));
    TT_TRY(parse_state(json, qwen, &state));
    TT_TRY(parse_layers(json, &state, facts));
    facts->rope_count = 1;
    of_heads.head_dim = qwen->shape.head_dim;
    return tt_family_parse_rope(json, &of_heads, facts, &facts->ropes[0]);
}

tt_status tt_qwen3_5_parse_vl(const struct tt_json *json, const struct tt_decoder_defaults *defaults,
                              struct tt_model_facts *facts)
{
    struct tt_qwen3_5 *qwen = TT_FAMILY_OWN(facts, struct tt_qwen3_5);
    memcpy(qwen->sections, default_sections, sizeof default_sections);
    TT_TRY(tt_qwen_vl_read_sections(json, qwen->sections));
    return tt_qwen3_5_parse(json, defaults, &(struct tt_rope_rules){.partial = 0.25, .sections = true},
                            facts);
}

static tt_status parse(const struct tt_json *json, struct tt_model_facts *facts)
{
    const struct tt_decoder_defaults defaults = {
        .vocab = 248320, .heads = 16, .kv_heads = 4, .head_dim = 256, .positions = 32768};
    return tt_qwen3_5_parse_vl(json, &defaults, facts);
}

tt_status tt_qwen3_5_parse_experts(const struct tt_json *json, const struct tt_mixture_defaults *defaults,
                                   struct tt_model_facts *facts)
{
    struct tt_mixture *mixture = &TT_FAMILY_OWN(facts, struct tt_qwen3_5)->mixture;
    mixture->shared_ffn = 512;
    mixture->rule =
        (struct tt_route_rule){.score = TT_ROUTE_SOFTMAX, .normalizes = true, .rounds_weights = true};
    TT_TRY(tt_mixture_parse(json, defaults, facts, mixture));
    TT_TRY(tt_mixture_parse_balance(json, 0.001, mixture, facts));
    return tt_family_parse_size(json, "shared_expert_intermediate_size", 1 << 22, &mixture->shared_ffn);
}

void tt_qwen3_5_build_with(const struct tt_model_facts *facts, struct tt_builder *builder,
                           const struct tt_recurrence_names *names)
{
    const struct tt_qwen3_5 *qwen = TT_FAMILY_OWN_CONST(facts, struct tt_qwen3_5);
    const struct tt_decoder_shape *shape = &qwen->shape;
    struct tt_attention_spec attention = {.names = &attention_names,
                                          .heads = shape->heads,
                                          .norm_eps = shape->norm_eps,
                                          .norm_offset = true,
                                          .bias = qwen->attention_bias,
                                          .output_bias = qwen->attention_bias,
                                          .qk_norm = true,
                                          .gates_heads = true};
    struct tt_mlp_spec mlp = {.names = &mlp_names,
                              .ffn = shape->ffn,
                              .norm_eps = shape->norm_eps,
                              .norm_offset = true,
                              .bypassed = qwen->mixture.bypassed,
                              .activation = shape->activation};
    struct tt_recurrence_spec recurrence = {.names = names,
                                            .rule = TT_SCAN_DELTA,
                                            .key_heads = qwen->key_heads,
                                            .norm_eps = shape->norm_eps,
                                            .gate_eps = shape->norm_eps,
                                            .norm_offset = true,
                                            .gate_by_head = true};
    struct tt_experts_spec experts = tt_mixture_spec(&qwen->mixture, shape, &tt_mixture_gated_names);
    experts.norm_offset = true;
    tt_build_decoder(builder, facts,
                     &(struct tt_decoder_spec){.attention = &attention,
                                               .mlp = &mlp,
                                               .experts = &experts,
                                               .recurrence = &recurrence,
                                               .embedding_scale = 1,
                                               .norm = {.eps = shape->norm_eps, .offset = true}});
}

void tt_qwen3_5_build(const struct tt_model_facts *facts, struct tt_builder *builder)
{
    tt_qwen3_5_build_with(facts, builder, &recurrence_names);
}

const struct tt_gguf_name tt_qwen3_5_gguf_names[] = {
    {"post_attention_layernorm", "post_attention_norm", false},
    {"linear_attn.in_proj_qkv", "attn_qkv", false},
    {"linear_attn.in_proj_z", "attn_gate", false},
    {"linear_attn.in_proj_qkvz", "attn_qkv attn_gate", false}, /* Qwen3-Next's */
    {"linear_attn.in_proj_ba", "ssm_ba", false},
    {"linear_attn.in_proj_a", "ssm_alpha", false},
    {"linear_attn.in_proj_b", "ssm_beta", false},
    {"linear_attn.conv1d", "ssm_conv1d", false},
    {"linear_attn.norm", "ssm_norm", false},
    {"linear_attn.out_proj", "ssm_out", false},
    {"linear_attn.A_log", "ssm_a", false},
    {"linear_attn.dt_bias", "ssm_dt.bias", false},
    TT_SHARED_GGUF_NAMES("mlp.shared_expert"),
    {"mlp.shared_expert_gate", "ffn_gate_inp_shexp", false},
    {NULL, NULL, false},
};

/* Every `interval`-th layer, and no other, is attention; 0: there is no such number. */
static int64_t interval_of(const struct tt_model_facts *facts)
{
    int64_t interval = 1;
    while (interval <= facts->num_hidden_layers && facts->layers[interval - 1].state.heads > 0) interval++;
    if (interval > facts->num_hidden_layers) return 0;
    for (int64_t i = 0; i < facts->num_hidden_layers; i++)
        if ((facts->layers[i].state.heads > 0) != ((i + 1) % interval != 0)) return 0;
    return interval;
}

void tt_qwen3_5_gguf_keys(const struct tt_model_facts *facts, struct tt_gguf_keys *keys)
{
    const struct tt_qwen3_5 *qwen = TT_FAMILY_OWN_CONST(facts, struct tt_qwen3_5);
    const struct tt_kv_states *state = tt_family_state(facts);
    tt_gguf_add_decoder(facts, &qwen->shape, keys);
    if (qwen->sections[0] > 0) tt_gguf_add_i32s(keys, "rope.dimension_sections", qwen->sections, 4);
    tt_gguf_add_u32(keys, "full_attention_interval", interval_of(facts));
    tt_gguf_add_u32(keys, "ssm.conv_kernel", state->conv_rows + 1);
    tt_gguf_add_u32(keys, "ssm.state_size", state->rows);
    tt_gguf_add_u32(keys, "ssm.group_count", qwen->key_heads);
    tt_gguf_add_u32(keys, "ssm.time_step_rank", state->heads);
    tt_gguf_add_u32(keys, "ssm.inner_size", state->heads * state->columns);
}

/* Value heads lie one for each key head there, and not all of a key head together (conversion/qwen.py of llama.cpp). */
void tt_qwen3_5_gguf_arrange(const struct tt_model_facts *facts, const char *tensor,
                             struct tt_gguf_arrangement *arrangement)
{
    const struct tt_qwen3_5 *qwen = TT_FAMILY_OWN_CONST(facts, struct tt_qwen3_5);
    const struct tt_kv_states *state = tt_family_state(facts);
    const int64_t keys = 2 * qwen->key_heads * state->rows, values = state->columns;
    const struct {
        const char *name;
        int64_t first, size;
    } moved[] = {
        {"in_proj_qkv.weight", keys, values},
        {"conv1d.weight", keys, values},
        {"in_proj_z.weight", 0, values},
        {"out_proj.weight", 0, values},
        {"in_proj_a.weight", 0, 1},
        {"in_proj_b.weight", 0, 1},
        {"A_log", 0, 1},
        {"dt_bias", 0, 1},
    };
    if (strncmp(tensor, "linear_attn.", 12) != 0) return;
    for (size_t i = 0; i < sizeof moved / sizeof *moved; i++) {
        if (strcmp(tensor + 12, moved[i].name) != 0) continue;
        *arrangement = (struct tt_gguf_arrangement){.first = moved[i].first,
                                                    .groups = qwen->key_heads,
                                                    .each = state->heads / qwen->key_heads,
                                                    .size = moved[i].size,
                                                    .columns = strcmp(moved[i].name, "out_proj.weight") == 0,
                                                    .negated_exp = strcmp(moved[i].name, "A_log") == 0};
    }
}

const char *tt_qwen3_5_cannot(const struct tt_model_facts *facts)
{
    const struct tt_qwen3_5 *qwen = TT_FAMILY_OWN_CONST(facts, struct tt_qwen3_5);
    if (qwen->attention_bias) return "attention_bias of this model type";
    if (qwen->shape.activation != TT_ACTIVATION_SILU)
        return "an activation other than silu of this model type";
    const struct tt_kv_states *state = tt_family_state(facts);
    if (state != NULL && state->rows != state->columns)
        return "a linear_value_head_dim other than linear_key_head_dim";
    return interval_of(facts) < 2 ? "layers of attention other than every n-th of this model type" : NULL;
}

static const struct tt_gguf_family gguf = {.name = "qwen35",
                                           .names = tt_qwen3_5_gguf_names,
                                           .add_keys = tt_qwen3_5_gguf_keys,
                                           .arrange = tt_qwen3_5_gguf_arrange,
                                           .cannot = tt_qwen3_5_cannot};

const struct tt_model_family tt_family_qwen3_5 = {
    .model_type = "qwen3_5_text",
    .architecture = "Qwen3_5ForCausalLM",
    .gguf = &gguf,
    .parse = parse,
    .build = tt_qwen3_5_build,
};
