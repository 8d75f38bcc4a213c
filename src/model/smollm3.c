/* SmolLM3 (SmolLM3Config): Llama, some of whose layers have no rotation. no_rope_layers has 1 for a layer that rotates;
 * without this key every no_rope_layer_interval-th layer does not rotate. */
#include <inttypes.h>

#include "model/llama.h"

enum { DEFAULT_INTERVAL = 4 };

static tt_status parse_rotations(const struct tt_json *json, struct tt_model_facts *facts)
{
    const struct tt_json_value *list = tt_json_get(json->root, "no_rope_layers");
    int64_t interval = DEFAULT_INTERVAL;
    TT_TRY(tt_json_opt_int(json, json->root, "no_rope_layer_interval", &interval));
    TT_TRY(tt_family_check_range(json, "no_rope_layer_interval", interval, 1, INT32_MAX));
    bool listed = list != NULL && !tt_json_is_null(list);
    if (listed) TT_TRY(tt_json_array(json, json->root, "no_rope_layers", &list));
    if (listed && (int64_t)tt_json_count(list) < facts->num_hidden_layers)
        return tt_fail(TT_ERR_DATA, "%s: no_rope_layers has %zu entries for %" PRId64 " layers", json->origin,
                       tt_json_count(list), facts->num_hidden_layers);
    for (int64_t i = 0; i < facts->num_hidden_layers; i++) {
        bool rotates = (i + 1) % interval != 0;
        if (listed) {
            const struct tt_json_value *item = tt_json_at(list, (size_t)i);
            if (!tt_json_is_integer(item))
                return tt_fail(TT_ERR_DATA, "%s: no_rope_layers[%" PRId64 "] is not an integer", json->origin,
                               i);
            rotates = tt_json_integer(item) != 0;
        }
        if (!rotates) facts->layers[i].rope = -1;
    }
    return TT_OK;
}

/* The layers without rotation have the window where layer_types is missing. */
static tt_status parse_windows(const struct tt_json *json, struct tt_model_facts *facts)
{
    bool use = false, sliding[TT_MODEL_LAYERS_MAX];
    const struct tt_json_value *value = tt_json_get(json->root, "sliding_window");
    int64_t window = 0;
    TT_TRY(tt_json_opt_bool(json, json->root, "use_sliding_window", &use));
    if (!use || value == NULL || tt_json_is_null(value)) return TT_OK;
    TT_TRY(tt_json_int(json, json->root, "sliding_window", &window));
    TT_TRY(tt_family_check_range(json, "sliding_window", window, 1, INT32_MAX));
    for (int64_t i = 0; i < facts->num_hidden_layers; i++) sliding[i] = facts->layers[i].rope < 0;
    TT_TRY(tt_family_parse_layer_types(json, facts, sliding));
    for (int64_t i = 0; i < facts->num_hidden_layers; i++) facts->layers[i].window = sliding[i] ? window : 0;
    return TT_OK;
}

static tt_status parse(const struct tt_json *json, struct tt_model_facts *facts)
{
    struct tt_llama *llama = TT_FAMILY_OWN(facts, struct tt_llama);
    struct tt_decoder_defaults defaults = {.kv_heads = 4, .positions = 32768, .rope_theta = 2e6};
    if (tt_json_get(json->root, "tie_word_embeddings") == NULL) facts->tie_word_embeddings = true;
    TT_TRY(tt_llama_parse(json, &defaults, facts));
    TT_TRY(tt_json_opt_bool(json, json->root, "attention_bias", &llama->attention_bias));
    TT_TRY(tt_json_opt_bool(json, json->root, "mlp_bias", &llama->mlp_bias));
    llama->output_bias = llama->attention_bias;
    TT_TRY(parse_rotations(json, facts));
    return parse_windows(json, facts);
}

/* llama.cpp knows the interval only as a constant. */
static const char *cannot(const struct tt_model_facts *facts)
{
    const struct tt_llama *llama = TT_FAMILY_OWN_CONST(facts, struct tt_llama);
    if (llama->attention_bias || llama->mlp_bias) return "attention_bias and mlp_bias of this model type";
    if (tt_llama_cannot_activation(facts) != NULL) return tt_llama_cannot_activation(facts);
    for (int64_t i = 0; i < facts->num_hidden_layers; i++)
        if ((facts->layers[i].rope < 0) != ((i + 1) % DEFAULT_INTERVAL == 0))
            return "layers without rotation other than every fourth";
    return NULL;
}

static const struct tt_gguf_family gguf = {
    .name = "smollm3", .pairs = true, .add_keys = tt_llama_gguf_keys, .cannot = cannot};

const struct tt_model_family tt_family_smollm3 = {
    .model_type = "smollm3",
    .architecture = "SmolLM3ForCausalLM",
    .gguf = &gguf,
    .parse = parse,
    .build = tt_llama_build,
};
