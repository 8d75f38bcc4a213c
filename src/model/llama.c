/* Llama 1, 2, 3 and 3.x, and models of the same architecture (LlamaConfig). */
#include "model/llama.h"

static const struct tt_attention_names attention_names = {TT_ATTENTION_NAMES};
static const struct tt_mlp_names mlp_names = {TT_MLP_NAMES, .norm = "post_attention_layernorm"};

tt_status tt_llama_parse(const struct tt_json *json, const struct tt_decoder_defaults *defaults,
                         struct tt_model_facts *facts)
{
    struct tt_llama *llama = TT_FAMILY_OWN(facts, struct tt_llama);
    TT_TRY(tt_family_parse_shape(json, defaults, facts, &llama->shape));
    TT_TRY(tt_family_parse_activation(json, "hidden_act", &llama->shape.activation));
    facts->rope_count = 1;
    struct tt_rope_rules rules = {
        .head_dim = llama->shape.head_dim, .theta = defaults->rope_theta, .sections = defaults->sections};
    return tt_family_parse_rope(json, &rules, facts, &facts->ropes[0]);
}

void tt_llama_build(const struct tt_model_facts *facts, struct tt_builder *builder)
{
    const struct tt_llama *llama = TT_FAMILY_OWN_CONST(facts, struct tt_llama);
    const struct tt_decoder_shape *shape = &llama->shape;
    struct tt_attention_spec attention = {.names = &attention_names,
                                          .heads = shape->heads,
                                          .norm_eps = shape->norm_eps,
                                          .bias = llama->attention_bias,
                                          .output_bias = llama->output_bias,
                                          .qk_norm = llama->qk_norm};
    struct tt_mlp_spec mlp = {.names = &mlp_names,
                              .ffn = shape->ffn,
                              .norm_eps = shape->norm_eps,
                              .bias = llama->mlp_bias,
                              .activation = shape->activation};
    tt_build_decoder(
        builder, facts,
        &(struct tt_decoder_spec){
            .attention = &attention, .mlp = &mlp, .embedding_scale = 1, .norm = {.eps = shape->norm_eps}});
}

void tt_llama_gguf_keys(const struct tt_model_facts *facts, struct tt_gguf_keys *keys)
{
    tt_gguf_add_decoder(facts, &TT_FAMILY_OWN_CONST(facts, struct tt_llama)->shape, keys);
}

const char *tt_llama_cannot_activation(const struct tt_model_facts *facts)
{
    const struct tt_llama *llama = TT_FAMILY_OWN_CONST(facts, struct tt_llama);
    return llama->shape.activation != TT_ACTIVATION_SILU ? "an activation other than silu of this model type"
                                                         : NULL;
}

const char *tt_llama_cannot_bias(const struct tt_model_facts *facts)
{
    const struct tt_llama *llama = TT_FAMILY_OWN_CONST(facts, struct tt_llama);
    if (llama->shape.activation != TT_ACTIVATION_SILU) return tt_llama_cannot_activation(facts);
    return llama->output_bias || llama->mlp_bias ? "biases of o_proj and the MLP of this model type" : NULL;
}

static tt_status parse(const struct tt_json *json, struct tt_model_facts *facts)
{
    struct tt_llama *llama = TT_FAMILY_OWN(facts, struct tt_llama);
    TT_TRY(tt_llama_parse(json, &(struct tt_decoder_defaults){.positions = 2048}, facts));
    TT_TRY(tt_json_opt_bool(json, json->root, "attention_bias", &llama->attention_bias));
    llama->output_bias = llama->attention_bias;
    return tt_json_opt_bool(json, json->root, "mlp_bias", &llama->mlp_bias);
}

static const struct tt_gguf_family gguf = {
    .name = "llama", .pairs = true, .add_keys = tt_llama_gguf_keys, .cannot = tt_llama_cannot_activation};

const struct tt_model_family tt_family_llama = {
    .model_type = "llama",
    .architecture = "LlamaForCausalLM",
    .default_target_modules = "[\"q_proj\", \"v_proj\"]",
    .gguf = &gguf,
    .parse = parse,
    .build = tt_llama_build,
};
