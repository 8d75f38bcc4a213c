/* EXAONE 4 (Exaone4Config): norms behind the halves and none before them, q and k normed per head. Where layers have a
 * window, those without one do not rotate. */
#include "model/dense.h"

static tt_status parse(const struct tt_json *json, struct tt_model_facts *facts)
{
    struct tt_dense *dense = TT_FAMILY_OWN(facts, struct tt_dense);
    struct tt_decoder_defaults defaults = {.kv_heads = 32, .positions = 2048};
    const struct tt_json_value *window = tt_json_get(json->root, "sliding_window"),
                               *listed = tt_json_get(json->root, "layer_types");
    int64_t pattern = 4;
    TT_TRY(tt_dense_parse(json, &defaults, 1e-5, NULL, facts));
    dense->qk_norm = true;
    if (window != NULL && tt_json_is_null(window)) return TT_OK;
    /* The pattern may also be letters, beside a list that says the same. */
    if (listed == NULL || tt_json_is_null(listed))
        TT_TRY(tt_json_opt_int(json, json->root, "sliding_window_pattern", &pattern));
    TT_TRY(tt_family_check_range(json, "sliding_window_pattern", pattern, 1, INT32_MAX));
    TT_TRY(tt_dense_parse_windows(json, pattern, facts));
    for (int64_t i = 0; i < facts->num_hidden_layers; i++)
        if (facts->layers[i].window == 0) facts->layers[i].rope = -1;
    return TT_OK;
}

enum { GGUF_LARGE = 64 };

static void add_keys(const struct tt_model_facts *facts, struct tt_gguf_keys *keys)
{
    tt_dense_gguf_keys(facts, keys);
    if (facts->layers[0].window > 0)
        tt_gguf_add_u32(keys, "attention.sliding_window", facts->layers[0].window);
}

/* llama.cpp knows the model with windows by its layers. */
static const char *cannot(const struct tt_model_facts *facts)
{
    const char *windows = tt_dense_cannot_windows(facts, 4);
    bool has_windows = facts->layers[0].window > 0, is_large = facts->num_hidden_layers == GGUF_LARGE;
    if (has_windows != is_large) return "windows of this model type in other than 64 layers";
    return windows != NULL ? windows : tt_dense_cannot(facts);
}

static const struct tt_gguf_family gguf = {.name = "exaone4",
                                           .windows = true,
                                           .names = tt_dense_post_gguf_names,
                                           .add_keys = add_keys,
                                           .cannot = cannot};

const struct tt_model_family tt_family_exaone4 = {
    .model_type = "exaone4",
    .architecture = "Exaone4ForCausalLM",
    .gguf = &gguf,
    .parse = parse,
    .build = tt_dense_build_post,
};
