/* config.json, in the spellings of transformers 4 (rope_theta, rope_scaling, torch_dtype) and 5
 * (rope_parameters, dtype). Source: the families' configuration_*.py and modeling_rope_utils.py of
 * transformers 5. Everything that sizes memory is checked against a limit here, so that later products cannot
 * overflow. */
#include "model/family.h"
#include "model/quantization.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>
#include "base/log.h"

static const struct tt_model_family *const families[] = {
#define FAMILY(name) &tt_family_##name,
#include "model/families.def"
#undef FAMILY
};
enum { FAMILY_COUNT = sizeof families / sizeof families[0] };

const struct tt_model_family *tt_model_family_find(const char *model_type)
{
    for (int i = 0; i < FAMILY_COUNT; i++) {
        if (strcmp(families[i]->model_type, model_type) == 0) return families[i];
    }
    return NULL;
}

static tt_status find_family(const struct tt_json *json, const struct tt_model_family **out)
{
    const char *model_type = NULL;
    TT_TRY(tt_json_string(json, json->root, "model_type", &model_type));
    *out = tt_model_family_find(model_type);
    if (*out == NULL) {
        tt_status status = tt_fail(TT_ERR_UNSUPPORTED, "%s: models of model_type '%s' are not supported",
                                   json->origin, model_type);
        struct tt_str names = {0};
        for (int i = 0; i < FAMILY_COUNT; i++) {
            if (tt_str_printf(&names, "%s%s", i > 0 ? ", " : "", families[i]->model_type) != TT_OK) break;
        }
        tt_hint("supported are: %s", tt_str_text(&names));
        tt_str_deinit(&names);
        return status;
    }
    const struct tt_json_value *architectures = tt_json_get(json->root, "architectures");
    const char *architecture = tt_json_text(tt_json_at(architectures, 0));
    if (architecture != NULL && strcmp(architecture, (*out)->architecture) != 0) {
        return tt_fail(TT_ERR_UNSUPPORTED,
                       "%s: the architecture '%s' is not supported (for model_type '%s' it is %s)",
                       json->origin, architecture, model_type, (*out)->architecture);
    }
    return TT_OK;
}

static tt_status check_range(const struct tt_json *json, const char *key, int64_t value, int64_t minimum,
                             int64_t maximum)
{
    if (value >= minimum && value <= maximum) return TT_OK;
    return tt_fail(TT_ERR_DATA, "%s: %s is %" PRId64 "; it must be between %" PRId64 " and %" PRId64,
                   json->origin, key, value, minimum, maximum);
}

static tt_status read_size(const struct tt_json *json, const char *key, int64_t maximum, int64_t *out)
{
    TT_TRY(tt_json_int(json, json->root, key, out));
    return check_range(json, key, *out, 1, maximum);
}

/* A missing key has the family's default; null is `null_value`. */
static tt_status read_optional_size(const struct tt_json *json, const char *key, int64_t maximum,
                                    int64_t missing_value, int64_t null_value, int64_t *out)
{
    *out = tt_json_get(json->root, key) == NULL ? missing_value : null_value;
    TT_TRY(tt_json_opt_int(json, json->root, key, out));
    return check_range(json, key, *out, 1, maximum);
}

static tt_status read_sizes(const struct tt_json *json, const struct tt_model_family *family,
                            struct tt_model_config *config)
{
    TT_TRY(read_size(json, "vocab_size", 1 << 24, &config->vocab_size));
    TT_TRY(read_size(json, "hidden_size", 1 << 20, &config->hidden_size));
    TT_TRY(read_size(json, "intermediate_size", 1 << 22, &config->intermediate_size));
    TT_TRY(read_size(json, "num_hidden_layers", TT_MODEL_LAYERS_MAX, &config->num_hidden_layers));
    TT_TRY(read_size(json, "num_attention_heads", 1 << 14, &config->num_attention_heads));
    int64_t heads = config->num_attention_heads, shared_dim = config->hidden_size / heads;
    TT_TRY(read_optional_size(json, "num_key_value_heads", 1 << 14,
                              family->default_kv_heads > 0 ? family->default_kv_heads : heads, heads,
                              &config->num_key_value_heads));
    if (heads % config->num_key_value_heads != 0) {
        return tt_fail(TT_ERR_DATA,
                       "%s: num_attention_heads (%" PRId64
                       ") is not a multiple of num_key_value_heads (%" PRId64 ")",
                       json->origin, heads, config->num_key_value_heads);
    }
    bool divides = tt_json_is_integer(tt_json_get(json->root, "head_dim"));
    int64_t missing_dim = family->default_head_dim > 0 ? family->default_head_dim : shared_dim;
    divides = divides || (missing_dim == family->default_head_dim && family->default_head_dim > 0);
    if (!divides && config->hidden_size % heads != 0) {
        return tt_fail(TT_ERR_DATA,
                       "%s: hidden_size (%" PRId64 ") is not a multiple of num_attention_heads (%" PRId64
                       ") and there is no head_dim",
                       json->origin, config->hidden_size, heads);
    }
    TT_TRY(read_optional_size(json, "head_dim", 256, missing_dim, shared_dim, &config->head_dim));
    if (config->head_dim % 2 != 0) {
        return tt_fail(TT_ERR_DATA, "%s: head_dim is %" PRId64 "; rotary positions need an even one",
                       json->origin, config->head_dim);
    }
    return read_optional_size(json, "max_position_embeddings", INT32_MAX, family->default_max_position,
                              family->default_max_position, &config->max_position_embeddings);
}

static tt_status check_positive(const struct tt_json *json, const char *key, double value, double maximum)
{
    if (value > 0 && value <= maximum) return TT_OK; /* false for NaN */
    return tt_fail(TT_ERR_DATA, "%s: %s is %g; it must be above 0 and at most %g", json->origin, key, value,
                   maximum);
}

static tt_status read_rope_type(const struct tt_json *json, const struct tt_json_value *rope,
                                struct tt_model_config *config)
{
    static const char *const names[] = {"default", "linear", "llama3", "yarn"}; /* in order of the enum */
    const char *name = "default";
    TT_TRY(tt_json_opt_string(json, rope, "type", &name));
    TT_TRY(tt_json_opt_string(json, rope, "rope_type", &name));
    for (int i = 0; i < 4; i++) {
        if (strcmp(name, names[i]) != 0) continue;
        config->rope_type = i;
        return TT_OK;
    }
    tt_status status =
        tt_fail(TT_ERR_UNSUPPORTED, "%s: the rope type '%s' is not supported", json->origin, name);
    tt_hint("supported are default, linear, llama3 and yarn");
    return status;
}

static double yarn_mscale(double factor, double mscale)
{
    return factor <= 1 ? 1.0 : 0.1 * mscale * log(factor) + 1.0;
}

static tt_status read_yarn(const struct tt_json *json, const struct tt_json_value *rope,
                           struct tt_model_config *config)
{
    double mscale = 0, mscale_all_dim = 0, attention_factor = 0;
    config->rope_beta_fast = 32;
    config->rope_beta_slow = 1;
    config->rope_truncate = true;
    TT_TRY(tt_json_opt_double(json, rope, "beta_fast", &config->rope_beta_fast));
    TT_TRY(tt_json_opt_double(json, rope, "beta_slow", &config->rope_beta_slow));
    TT_TRY(tt_json_opt_bool(json, rope, "truncate", &config->rope_truncate));
    TT_TRY(tt_json_opt_double(json, rope, "mscale", &mscale));
    TT_TRY(tt_json_opt_double(json, rope, "mscale_all_dim", &mscale_all_dim));
    TT_TRY(check_positive(json, "beta_fast", config->rope_beta_fast, 1e6));
    TT_TRY(check_positive(json, "beta_slow", config->rope_beta_slow, 1e6));
    attention_factor = yarn_mscale(config->rope_factor, 1);
    if (mscale != 0 && mscale_all_dim != 0) {
        attention_factor =
            yarn_mscale(config->rope_factor, mscale) / yarn_mscale(config->rope_factor, mscale_all_dim);
    }
    TT_TRY(tt_json_opt_double(json, rope, "attention_factor", &attention_factor));
    TT_TRY(check_positive(json, "attention_factor", attention_factor, 1e6));
    config->rope_attention_factor = attention_factor;
    return TT_OK;
}

static tt_status read_rope_scaling(const struct tt_json *json, const struct tt_json_value *rope,
                                   struct tt_model_config *config)
{
    TT_TRY(read_rope_type(json, rope, config));
    if (config->rope_type == TT_ROPE_DEFAULT) return TT_OK;
    TT_TRY(tt_json_double(json, rope, "factor", &config->rope_factor));
    TT_TRY(check_positive(json, "the rope factor", config->rope_factor, 1e6));
    if (config->rope_type == TT_ROPE_LINEAR) return TT_OK;
    config->rope_original_max_position = config->max_position_embeddings;
    TT_TRY(
        tt_json_opt_int(json, rope, "original_max_position_embeddings", &config->rope_original_max_position));
    TT_TRY(tt_json_opt_int(json, json->root, "original_max_position_embeddings",
                           &config->rope_original_max_position));
    TT_TRY(check_range(json, "original_max_position_embeddings", config->rope_original_max_position, 1,
                       INT32_MAX));
    if (config->rope_type == TT_ROPE_YARN) return read_yarn(json, rope, config);
    TT_TRY(tt_json_double(json, rope, "low_freq_factor", &config->rope_low_freq_factor));
    TT_TRY(tt_json_double(json, rope, "high_freq_factor", &config->rope_high_freq_factor));
    TT_TRY(check_positive(json, "low_freq_factor", config->rope_low_freq_factor, 1e6));
    TT_TRY(check_positive(json, "high_freq_factor", config->rope_high_freq_factor, 1e6));
    if (config->rope_high_freq_factor <= config->rope_low_freq_factor) {
        return tt_fail(TT_ERR_DATA, "%s: high_freq_factor (%g) must be above low_freq_factor (%g)",
                       json->origin, config->rope_high_freq_factor, config->rope_low_freq_factor);
    }
    return TT_OK;
}

/* v4: rope_theta beside rope_scaling; v5: both in rope_parameters. */
static tt_status read_rope(const struct tt_json *json, struct tt_model_config *config)
{
    config->rope_theta = 10000;
    config->rope_factor = 1;
    config->rope_attention_factor = 1;
    TT_TRY(tt_json_opt_double(json, json->root, "rope_theta", &config->rope_theta));
    double partial = 1;
    TT_TRY(tt_json_opt_double(json, json->root, "partial_rotary_factor", &partial));
    static const char *const keys[] = {"rope_scaling", "rope_parameters"};
    for (int i = 0; i < 2; i++) {
        const struct tt_json_value *rope = tt_json_get(json->root, keys[i]);
        if (rope == NULL || tt_json_is_null(rope)) continue;
        TT_TRY(tt_json_object(json, json->root, keys[i], &rope));
        if (tt_json_is_object(tt_json_get(rope, "full_attention")) ||
            tt_json_is_object(tt_json_get(rope, "sliding_attention"))) {
            return tt_fail(TT_ERR_UNSUPPORTED, "%s: %s differ by layer type, which is not supported",
                           json->origin, keys[i]);
        }
        TT_TRY(tt_json_opt_double(json, rope, "rope_theta", &config->rope_theta));
        TT_TRY(tt_json_opt_double(json, rope, "partial_rotary_factor", &partial));
        TT_TRY(read_rope_scaling(json, rope, config));
    }
    if (partial != 1) {
        return tt_fail(TT_ERR_UNSUPPORTED, "%s: partial_rotary_factor is %g; only 1 is supported",
                       json->origin, partial);
    }
    if (!(config->rope_theta > 1)) {
        return tt_fail(TT_ERR_DATA, "%s: rope_theta is %g; it must be above 1", json->origin,
                       config->rope_theta);
    }
    return check_positive(json, "rope_theta", config->rope_theta, 1e15);
}

static tt_status read_dtype(const struct tt_json *json, struct tt_model_config *config)
{
    const char *name = "float32";
    TT_TRY(tt_json_opt_string(json, json->root, "torch_dtype", &name));
    TT_TRY(tt_json_opt_string(json, json->root, "dtype", &name));
    config->dtype = tt_dtype_from_torch_name(name);
    if (config->dtype == TT_F32 || config->dtype == TT_BF16 || config->dtype == TT_F16) return TT_OK;
    return tt_fail(TT_ERR_UNSUPPORTED,
                   "%s: weights of type '%s' are not supported (float32, bfloat16, float16 are)",
                   json->origin, name);
}

static tt_status read_tokens(const struct tt_json *json, struct tt_model_config *config)
{
    config->bos_token_id = -1;
    TT_TRY(tt_json_opt_int(json, json->root, "bos_token_id", &config->bos_token_id));
    TT_TRY(check_range(json, "bos_token_id", config->bos_token_id, -1, config->vocab_size - 1));
    const struct tt_json_value *eos = tt_json_get(json->root, "eos_token_id");
    if (eos == NULL || tt_json_is_null(eos)) return TT_OK;
    size_t count = tt_json_is_list(eos) ? tt_json_count(eos) : 1;
    size_t room = sizeof config->eos_token_ids / sizeof config->eos_token_ids[0];
    if (count > room)
        return tt_fail(TT_ERR_DATA, "%s: eos_token_id has %zu entries, at most %zu are supported",
                       json->origin, count, room);
    for (size_t i = 0; i < count; i++) {
        const struct tt_json_value *item = tt_json_is_list(eos) ? tt_json_at(eos, i) : eos;
        if (!tt_json_is_integer(item))
            return tt_fail(TT_ERR_DATA, "%s: eos_token_id is not an integer or a list of integers",
                           json->origin);
        int64_t id = tt_json_integer(item);
        TT_TRY(check_range(json, "eos_token_id", id, -1, config->vocab_size - 1));
        if (id >= 0) config->eos_token_ids[config->eos_token_count++] = id;
    }
    return TT_OK;
}

/* Keys that change results and that this decoder does not support. */
static tt_status refuse_unsupported(const struct tt_json *json)
{
    const char *activation = "silu";
    TT_TRY(tt_json_opt_string(json, json->root, "hidden_act", &activation));
    if (strcmp(activation, "silu") != 0 && strcmp(activation, "swish") != 0) {
        return tt_fail(TT_ERR_UNSUPPORTED, "%s: hidden_act is '%s'; only 'silu' is supported", json->origin,
                       activation);
    }
    double dropout = 0;
    TT_TRY(tt_json_opt_double(json, json->root, "attention_dropout", &dropout));
    if (dropout != 0) tt_warn("%s: attention_dropout %g is not applied in training", json->origin, dropout);
    return TT_OK;
}

tt_status tt_model_config_qwen_windows(const struct tt_json *json, struct tt_model_config *config)
{
    bool use = false;
    int64_t window = 4096, first_layer = 28;
    TT_TRY(tt_json_opt_bool(json, json->root, "use_sliding_window", &use));
    const struct tt_json_value *value = tt_json_get(json->root, "sliding_window");
    if (!use || (value != NULL && tt_json_is_null(value))) return TT_OK;
    TT_TRY(tt_json_opt_int(json, json->root, "sliding_window", &window));
    TT_TRY(check_range(json, "sliding_window", window, 1, INT32_MAX));
    TT_TRY(tt_json_opt_int(json, json->root, "max_window_layers", &first_layer));
    const struct tt_json_value *types = tt_json_get(json->root, "layer_types");
    bool listed = types != NULL && !tt_json_is_null(types), any = false;
    if (listed) TT_TRY(tt_json_array(json, json->root, "layer_types", &types));
    if (listed && (int64_t)tt_json_count(types) != config->num_hidden_layers) {
        return tt_fail(TT_ERR_DATA, "%s: layer_types has %zu entries for %" PRId64 " layers", json->origin,
                       tt_json_count(types), config->num_hidden_layers);
    }
    for (int64_t i = 0; i < config->num_hidden_layers; i++) {
        config->window_layers[i] = i >= first_layer;
        if (listed) {
            const char *type = tt_json_text(tt_json_at(types, (size_t)i));
            if (type == NULL ||
                (strcmp(type, "full_attention") != 0 && strcmp(type, "sliding_attention") != 0)) {
                return tt_fail(TT_ERR_UNSUPPORTED,
                               "%s: layer type '%s' of layer %" PRId64 " is not supported", json->origin,
                               type != NULL ? type : "(not a string)", i);
            }
            config->window_layers[i] = strcmp(type, "sliding_attention") == 0;
        }
        any = any || config->window_layers[i];
    }
    config->sliding_window = any ? window : 0;
    return TT_OK;
}

tt_status tt_model_config_parse(const struct tt_json *json, struct tt_model_config *out)
{
    struct tt_model_config config = {.initializer_range = 0.02, .rms_norm_eps = 1e-6};
    const struct tt_model_family *family;
    if (!tt_json_is_object(json->root)) return tt_fail(TT_ERR_DATA, "%s is not a JSON object", json->origin);
    TT_TRY(find_family(json, &family));
    memcpy(config.model_type, family->model_type, strlen(family->model_type) + 1);
    memcpy(config.architecture, family->architecture, strlen(family->architecture) + 1);
    TT_TRY(refuse_unsupported(json));
    TT_TRY(tt_quantization_read(json, &config));
    TT_TRY(read_sizes(json, family, &config));
    TT_TRY(tt_json_opt_double(json, json->root, "rms_norm_eps", &config.rms_norm_eps));
    TT_TRY(check_positive(json, "rms_norm_eps", config.rms_norm_eps, 1));
    TT_TRY(tt_json_opt_double(json, json->root, "initializer_range", &config.initializer_range));
    TT_TRY(check_positive(json, "initializer_range", config.initializer_range, 1e3));
    TT_TRY(tt_json_opt_bool(json, json->root, "tie_word_embeddings", &config.tie_word_embeddings));
    TT_TRY(read_rope(json, &config));
    TT_TRY(read_dtype(json, &config));
    TT_TRY(read_tokens(json, &config));
    TT_TRY(family->configure(json, &config));
    *out = config;
    return TT_OK;
}
