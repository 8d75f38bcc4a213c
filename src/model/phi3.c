/* Phi-3, Phi-3.5 and Phi-4 without experts (Phi3Config): Llama with q, k and v
 * in one linear, gate and up in one, the first columns of a head rotated, and
 * LongRoPE. */
#include "base/log.h"
#include "model/llama.h"

enum { ORIGINAL_POSITIONS = 4096 }; /* where the key is missing */

struct phi3 {
    struct tt_decoder_shape shape;
    int64_t original_positions;
};

static const struct tt_attention_names attention_names = {
    .module = "self_attn", .norm = "input_layernorm", .qkv = "self_attn.qkv_proj", .o = "self_attn.o_proj"};
static const struct tt_mlp_names mlp_names = {.module = "mlp",
                                              .activation = "mlp.activation_fn",
                                              .norm = "post_attention_layernorm",
                                              .gate_up = "mlp.gate_up_proj",
                                              .down = "mlp.down_proj"};

/* null: none */
static tt_status parse_window(const struct tt_json *json, struct tt_model_facts *facts)
{
    const struct tt_json_value *value = tt_json_get(json->root, "sliding_window");
    int64_t window = 0;
    if (value == NULL || tt_json_is_null(value)) return TT_OK;
    TT_TRY(tt_json_int(json, json->root, "sliding_window", &window));
    TT_TRY(tt_family_check_range(json, "sliding_window", window, 1, INT32_MAX));
    for (int64_t i = 0; i < facts->num_hidden_layers; i++) facts->layers[i].window = window;
    return TT_OK;
}

static tt_status warn_of_dropout(const struct tt_json *json)
{
    static const char *const keys[] = {"resid_pdrop", "embd_pdrop"};
    for (int i = 0; i < 2; i++) {
        double dropout = 0;
        TT_TRY(tt_json_opt_double(json, json->root, keys[i], &dropout));
        if (dropout != 0) tt_warn("%s: %s %g is not applied in training", json->origin, keys[i], dropout);
    }
    return TT_OK;
}

static tt_status parse(const struct tt_json *json, struct tt_model_facts *facts)
{
    struct phi3 *phi3 = TT_FAMILY_OWN(facts, struct phi3);
    TT_TRY(
        tt_family_parse_shape(json, &(struct tt_decoder_defaults){.positions = 4096}, facts, &phi3->shape));
    TT_TRY(tt_family_parse_activation(json, "hidden_act", &phi3->shape.activation));
    if (tt_json_get(json->root, "rms_norm_eps") == NULL) phi3->shape.norm_eps = 1e-5;
    phi3->original_positions = ORIGINAL_POSITIONS;
    TT_TRY(tt_json_opt_int(json, json->root, "original_max_position_embeddings", &phi3->original_positions));
    TT_TRY(tt_family_check_range(json, "original_max_position_embeddings", phi3->original_positions, 1,
                                 INT32_MAX));
    TT_TRY(warn_of_dropout(json));
    TT_TRY(parse_window(json, facts));
    struct tt_rope_rules rules = {
        .head_dim = phi3->shape.head_dim, .phi3 = true, .original_positions = ORIGINAL_POSITIONS};
    facts->rope_count = 1;
    return tt_family_parse_rope(json, &rules, facts, &facts->ropes[0]);
}

static void build(const struct tt_model_facts *facts, struct tt_builder *builder)
{
    const struct tt_decoder_shape *shape = &TT_FAMILY_OWN_CONST(facts, struct phi3)->shape;
    struct tt_attention_spec attention = {
        .names = &attention_names, .heads = shape->heads, .norm_eps = shape->norm_eps};
    struct tt_mlp_spec mlp = {
        .names = &mlp_names, .ffn = shape->ffn, .norm_eps = shape->norm_eps, .activation = shape->activation};
    tt_build_decoder(
        builder, facts,
        &(struct tt_decoder_spec){
            .attention = &attention, .mlp = &mlp, .embedding_scale = 1, .norm = {.eps = shape->norm_eps}});
}

static const struct tt_gguf_name gguf_names[] = {
    {"self_attn.qkv_proj", "attn_qkv", false},
    {"mlp.gate_up_proj", "ffn_up", false},
    {NULL, NULL, false},
};

/* A window of 0 is how llama.cpp knows Phi-4. */
static void add_keys(const struct tt_model_facts *facts, struct tt_gguf_keys *keys)
{
    const struct phi3 *phi3 = TT_FAMILY_OWN_CONST(facts, struct phi3);
    const struct tt_rope *rope = &facts->ropes[0];
    bool longrope = rope->type == TT_ROPE_LONGROPE;
    tt_gguf_add_decoder(facts, &phi3->shape, keys);
    tt_gguf_add_u32(keys, "attention.sliding_window", facts->layers[0].window);
    tt_gguf_add_u32(keys, "rope.scaling.original_context_length",
                    longrope ? rope->original_max_position : phi3->original_positions);
    if (longrope) tt_gguf_add_f32(keys, "rope.scaling.attn_factor", rope->attention_factor);
}

static const char *cannot(const struct tt_model_facts *facts)
{
    const struct phi3 *phi3 = TT_FAMILY_OWN_CONST(facts, struct phi3);
    return phi3->shape.activation != TT_ACTIVATION_SILU ? "an activation other than silu of this model type"
                                                        : NULL;
}

static const struct tt_gguf_family gguf = {.name = "phi3",
                                           .windows = true,
                                           .longrope = true,
                                           .names = gguf_names,
                                           .add_keys = add_keys,
                                           .cannot = cannot};

const struct tt_model_family tt_family_phi3 = {
    .model_type = "phi3",
    .architecture = "Phi3ForCausalLM",
    .gguf = &gguf,
    .parse = parse,
    .build = build,
};
