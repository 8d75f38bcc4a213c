/* Mistral (MistralConfig): Llama with a sliding window over all layers, when sliding_window is not null. */
#include "model/llama.h"

#include <string.h>

static tt_status check_layer_types(const struct tt_json *json)
{
    size_t index;
    const struct tt_json_value *type;
    for (index = 0; (type = tt_json_at(tt_json_get(json->root, "layer_types"), index)) != NULL; index++) {
        const char *name = tt_json_text(type);
        if (name != NULL && strcmp(name, "sliding_attention") == 0) continue;
        tt_status status =
            tt_fail(TT_ERR_UNSUPPORTED, "%s: layer_types of a mistral model has layers without the window",
                    json->origin);
        tt_hint("the reference ignores layer_types here; set sliding_window to null, or remove layer_types");
        return status;
    }
    return TT_OK;
}

static tt_status parse(const struct tt_json *json, struct tt_model_facts *facts)
{
    const struct tt_json_value *value = tt_json_get(json->root, "sliding_window");
    int64_t window = 4096; /* MistralConfig's default where the key is missing */
    TT_TRY(tt_llama_parse(json, &(struct tt_decoder_defaults){.kv_heads = 8, .positions = 131072}, facts));
    if (value != NULL && tt_json_is_null(value)) return TT_OK;
    TT_TRY(tt_json_opt_int(json, json->root, "sliding_window", &window));
    if (window < 1) {
        return tt_fail(TT_ERR_DATA, "%s: sliding_window is %lld; it must be null or at least 1", json->origin,
                       (long long)window);
    }
    for (int64_t i = 0; i < facts->num_hidden_layers; i++) facts->layers[i].window = window;
    return check_layer_types(json);
}

static const struct tt_gguf_family gguf = {
    .name = "llama", .pairs = true, .add_keys = tt_llama_gguf_keys, .cannot = tt_llama_cannot_activation};

const struct tt_model_family tt_family_mistral = {
    .model_type = "mistral",
    .architecture = "MistralForCausalLM",
    .default_target_modules = "[\"q_proj\", \"v_proj\"]",
    .gguf = &gguf,
    .parse = parse,
    .build = tt_llama_build,
};
