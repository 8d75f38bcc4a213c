/* gpt-oss (GptOssConfig): a score of no key (a sink) for each head, windows in every second layer, and experts with
 * biases and a clamped gated unit, whose rows of gate and up are in turn. Files hold experts as transposed tensors, or
 * as published in MXFP4, whose decoded tensors are not transposed (io/mxfp4.h). */
#include <math.h>

#include "backend/ops/swiglu.h"
#include "model/mixture.h"

static const struct tt_attention_names attention_names = {TT_ATTENTION_LINEARS, .norm = "input_layernorm",
                                                          .sinks = "sinks"};
static const struct tt_experts_names experts_names = {.module = "mlp",
                                                      .router = "mlp.router",
                                                      .experts = "mlp.experts",
                                                      .gate_up = "gate_up_proj",
                                                      .gate_up_bias = "gate_up_proj_bias",
                                                      .down = "down_proj",
                                                      .down_bias = "down_proj_bias",
                                                      .transposed = true,
                                                      .in_turn = true,
                                                      .norm = "post_attention_layernorm"};

/* Gate has the even rows of a tensor, up the odd ones. */
#define EXPERTS "layers.#.mlp.experts."
#define IN_TURN(name, ...)                                                                                   \
    {                                                                                                        \
        {.tensor = EXPERTS name, .units = 2, .unit = 0, .unit_rows = 1, __VA_ARGS__},                        \
        {                                                                                                    \
            .tensor = EXPERTS name, .units = 2, .unit = 1, .unit_rows = 1, __VA_ARGS__                       \
        }                                                                                                    \
    }
static const struct tt_param_source sources[] = {
    {.param = EXPERTS "gate_up_proj", .parts = IN_TURN("gate_up_proj", .transposed = true)},
    {.param = EXPERTS "gate_up_proj", .parts = IN_TURN("gate_up_proj_blocks", .transposed = false)},
    {.param = EXPERTS "gate_up_proj_bias",
     .parts = IN_TURN("gate_up_proj_bias", .transposed = false),
     .vector = true},
    {.param = EXPERTS "down_proj", .parts = {{.tensor = EXPERTS "down_proj", .transposed = true}}},
    {.param = EXPERTS "down_proj", .parts = {{.tensor = EXPERTS "down_proj_blocks"}}},
    {.param = NULL},
};

static bool has(const struct tt_json *json, const char *key)
{
    const struct tt_json_value *value = tt_json_get(json->root, key);
    return value != NULL && !tt_json_is_null(value);
}

/* GptOssConfig without rope_parameters: YaRN, whose borders are not rounded. */
static void set_rotation(const struct tt_json *json, struct tt_rope *rope)
{
    int64_t columns = rope->columns;
    double theta = rope->theta;
    if (has(json, "rope_scaling") || has(json, "rope_parameters")) return;
    *rope = (struct tt_rope){.type = TT_ROPE_YARN,
                             .theta = theta,
                             .factor = 32,
                             .original_max_position = 4096,
                             .attention_factor = 0.1 * log(32) + 1,
                             .beta_fast = 32,
                             .beta_slow = 1,
                             .columns = columns};
}

static tt_status check_number(const struct tt_json *json, const char *key, double served)
{
    double value = served;
    TT_TRY(tt_json_opt_double(json, json->root, key, &value));
    if (value == served) return TT_OK;
    return tt_fail(TT_ERR_UNSUPPORTED, "%s: %s is %g; only %g is supported", json->origin, key, value,
                   served);
}

static tt_status parse(const struct tt_json *json, struct tt_model_facts *facts)
{
    struct tt_dense_mixture *own = TT_FAMILY_OWN(facts, struct tt_dense_mixture);
    const struct tt_decoder_defaults defaults = {.vocab = 201088,
                                                 .heads = 64,
                                                 .kv_heads = 8,
                                                 .head_dim = 64,
                                                 .ffn = 2880,
                                                 .positions = 131072,
                                                 .rope_theta = 150000};
    const struct tt_mixture_defaults experts = {
        .count = 128, .slots = 4, .ffn = 2880, .ffn_key = "intermediate_size"};
    bool bias = true;
    TT_TRY(tt_dense_parse(json, &defaults, 1e-5, NULL, facts));
    set_rotation(json, &facts->ropes[0]);
    TT_TRY(tt_dense_parse_windows(json, 2, facts));
    for (int64_t i = 0; i < facts->num_hidden_layers && !has(json, "sliding_window"); i++)
        if (facts->layers[i].window > 0) facts->layers[i].window = 128;
    TT_TRY(tt_mixture_parse(json, &experts, facts, &own->mixture));
    TT_TRY(tt_mixture_parse_balance(json, 0.001, &own->mixture, facts));
    TT_TRY(check_number(json, "swiglu_limit", 7));
    TT_TRY(check_number(json, "swiglu_alpha", 1.702));
    TT_TRY(tt_json_opt_bool(json, json->root, "attention_bias", &bias));
    own->dense.shape.activation = TT_ACTIVATION_CLAMPED;
    own->dense.attention_bias = own->dense.output_bias = bias;
    own->mixture.bias = true;
    own->mixture.rule = (struct tt_route_rule){.score = TT_ROUTE_CHOSEN, .rounds_weights = true};
    return TT_OK;
}

static void build(const struct tt_model_facts *facts, struct tt_builder *builder)
{
    tt_mixture_build(facts, builder, &attention_names, &experts_names);
}

static const struct tt_gguf_name gguf_names[] = {
    {"post_attention_layernorm", "post_attention_norm", false},
    {"self_attn.sinks", "attn_sinks.weight", false},
    {"mlp.router", "ffn_gate_inp", false},
    {"mlp.experts.gate_up_proj_bias", "ffn_gate_exps.bias ffn_up_exps.bias", false},
    {"mlp.experts.down_proj_bias", "ffn_down_exps.bias", false},
    {NULL, NULL, false},
};

static int64_t window_of(const struct tt_model_facts *facts)
{
    int64_t window = 0;
    for (int64_t i = 0; i < facts->num_hidden_layers && window == 0; i++) window = facts->layers[i].window;
    return window;
}

static void add_keys(const struct tt_model_facts *facts, struct tt_gguf_keys *keys)
{
    tt_dense_mixture_gguf_keys(facts, keys);
    tt_gguf_add_u32(keys, "attention.sliding_window", window_of(facts));
}

static const char *cannot(const struct tt_model_facts *facts)
{
    const struct tt_dense *dense = TT_FAMILY_OWN_CONST(facts, struct tt_dense);
    for (int64_t i = 0; i < facts->num_hidden_layers; i++)
        if ((facts->layers[i].window > 0) != (i % 2 == 0))
            return "layers without a window other than every second of this model type";
    if (facts->tie_word_embeddings) return "tied embeddings of this model type";
    return dense->attention_bias ? NULL : "attention_bias false of this model type";
}

/* The borders of the rotation are rounded by all readers. */
static const struct tt_gguf_family gguf = {.name = "gpt-oss",
                                           .windows = true,
                                           .yarn_keys = true,
                                           .untruncated = true,
                                           .names = gguf_names,
                                           .add_keys = add_keys,
                                           .cannot = cannot};

const struct tt_model_family tt_family_gpt_oss = {
    .model_type = "gpt_oss",
    .architecture = "GptOssForCausalLM",
    .gguf = &gguf,
    .sources = sources,
    .parse = parse,
    .build = build,
};
