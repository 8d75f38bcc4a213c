/* Mistral (MistralConfig): Llama with a sliding window over all layers, when sliding_window is not null. */
#include "model/family.h"

#include <string.h>

static tt_status configure(const struct tt_json *json, struct tt_model_config *config)
{
    const struct tt_json_value *window = tt_json_get(json->root, "sliding_window");
    if (window != NULL && tt_json_is_null(window)) return TT_OK;
    config->sliding_window = 4096; /* MistralConfig's default where the key is missing */
    TT_TRY(tt_json_opt_int(json, json->root, "sliding_window", &config->sliding_window));
    if (config->sliding_window < 1) {
        return tt_fail(TT_ERR_DATA, "%s: sliding_window is %lld; it must be null or at least 1", json->origin,
                       (long long)config->sliding_window);
    }
    memset(config->window_layers, 1, (size_t)config->num_hidden_layers);
    size_t index;
    const struct tt_json_value *type;
    for (index = 0; (type = tt_json_at(tt_json_get(json->root, "layer_types"), index)) != NULL; index++) {
        const char *name = tt_json_text(type);
        if (name == NULL || strcmp(name, "sliding_attention") != 0) {
            tt_status status =
                tt_fail(TT_ERR_UNSUPPORTED,
                        "%s: layer_types of a mistral model has layers without the window", json->origin);
            tt_hint(
                "the reference ignores layer_types here; set sliding_window to null, or remove layer_types");
            return status;
        }
    }
    return TT_OK;
}

const struct tt_model_family tt_family_mistral = {
    .model_type = "mistral",
    .architecture = "MistralForCausalLM",
    .default_kv_heads = 8,
    .default_max_position = 131072,
    .default_target_modules = "[\"q_proj\", \"v_proj\"]",
    .configure = configure,
};
