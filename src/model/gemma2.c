/* Gemma 2 (Gemma2Config): four norms a layer with weights around 1, GELU, scaled embeddings, caps on scores and logits,
 * and a window in every other layer. */
#include "model/gemma.h"

/* The first layer has the window, the second sees all keys, and so on, where layer_types is missing. A window of null
 * is none. */
static tt_status parse_windows(const struct tt_json *json, struct tt_model_facts *facts)
{
    const struct tt_json_value *value = tt_json_get(json->root, "sliding_window");
    bool sliding[TT_MODEL_LAYERS_MAX];
    int64_t window = 4096;
    TT_TRY(tt_json_opt_int(json, json->root, "sliding_window", &window));
    TT_TRY(tt_family_check_range(json, "sliding_window", window, 1, INT32_MAX));
    if (value != NULL && tt_json_is_null(value)) window = 0;
    for (int64_t i = 0; i < facts->num_hidden_layers; i++) sliding[i] = i % 2 == 0;
    TT_TRY(tt_family_parse_layer_types(json, facts, sliding));
    for (int64_t i = 0; i < facts->num_hidden_layers; i++) facts->layers[i].window = sliding[i] ? window : 0;
    return TT_OK;
}

static tt_status parse(const struct tt_json *json, struct tt_model_facts *facts)
{
    struct tt_gemma *gemma = TT_FAMILY_OWN(facts, struct tt_gemma);
    TT_TRY(tt_gemma_parse(json, 256000, 8192, facts));
    TT_TRY(tt_gemma_parse_cap(json, "attn_logit_softcapping", 50, &gemma->score_cap));
    TT_TRY(tt_gemma_parse_cap(json, "final_logit_softcapping", 30, &gemma->logit_cap));
    TT_TRY(parse_windows(json, facts));
    struct tt_rope_rules rules = {.head_dim = gemma->shape.head_dim};
    facts->rope_count = 1;
    return tt_family_parse_rope(json, &rules, facts, &facts->ropes[0]);
}

enum { GGUF_PERIOD = 2, GGUF_LARGE = 46 };

static void add_keys(const struct tt_model_facts *facts, struct tt_gguf_keys *keys)
{
    const struct tt_gemma *gemma = TT_FAMILY_OWN_CONST(facts, struct tt_gemma);
    tt_gguf_add_decoder(facts, &gemma->shape, keys);
    tt_gguf_add_f32(keys, "attn_logit_softcapping", gemma->score_cap);
    tt_gguf_add_f32(keys, "final_logit_softcapping", gemma->logit_cap);
    tt_gguf_add_u32(keys, "attention.sliding_window", facts->layers[0].window);
}

static const char *cannot(const struct tt_model_facts *facts)
{
    const struct tt_gemma *gemma = TT_FAMILY_OWN_CONST(facts, struct tt_gemma);
    if (gemma->attention_bias) return "attention_bias of this model type";
    if (tt_gemma_cannot_activation(&gemma->shape) != NULL) return tt_gemma_cannot_activation(&gemma->shape);
    if (!facts->tie_word_embeddings) return "a head of its own of this model type";
    if (gemma->score_cap == 0 || gemma->logit_cap == 0) return "a model of this type without caps";
    if (!tt_gemma_gguf_has_windows(facts, GGUF_PERIOD))
        return "layers without a window other than every second";
    if (!tt_gemma_gguf_has_scale(facts, &gemma->shape, GGUF_LARGE, gemma->score_scale))
        return "this query_pre_attn_scalar";
    return NULL;
}

static const struct tt_gguf_family gguf = {
    .name = "gemma2", .windows = true, .names = tt_gemma_gguf_names, .add_keys = add_keys, .cannot = cannot};

const struct tt_model_family tt_family_gemma2 = {
    .model_type = "gemma2",
    .architecture = "Gemma2ForCausalLM",
    .default_target_modules = "[\"q_proj\", \"v_proj\"]",
    .gguf = &gguf,
    .parse = parse,
    .build = tt_gemma_build,
};
