/* quantization_config of config.json: transformers/utils/quantization_config.py (BitsAndBytesConfig,
 * FineGrainedFP8Config), compressed_tensors/quantization/quant_config.py. */
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

/* The list of names under `key`, unless it is absent. */
static tt_status read_skip(const struct tt_json *json, const struct tt_json_value *object, const char *key,
                           struct tt_quantized_config *out)
{
    const struct tt_json_value *list = tt_json_get(object, key);
    if (list == NULL || tt_json_is_null(list)) return TT_OK;
    if (!tt_json_is_list(list)) return tt_fail(TT_ERR_DATA, "%s: '%s' is not a list", json->origin, key);
    for (size_t i = 0; i < tt_json_count(list); i++)
        if (tt_json_text(tt_json_at(list, i)) == NULL)
            return tt_fail(TT_ERR_DATA, "%s: '%s' is not a list of names", json->origin, key);
    if (tt_json_count(list) > 0) out->skip_list = list;
    return TT_OK;
}

static tt_status fail_method(const struct tt_json *json, const char *method)
{
    tt_status status = tt_fail(TT_ERR_UNSUPPORTED, "%s: weights quantized by '%.40s' are not supported",
                               json->origin, method != NULL ? method : "(no quant_method)");
    tt_hint("use the folder of the model in bfloat16 or float32, or one quantized by bitsandbytes, to fp8 or "
            "mxfp4");
    return status;
}

/* ---- FP8 ---- */

static tt_status fail_fp8(const struct tt_json *json, const char *what)
{
    tt_status status = tt_fail(TT_ERR_UNSUPPORTED, "%s: quantization_config: %s", json->origin, what);
    tt_hint(
        "supported are weights in E4M3 with a scale for each row, for the matrix, or for 128 x 128 weights; "
        "or use the folder of the model in bfloat16");
    return status;
}

/* NULL, or [128, 128]. */
static tt_status read_block(const struct tt_json *json, const struct tt_json_value *object, const char *key,
                            bool *blocks)
{
    const struct tt_json_value *list = tt_json_get(object, key);
    if (list == NULL || tt_json_is_null(list)) return TT_OK;
    if (!tt_json_is_list(list) || tt_json_count(list) != 2 ||
        tt_json_integer(tt_json_at(list, 0)) != TT_FP8_BLOCK ||
        tt_json_integer(tt_json_at(list, 1)) != TT_FP8_BLOCK)
        return fail_fp8(json, "the blocks of scales are not 128 x 128");
    *blocks = true;
    return TT_OK;
}

/* transformers' FineGrainedFP8Config. */
static tt_status read_fp8(const struct tt_json *json, const struct tt_json_value *object,
                          struct tt_quantized_config *out)
{
    const char *format = "e4m3", *scales = NULL;
    TT_TRY(tt_json_opt_string(json, object, "fmt", &format));
    if (strcmp(format, "e4m3") != 0) return fail_fp8(json, "fmt is not e4m3");
    TT_TRY(read_block(json, object, "weight_block_size", &out->fp8_blocks));
    TT_TRY(tt_json_opt_string(json, object, "scale_fmt", &scales));
    out->fp8_powers = scales != NULL && strcmp(scales, "ue8m0") == 0;
    TT_TRY(read_skip(json, object, "ignored_layers", out));
    return read_skip(json, object, "modules_to_not_convert", out);
}

static bool is_given(const struct tt_json_value *value)
{
    return value != NULL && !tt_json_is_null(value) &&
           !(tt_json_is_object(value) && tt_json_count(value) == 0);
}

/* The weights of one of the config_groups: 8 bits of float, of any strategy: the shapes of the scales show which. */
static tt_status read_group(const struct tt_json *json, const struct tt_json_value *group,
                            struct tt_quantized_config *out)
{
    const struct tt_json_value *weights;
    const char *type = "int", *strategy = "";
    int64_t bits = 8;
    bool symmetric = true;
    if (!tt_json_is_object(group))
        return tt_fail(TT_ERR_DATA, "%s: config_groups: not an object", json->origin);
    TT_TRY(tt_json_object(json, group, "weights", &weights));
    TT_TRY(tt_json_opt_int(json, weights, "num_bits", &bits));
    TT_TRY(tt_json_opt_string(json, weights, "type", &type));
    TT_TRY(tt_json_opt_string(json, weights, "strategy", &strategy));
    TT_TRY(tt_json_opt_bool(json, weights, "symmetric", &symmetric));
    if (bits != 8 || strcmp(type, "float") != 0 || !symmetric)
        return fail_fp8(json, "the weights are not floats of 8 bits with a scale alone");
    if (strcmp(strategy, "group") == 0 || strcmp(strategy, "tensor_group") == 0)
        return fail_fp8(json, "the scales are of groups within a row");
    if (strcmp(strategy, "block") != 0) return TT_OK;
    return read_block(json, weights, "block_structure", &out->fp8_blocks);
}

static tt_status read_compressed(const struct tt_json *json, const struct tt_json_value *object,
                                 struct tt_quantized_config *out)
{
    const struct tt_json_value *groups, *sparsity = tt_json_get(object, "sparsity_config");
    const char *format = "float-quantized", *sparse = "dense";
    TT_TRY(tt_json_opt_string(json, object, "format", &format));
    if (strcmp(format, "float-quantized") != 0 && strcmp(format, "naive-quantized") != 0)
        return fail_fp8(json, "the format of compressed-tensors is not float-quantized");
    if (is_given(tt_json_get(object, "transform_config")))
        return fail_fp8(json, "transforms of weights are not supported");
    if (is_given(sparsity)) TT_TRY(tt_json_opt_string(json, sparsity, "format", &sparse));
    if (strcmp(sparse, "dense") != 0) return fail_fp8(json, "sparse weights are not supported");
    TT_TRY(tt_json_object(json, object, "config_groups", &groups));
    if (tt_json_count(groups) == 0) return fail_fp8(json, "config_groups is empty");
    for (size_t i = 0; i < tt_json_count(groups); i++) {
        const struct tt_json_value *group = tt_json_member(groups, i).value;
        TT_TRY(read_group(json, group, out));
    }
    return read_skip(json, object, "ignore", out);
}

/* ---- All methods ---- */

static tt_status read_bitsandbytes(const struct tt_json *json, const struct tt_json_value *object,
                                   struct tt_quantized_config *out)
{
    const char *type = library_type;
    bool four = false, eight = false;
    TT_TRY(tt_json_opt_bool(json, object, "load_in_4bit", &four));
    TT_TRY(tt_json_opt_bool(json, object, "load_in_8bit", &eight));
    if (four == eight)
        return tt_fail(TT_ERR_DATA, "%s: quantization_config has %s load_in_4bit and load_in_8bit",
                       json->origin, four ? "both" : "neither of");
    TT_TRY(tt_json_opt_string(json, object, "bnb_4bit_quant_type", &type));
    TT_TRY(tt_json_opt_bool(json, object, "bnb_4bit_use_double_quant", &out->nested));
    TT_TRY(read_dtype(json, object, "bnb_4bit_compute_dtype", &out->compute_dtype));
    TT_TRY(read_dtype(json, object, "bnb_4bit_quant_storage", &out->storage_dtype));
    TT_TRY(read_skip(json, object, "llm_int8_skip_modules", out));
    out->type = four ? tt_quant_type_from_name(type) : tt_format_of_width(8, 0);
    out->nested = out->nested && four;
    if (out->type == TT_QUANT_NONE || (tt_weight_format(out->type)->load_bits == 4) != four) {
        char names[128];
        return tt_fail(TT_ERR_UNSUPPORTED, "%s: bnb_4bit_quant_type is '%.40s', not %s", json->origin, type,
                       tt_format_names(4, names, sizeof names));
    }
    return TT_OK;
}

tt_status tt_quantized_config_read(const struct tt_json *config, struct tt_quantized_config *out)
{
    const struct tt_json_value *object = tt_json_get(config->root, "quantization_config");
    const char *method = NULL;
    bool four = false, eight = false;
    struct tt_quantized_config found = {.compute_dtype = TT_F32, .storage_dtype = TT_U8};
    *out = found;
    if (object == NULL || tt_json_is_null(object)) return TT_OK;
    if (!tt_json_is_object(object))
        return tt_fail(TT_ERR_DATA, "%s: 'quantization_config' is not an object", config->origin);
    TT_TRY(tt_json_opt_string(config, object, "quant_method", &method));
    TT_TRY(tt_json_opt_bool(config, object, "load_in_4bit", &four));
    TT_TRY(tt_json_opt_bool(config, object, "load_in_8bit", &eight));
    bool is_fp8 = method != NULL && strcmp(method, "fp8") == 0;
    bool is_compressed = method != NULL && strcmp(method, "compressed-tensors") == 0;
    if (is_fp8 || is_compressed) {
        found.type = TT_QUANT_FP8;
        TT_TRY(is_fp8 ? read_fp8(config, object, &found) : read_compressed(config, object, &found));
    } else if (method != NULL ? strcmp(method, "bitsandbytes") == 0 : four || eight) {
        TT_TRY(read_bitsandbytes(config, object, &found));
    } else if (method != NULL && strcmp(method, "mxfp4") == 0) {
        found.mxfp4 = true; /* the folder shows such tensors decoded: io/mxfp4.h */
    } else {
        return fail_method(config, method);
    }
    *out = found;
    return TT_OK;
}

/* ---- Writing ---- */

/* The names that are skipped; NULL when memory is out. */
static struct tt_json_value *make_skip(const struct tt_quantized_config *config)
{
    struct tt_json_value *skip = tt_json_new_list();
    for (int i = 0; i < config->skip_count; i++)
        if (tt_json_append(skip, tt_json_new_string(config->skip[i])) != 0) {
            tt_json_release(skip);
            return NULL;
        }
    return skip;
}

/* A scheme of compressed-tensors: how weights or activations become 8 bits. */
static struct tt_json_value *make_scheme(const char *strategy, bool dynamic, const char *observer)
{
    return tt_json_pack("{s:n,s:n,s:b,s:n,s:i,s:o,s:{},s:s,s:b,s:s}", "actorder", "block_structure",
                        "dynamic", dynamic, "group_size", "num_bits", 8, "observer",
                        observer != NULL ? tt_json_new_string(observer) : tt_json_new_null(),
                        "observer_kwargs", "strategy", strategy, "symmetric", true, "type", "float");
}

static struct tt_json_value *make_compressed(const struct tt_quantized_config *config)
{
    return tt_json_pack("{s:{s:{s:s,s:o,s:n,s:[s],s:o}},s:s,s:n,s:o,s:n,s:s,s:s}", "config_groups", "group_0",
                        "format", "float-quantized", "input_activations", make_scheme("token", true, NULL),
                        "output_activations", "targets", "Linear", "weights",
                        make_scheme("channel", false, "minmax"), "format", "float-quantized",
                        "global_compression_ratio", "ignore", make_skip(config), "kv_cache_scheme",
                        "quant_method", "compressed-tensors", "quantization_status", "compressed");
}

static struct tt_json_value *make_bitsandbytes(const struct tt_quantized_config *config)
{
    const struct tt_weight_format *format = tt_weight_format(config->type);
    bool four = format == NULL || format->load_bits == 4;
    struct tt_json_value *skip = config->skip_count > 0 ? make_skip(config) : tt_json_new_null();
    return tt_json_pack("{s:b,s:b,s:s,s:s,s:s,s:b,s:b,s:b,s:o,s:f,s:b,s:b,s:s}", "_load_in_4bit", four,
                        "_load_in_8bit", !four, "bnb_4bit_compute_dtype",
                        tt_dtype_torch_name(config->compute_dtype), "bnb_4bit_quant_storage",
                        tt_dtype_torch_name(config->storage_dtype), "bnb_4bit_quant_type",
                        four ? tt_quant_type_name(config->type) : library_type, "bnb_4bit_use_double_quant",
                        config->nested, "llm_int8_enable_fp32_cpu_offload", false, "llm_int8_has_fp16_weight",
                        false, "llm_int8_skip_modules", skip, "llm_int8_threshold", 6.0, "load_in_4bit", four,
                        "load_in_8bit", !four, "quant_method", "bitsandbytes");
}

struct tt_json_value *tt_quantized_config_make(const struct tt_quantized_config *config)
{
    struct tt_json_value *object =
        tt_quant_is_compressed(config->type) ? make_compressed(config) : make_bitsandbytes(config);
    if (object == NULL) (void)tt_fail(TT_ERR_MEMORY, "out of memory for quantization_config");
    return object;
}
