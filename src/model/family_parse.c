/* Keys of config.json that most families read alike, for their parse(), and the keys of GGUF that follow from them. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "model/family.h"

#include "backend/ops/attention.h"

tt_status tt_family_check_range(const struct tt_json *json, const char *key, int64_t value, int64_t minimum,
                                int64_t maximum)
{
    if (value >= minimum && value <= maximum) return TT_OK;
    return tt_fail(TT_ERR_DATA, "%s: %s is %" PRId64 "; it must be between %" PRId64 " and %" PRId64,
                   json->origin, key, value, minimum, maximum);
}

tt_status tt_family_check_positive(const struct tt_json *json, const char *key, double value, double maximum)
{
    if (value > 0 && value <= maximum) return TT_OK; /* false for NaN */
    return tt_fail(TT_ERR_DATA, "%s: %s is %g; it must be above 0 and at most %g", json->origin, key, value,
                   maximum);
}

static tt_status read_size(const struct tt_json *json, const char *key, int64_t maximum, int64_t *out)
{
    TT_TRY(tt_json_int(json, json->root, key, out));
    return tt_family_check_range(json, key, *out, 1, maximum);
}

tt_status tt_family_parse_size(const struct tt_json *json, const char *key, int64_t maximum, int64_t *size)
{
    TT_TRY(tt_json_opt_int(json, json->root, key, size));
    return tt_family_check_range(json, key, *size, 1, maximum);
}

/* A missing key has the family's default; null is `null_value`. */
static tt_status read_optional_size(const struct tt_json *json, const char *key, int64_t maximum,
                                    int64_t missing_value, int64_t null_value, int64_t *out)
{
    *out = tt_json_get(json->root, key) == NULL ? missing_value : null_value;
    TT_TRY(tt_json_opt_int(json, json->root, key, out));
    return tt_family_check_range(json, key, *out, 1, maximum);
}

/* `missing_value` 0: the key must be there. */
static tt_status read_required(const struct tt_json *json, const char *key, int64_t maximum,
                               int64_t missing_value, int64_t *out)
{
    bool missing = missing_value > 0 && tt_json_get(json->root, key) == NULL;
    if (!missing) return read_size(json, key, maximum, out);
    *out = missing_value;
    return TT_OK;
}

static tt_status read_heads(const struct tt_json *json, const struct tt_decoder_defaults *defaults,
                            const struct tt_model_facts *facts, struct tt_decoder_shape *shape)
{
    TT_TRY(read_required(json, "num_attention_heads", 1 << 14, defaults->heads, &shape->heads));
    int64_t heads = shape->heads, shared_dim = facts->hidden_size / heads;
    TT_TRY(read_optional_size(json, "num_key_value_heads", 1 << 14,
                              defaults->kv_heads > 0 ? defaults->kv_heads : heads, heads, &shape->kv_heads));
    if (heads % shape->kv_heads != 0) {
        return tt_fail(TT_ERR_DATA,
                       "%s: num_attention_heads (%" PRId64
                       ") is not a multiple of num_key_value_heads (%" PRId64 ")",
                       json->origin, heads, shape->kv_heads);
    }
    bool divides = tt_json_is_integer(tt_json_get(json->root, "head_dim")) || defaults->head_dim > 0;
    int64_t missing_dim = defaults->head_dim > 0 ? defaults->head_dim : shared_dim;
    if (!divides && facts->hidden_size % heads != 0) {
        return tt_fail(TT_ERR_DATA,
                       "%s: hidden_size (%" PRId64 ") is not a multiple of num_attention_heads (%" PRId64
                       ") and there is no head_dim",
                       json->origin, facts->hidden_size, heads);
    }
    TT_TRY(read_optional_size(json, "head_dim", TT_ATTENTION_HEAD_DIM_MAX, missing_dim, shared_dim,
                              &shape->head_dim));
    if (shape->head_dim % 2 == 0) return TT_OK;
    return tt_fail(TT_ERR_DATA, "%s: head_dim is %" PRId64 "; rotary positions need an even one",
                   json->origin, shape->head_dim);
}

tt_status tt_family_parse_shape(const struct tt_json *json, const struct tt_decoder_defaults *defaults,
                                struct tt_model_facts *facts, struct tt_decoder_shape *shape)
{
    TT_TRY(read_required(json, "vocab_size", 1 << 24, defaults->vocab, &facts->vocab_size));
    TT_TRY(read_size(json, "hidden_size", 1 << 20, &facts->hidden_size));
    TT_TRY(read_required(json, "intermediate_size", 1 << 22, defaults->ffn, &shape->ffn));
    TT_TRY(read_required(json, "num_hidden_layers", TT_MODEL_LAYERS_MAX, defaults->layers,
                         &facts->num_hidden_layers));
    TT_TRY(read_heads(json, defaults, facts, shape));
    TT_TRY(read_optional_size(json, "max_position_embeddings", INT32_MAX, defaults->positions,
                              defaults->positions, &facts->max_position_embeddings));
    const char *norm_eps = defaults->norm_eps_key != NULL ? defaults->norm_eps_key : "rms_norm_eps";
    shape->norm_eps = defaults->norm_eps > 0 ? defaults->norm_eps : 1e-6;
    TT_TRY(tt_json_opt_double(json, json->root, norm_eps, &shape->norm_eps));
    TT_TRY(tt_family_check_positive(json, norm_eps, shape->norm_eps, 1));
    for (int64_t i = 0; i < facts->num_hidden_layers; i++)
        facts->layers[i] = (struct tt_layer_facts){.kv_heads = shape->kv_heads, .head_dim = shape->head_dim};
    return TT_OK;
}

/* ACT2CLS of transformers' activations.py: five of these are the same approximation by tanh. */
static const struct {
    const char *name;
    enum tt_activation activation;
} activations[] = {
    {"silu", TT_ACTIVATION_SILU},
    {"swish", TT_ACTIVATION_SILU},
    {"gelu", TT_ACTIVATION_GELU},
    {"gelu_python", TT_ACTIVATION_GELU},
    {"gelu_new", TT_ACTIVATION_GELU_TANH},
    {"gelu_fast", TT_ACTIVATION_GELU_TANH},
    {"gelu_accurate", TT_ACTIVATION_GELU_TANH},
    {"gelu_pytorch_tanh", TT_ACTIVATION_GELU_TANH},
    {"gelu_python_tanh", TT_ACTIVATION_GELU_TANH},
    {"relu2", TT_ACTIVATION_RELU2},
};
enum { ACTIVATIONS = sizeof activations / sizeof *activations };

tt_status tt_family_parse_activation(const struct tt_json *json, const char *key,
                                     enum tt_activation *activation)
{
    const char *name = NULL;
    struct tt_str names = {0};
    TT_TRY(tt_json_opt_string(json, json->root, key, &name));
    if (name == NULL) return TT_OK;
    for (int i = 0; i < ACTIVATIONS; i++) {
        if (strcmp(name, activations[i].name) != 0) continue;
        *activation = activations[i].activation;
        return TT_OK;
    }
    tt_status status = tt_fail(TT_ERR_UNSUPPORTED, "%s: %s '%s' is not supported", json->origin, key, name);
    for (int i = 0; i < ACTIVATIONS; i++)
        if (tt_str_printf(&names, "%s%s", i > 0 ? ", " : "", activations[i].name) != TT_OK) break;
    tt_hint("supported are: %s", tt_str_text(&names));
    tt_str_deinit(&names);
    return status;
}

tt_status tt_family_parse_layer_kinds(const struct tt_json *json, const char *key,
                                      const struct tt_model_facts *facts, const char *const names[2],
                                      bool second[TT_MODEL_LAYERS_MAX])
{
    const struct tt_json_value *types = tt_json_get(json->root, key);
    if (types == NULL || tt_json_is_null(types)) return TT_OK;
    TT_TRY(tt_json_array(json, json->root, key, &types));
    if ((int64_t)tt_json_count(types) != facts->num_hidden_layers) {
        return tt_fail(TT_ERR_DATA, "%s: %s has %zu entries for %" PRId64 " layers", json->origin, key,
                       tt_json_count(types), facts->num_hidden_layers);
    }
    for (int64_t i = 0; i < facts->num_hidden_layers; i++) {
        const char *type = tt_json_text(tt_json_at(types, (size_t)i));
        second[i] = type != NULL && strcmp(type, names[1]) == 0;
        if (second[i] || (type != NULL && strcmp(type, names[0]) == 0)) continue;
        return tt_fail(TT_ERR_UNSUPPORTED, "%s: layer type '%s' of layer %" PRId64 " is not supported",
                       json->origin, type != NULL ? type : "(not a string)", i);
    }
    return TT_OK;
}

/* An infinite bound is written {"__float__": "Infinity"}. */
static tt_status read_bound(const struct tt_json *json, const struct tt_json_value *value, double *bound)
{
    const char *text = tt_json_text(tt_json_get(value, "__float__"));
    if (tt_json_is_number(value)) {
        *bound = tt_json_number(value);
        return TT_OK;
    }
    if (text != NULL && strcmp(text, "Infinity") == 0) {
        *bound = INFINITY;
        return TT_OK;
    }
    return tt_fail(TT_ERR_DATA, "%s: time_step_limit is no list of two numbers", json->origin);
}

tt_status tt_family_parse_time_steps(const struct tt_json *json, double *least, double *most)
{
    const struct tt_json_value *limits = tt_json_get(json->root, "time_step_limit");
    *least = 0;
    *most = INFINITY;
    if (limits == NULL || tt_json_is_null(limits)) return TT_OK;
    TT_TRY(tt_json_array(json, json->root, "time_step_limit", &limits));
    if (tt_json_count(limits) != 2)
        return tt_fail(TT_ERR_DATA, "%s: time_step_limit is no list of two numbers", json->origin);
    TT_TRY(read_bound(json, tt_json_at(limits, 0), least));
    TT_TRY(read_bound(json, tt_json_at(limits, 1), most));
    if (*least >= 0 && *least <= *most) return TT_OK;
    return tt_fail(TT_ERR_DATA, "%s: time_step_limit is from %g to %g", json->origin, *least, *most);
}

const struct tt_kv_states *tt_family_state(const struct tt_model_facts *facts)
{
    for (int64_t i = 0; i < facts->num_hidden_layers; i++)
        if (facts->layers[i].state.heads > 0) return &facts->layers[i].state;
    return NULL;
}

tt_status tt_family_parse_layer_types(const struct tt_json *json, const struct tt_model_facts *facts,
                                      bool sliding[TT_MODEL_LAYERS_MAX])
{
    static const char *const names[] = {"full_attention", "sliding_attention"};
    return tt_family_parse_layer_kinds(json, "layer_types", facts, names, sliding);
}

tt_status tt_family_parse_qwen_windows(const struct tt_json *json, int64_t first_layer,
                                       struct tt_model_facts *facts)
{
    bool use = false, sliding[TT_MODEL_LAYERS_MAX];
    int64_t window = 4096;
    TT_TRY(tt_json_opt_bool(json, json->root, "use_sliding_window", &use));
    const struct tt_json_value *value = tt_json_get(json->root, "sliding_window");
    if (!use || (value != NULL && tt_json_is_null(value))) return TT_OK;
    TT_TRY(tt_json_opt_int(json, json->root, "sliding_window", &window));
    TT_TRY(tt_family_check_range(json, "sliding_window", window, 1, INT32_MAX));
    TT_TRY(tt_json_opt_int(json, json->root, "max_window_layers", &first_layer));
    for (int64_t i = 0; i < facts->num_hidden_layers; i++) sliding[i] = i >= first_layer;
    TT_TRY(tt_family_parse_layer_types(json, facts, sliding));
    for (int64_t i = 0; i < facts->num_hidden_layers; i++) facts->layers[i].window = sliding[i] ? window : 0;
    return TT_OK;
}
