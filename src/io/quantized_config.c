/* quantization_config of config.json (transformers/utils/quantization_config.py, BitsAndBytesConfig). */
#include "io/quantized.h"

#include <string.h>

#include "tensor/format.h"

static const char library_type[] = "fp4"; /* the default of BitsAndBytesConfig */

static tt_status read_dtype(const struct tt_json *json, const struct tt_json_value *object, const char *key,
                            tt_dtype *dtype)
{
    const char *name = NULL;
    TT_TRY(tt_json_opt_string(json, object, key, &name));
    if (name == NULL) return TT_OK;
    *dtype = tt_dtype_from_torch_name(name);
    if (*dtype == TT_DTYPE_NONE)
        return tt_fail(TT_ERR_DATA, "%s: '%s' is '%.40s', which is not a type", json->origin, key, name);
    return TT_OK;
}

static tt_status read_skip(const struct tt_json *json, const struct tt_json_value *object,
                           struct tt_quantized_config *out)
{
    const char key[] = "llm_int8_skip_modules";
    const struct tt_json_value *list = tt_json_get(object, key);
    if (list == NULL || tt_json_is_null(list)) return TT_OK;
    if (!tt_json_is_list(list)) return tt_fail(TT_ERR_DATA, "%s: '%s' is not a list", json->origin, key);
    for (size_t i = 0; i < tt_json_count(list); i++) {
        const char *name = tt_json_text(tt_json_at(list, i));
        if (name == NULL) return tt_fail(TT_ERR_DATA, "%s: '%s' is not a list of names", json->origin, key);
        if (out->skip_count == TT_QUANTIZED_SKIP_MAX)
            return tt_fail(TT_ERR_UNSUPPORTED, "%s: '%s' has more than %d names", json->origin, key,
                           TT_QUANTIZED_SKIP_MAX);
        out->skip[out->skip_count++] = name;
    }
    return TT_OK;
}

static tt_status fail_method(const struct tt_json *json, const char *method)
{
    tt_status status = tt_fail(TT_ERR_UNSUPPORTED, "%s: weights quantized by '%.40s' are not supported",
                               json->origin, method != NULL ? method : "(no quant_method)");
    tt_hint("use the folder of the model in bfloat16 or float32, or one quantized by bitsandbytes");
    return status;
}

tt_status tt_quantized_config_read(const struct tt_json *config, struct tt_quantized_config *out)
{
    const struct tt_json_value *object = tt_json_get(config->root, "quantization_config");
    const char *method = NULL, *type = library_type;
    bool four = false, eight = false;
    struct tt_quantized_config found = {.compute_dtype = TT_F32, .storage_dtype = TT_U8};
    *out = found;
    if (object == NULL || tt_json_is_null(object)) return TT_OK;
    if (!tt_json_is_object(object))
        return tt_fail(TT_ERR_DATA, "%s: 'quantization_config' is not an object", config->origin);
    TT_TRY(tt_json_opt_bool(config, object, "load_in_4bit", &four));
    TT_TRY(tt_json_opt_bool(config, object, "load_in_8bit", &eight));
    TT_TRY(tt_json_opt_string(config, object, "quant_method", &method));
    if (method != NULL ? strcmp(method, "bitsandbytes") != 0 : !four && !eight)
        return fail_method(config, method);
    if (four == eight)
        return tt_fail(TT_ERR_DATA, "%s: quantization_config has %s load_in_4bit and load_in_8bit",
                       config->origin, four ? "both" : "neither of");
    TT_TRY(tt_json_opt_string(config, object, "bnb_4bit_quant_type", &type));
    TT_TRY(tt_json_opt_bool(config, object, "bnb_4bit_use_double_quant", &found.nested));
    TT_TRY(read_dtype(config, object, "bnb_4bit_compute_dtype", &found.compute_dtype));
    TT_TRY(read_dtype(config, object, "bnb_4bit_quant_storage", &found.storage_dtype));
    TT_TRY(read_skip(config, object, &found));
    found.type = four ? tt_quant_type_from_name(type) : tt_format_of_width(8, 0);
    found.nested = found.nested && four;
    if (found.type == TT_QUANT_NONE || (tt_weight_format(found.type)->load_bits == 4) != four) {
        char names[128];
        return tt_fail(TT_ERR_UNSUPPORTED, "%s: bnb_4bit_quant_type is '%.40s', not %s", config->origin, type,
                       tt_format_names(4, names, sizeof names));
    }
    *out = found;
    return TT_OK;
}

struct tt_json_value *tt_quantized_config_make(const struct tt_quantized_config *config)
{
    const struct tt_weight_format *format = tt_weight_format(config->type);
    bool four = format == NULL || format->load_bits == 4;
    struct tt_json_value *skip = config->skip_count > 0 ? tt_json_new_list() : tt_json_new_null();
    for (int i = 0; i < config->skip_count; i++)
        if (tt_json_append(skip, tt_json_new_string(config->skip[i])) != 0) {
            tt_json_release(skip);
            (void)tt_fail(TT_ERR_MEMORY, "out of memory for quantization_config");
            return NULL;
        }
    struct tt_json_value *object = tt_json_pack(
        "{s:b,s:b,s:s,s:s,s:s,s:b,s:b,s:b,s:o,s:f,s:b,s:b,s:s}", "_load_in_4bit", four, "_load_in_8bit",
        !four, "bnb_4bit_compute_dtype", tt_dtype_torch_name(config->compute_dtype), "bnb_4bit_quant_storage",
        tt_dtype_torch_name(config->storage_dtype), "bnb_4bit_quant_type",
        four ? tt_quant_type_name(config->type) : library_type, "bnb_4bit_use_double_quant", config->nested,
        "llm_int8_enable_fp32_cpu_offload", false, "llm_int8_has_fp16_weight", false, "llm_int8_skip_modules",
        skip, "llm_int8_threshold", 6.0, "load_in_4bit", four, "load_in_8bit", !four, "quant_method",
        "bitsandbytes");
    if (object == NULL) (void)tt_fail(TT_ERR_MEMORY, "out of memory for quantization_config");
    return object;
}
