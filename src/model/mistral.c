/* Mistral (MistralConfig): Llama with a sliding window over all layers, when sliding_window is not null. A folder of
 * its own with layer_types is read as Ministral's: the window is of the layers that the list has so. */
#include "model/llama.h"

/* AutoConfig of transformers makes a MinistralConfig of a configuration with the key; the class of a vision folder
 * makes a MistralConfig, which has no such key. */
static tt_status parse_types(const struct tt_json *json, struct tt_model_facts *facts,
                             bool sliding[TT_MODEL_LAYERS_MAX])
{
    for (int64_t i = 0; i < facts->num_hidden_layers; i++) sliding[i] = true;
    TT_TRY(tt_family_parse_layer_types(json, facts, sliding));
    for (int64_t i = 0; i < facts->num_hidden_layers && facts->part != NULL; i++) {
        if (sliding[i]) continue;
        tt_status status =
            tt_fail(TT_ERR_UNSUPPORTED, "%s: layer_types of a mistral model has layers without the window",
                    json->origin);
        tt_hint(
            "transformers ignores layer_types in a text_config of this type; set sliding_window to null, or "
            "remove layer_types");
        return status;
    }
    return TT_OK;
}

static tt_status parse(const struct tt_json *json, struct tt_model_facts *facts)
{
    const struct tt_json_value *value = tt_json_get(json->root, "sliding_window");
    bool sliding[TT_MODEL_LAYERS_MAX];
    int64_t window = 4096; /* MistralConfig's default where the key is missing */
    TT_TRY(tt_llama_parse(json, &(struct tt_decoder_defaults){.kv_heads = 8, .positions = 131072}, facts));
    if (value != NULL && tt_json_is_null(value)) return TT_OK;
    TT_TRY(tt_json_opt_int(json, json->root, "sliding_window", &window));
    if (window < 1) {
        return tt_fail(TT_ERR_DATA, "%s: sliding_window is %lld; it must be null or at least 1", json->origin,
                       (long long)window);
    }
    TT_TRY(parse_types(json, facts, sliding));
    for (int64_t i = 0; i < facts->num_hidden_layers; i++) facts->layers[i].window = sliding[i] ? window : 0;
    return TT_OK;
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
