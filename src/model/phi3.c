/* Phi-3, Phi-3.5 and Phi-4 without experts (Phi3Config): Llama with q, k and v
 * in one linear, gate and up in one, the first columns of a head rotated, and
 * LongRoPE. */
#include "base/log.h"
#include "model/llama.h"

struct phi3 {
    struct tt_decoder_shape shape;
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
    TT_TRY(tt_family_check_silu(json));
    TT_TRY(
        tt_family_parse_shape(json, &(struct tt_decoder_defaults){.positions = 4096}, facts, &phi3->shape));
    if (tt_json_get(json->root, "rms_norm_eps") == NULL) phi3->shape.norm_eps = 1e-5;
    TT_TRY(warn_of_dropout(json));
    TT_TRY(parse_window(json, facts));
    struct tt_rope_rules rules = {.head_dim = phi3->shape.head_dim, .partial = true, .longrope = true};
    facts->rope_count = 1;
    return tt_family_parse_rope(json, &rules, facts, &facts->ropes[0]);
}

static void build(const struct tt_model_facts *facts, struct tt_builder *builder)
{
    const struct tt_decoder_shape *shape = &TT_FAMILY_OWN_CONST(facts, struct phi3)->shape;
    struct tt_attention_spec attention = {
        .names = &attention_names, .heads = shape->heads, .norm_eps = shape->norm_eps};
    struct tt_mlp_spec mlp = {.names = &mlp_names, .ffn = shape->ffn, .norm_eps = shape->norm_eps};
    tt_build_decoder(
        builder, facts,
        &(struct tt_decoder_spec){
            .attention = &attention, .mlp = &mlp, .embedding_scale = 1, .norm = {.eps = shape->norm_eps}});
}

const struct tt_model_family tt_family_phi3 = {
    .model_type = "phi3",
    .architecture = "Phi3ForCausalLM",
    .parse = parse,
    .build = build,
};
