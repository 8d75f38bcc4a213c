/* Gemma 3, text only (Gemma3TextConfig): four norms a layer with weights around 1, GELU, scaled embeddings, norms of q
 * and k, and most layers with a window and a rotation of their own. */
#include "model/gemma.h"

enum { ROPE_FULL, ROPE_SLIDING, ROPE_COUNT };

/* Scores have no cap here: the reference reads the key, and its attention does not apply it. */
static tt_status check_score_cap(const struct tt_json *json)
{
    const struct tt_json_value *cap = tt_json_get(json->root, "attn_logit_softcapping");
    if (cap == NULL || tt_json_is_null(cap)) return TT_OK;
    return tt_fail(TT_ERR_UNSUPPORTED, "%s: attn_logit_softcapping of a gemma3_text model is not supported",
                   json->origin);
}

/* Every sliding_window_pattern-th layer sees all keys where layer_types is missing. */
static tt_status parse_layers(const struct tt_json *json, struct tt_model_facts *facts)
{
    bool sliding[TT_MODEL_LAYERS_MAX];
    int64_t window = 4096, pattern = 6;
    TT_TRY(tt_json_opt_int(json, json->root, "sliding_window", &window));
    TT_TRY(tt_family_check_range(json, "sliding_window", window, 1, INT32_MAX));
    TT_TRY(tt_json_opt_int(json, json->root, "sliding_window_pattern", &pattern));
    TT_TRY(tt_family_check_range(json, "sliding_window_pattern", pattern, 1, INT32_MAX));
    for (int64_t i = 0; i < facts->num_hidden_layers; i++) sliding[i] = (i + 1) % pattern != 0;
    TT_TRY(tt_family_parse_layer_types(json, facts, sliding));
    for (int64_t i = 0; i < facts->num_hidden_layers; i++) {
        facts->layers[i].window = sliding[i] ? window : 0;
        facts->layers[i].rope = sliding[i] ? ROPE_SLIDING : ROPE_FULL;
    }
    return TT_OK;
}

static tt_status parse(const struct tt_json *json, struct tt_model_facts *facts)
{
    struct tt_gemma *gemma = TT_FAMILY_OWN(facts, struct tt_gemma);
    TT_TRY(check_score_cap(json));
    TT_TRY(tt_gemma_parse(json, 262208, 131072, facts));
    TT_TRY(tt_gemma_parse_cap(json, "final_logit_softcapping", 0, &gemma->logit_cap));
    gemma->qk_norm = true;
    TT_TRY(parse_layers(json, facts));
    struct tt_rope_rules full = {
        .head_dim = gemma->shape.head_dim, .theta = 1e6, .layer_type = "full_attention"};
    struct tt_rope_rules sliding = {.head_dim = gemma->shape.head_dim,
                                    .theta = 1e4,
                                    .layer_type = "sliding_attention",
                                    .theta_key = "rope_local_base_freq",
                                    .unscaled = true};
    facts->rope_count = ROPE_COUNT;
    TT_TRY(tt_family_parse_rope(json, &full, facts, &facts->ropes[ROPE_FULL]));
    return tt_family_parse_rope(json, &sliding, facts, &facts->ropes[ROPE_SLIDING]);
}

enum { GGUF_PERIOD = 6, GGUF_LARGE = 62 };

static void add_keys(const struct tt_model_facts *facts, struct tt_gguf_keys *keys)
{
    tt_gguf_add_decoder(facts, &TT_FAMILY_OWN_CONST(facts, struct tt_gemma)->shape, keys);
    tt_gguf_add_u32(keys, "attention.sliding_window", facts->layers[0].window);
}

static const char *cannot(const struct tt_model_facts *facts)
{
    const struct tt_gemma *gemma = TT_FAMILY_OWN_CONST(facts, struct tt_gemma);
    if (gemma->attention_bias) return "attention_bias of this model type";
    if (gemma->logit_cap > 0) return "final_logit_softcapping of this model type";
    if (tt_gemma_cannot_activation(&gemma->shape) != NULL) return tt_gemma_cannot_activation(&gemma->shape);
    if (!tt_gemma_gguf_has_windows(facts, GGUF_PERIOD))
        return "layers without a window other than every sixth";
    if (facts->ropes[ROPE_SLIDING].theta != 1e4)
        return "a rope_theta of layers with a window other than 10000";
    if (!tt_gemma_gguf_has_scale(facts, &gemma->shape, GGUF_LARGE, gemma->score_scale))
        return "this query_pre_attn_scalar";
    return NULL;
}

static const struct tt_gguf_family gguf = {
    .name = "gemma3", .windows = true, .names = tt_gemma_gguf_names, .add_keys = add_keys, .cannot = cannot};

const struct tt_model_family tt_family_gemma3 = {
    .model_type = "gemma3_text",
    .architecture = "Gemma3ForCausalLM",
    .default_target_modules = "[\"q_proj\", \"v_proj\"]",
    .gguf = &gguf,
    .parse = parse,
    .build = tt_gemma_build,
};
