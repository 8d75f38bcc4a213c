#include "io/quantized_impl.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/str.h"
#include "tensor/format.h"

enum { STATE_BYTES_MAX = 4096, NAME_BYTES = 1024 };

static const char weight_end[] = ".weight";

/* The ending at `index` of the tensors beside the codes; NULL behind the last. */
static const char *beside(const struct tt_format_files *files, int index)
{
    const char *const known[] = {files->sign, files->sign_too, files->order};
    int rest = index - (files->count - 1);
    if (rest < 0) return files->tensors[index + 1].ending;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (known[i] != NULL && rest-- == 0) return known[i];
    return files->unread != NULL ? files->unread[rest] : NULL;
}

/* The bytes before the ending, when there are some. */
static bool cut_ending(const char *name, const char *ending, size_t *before)
{
    if (!tt_ends_with(name, ending)) return false;
    *before = strlen(name) - strlen(ending);
    return *before > 0;
}

bool tt_quantized_is_part(const char *name, size_t *module_bytes)
{
    const struct tt_weight_format *format;
    const char *ending;
    for (int type = TT_QUANT_NONE + 1; (format = tt_weight_format((enum tt_quant_type)type)) != NULL; type++)
        for (int i = 0; (ending = beside(&format->files, i)) != NULL; i++)
            if (cut_ending(name, ending, module_bytes)) return true;
    return false;
}

/* The tensor `module` + `ending`, where the module's name is the first `module_bytes` of `name`. */
static const struct tt_safetensors_entry *find(const struct tt_model_folder *folder, const char *name,
                                               size_t module_bytes, const char *ending)
{
    char text[NAME_BYTES];
    int written = snprintf(text, sizeof text, "%.*s%s", (int)module_bytes, name, ending);
    if (written < 0 || (size_t)written >= sizeof text) return NULL;
    return tt_model_folder_find(folder, text);
}

/* ---- The JSON beside the codes ---- */

static tt_status read_shape(const struct tt_json *json, int64_t *rows, int64_t *cols)
{
    const struct tt_json_value *shape;
    TT_TRY(tt_json_array(json, json->root, "shape", &shape));
    const struct tt_json_value *first = tt_json_at(shape, 0), *second = tt_json_at(shape, 1);
    if (tt_json_count(shape) != 2 || !tt_json_is_integer(first) || !tt_json_is_integer(second))
        return tt_fail(TT_ERR_DATA, "%s: 'shape' is not the shape of a matrix (two whole numbers)",
                       json->origin);
    *rows = tt_json_integer(first);
    *cols = tt_json_integer(second);
    return TT_OK;
}

static tt_status read_nested(const struct tt_json *json, struct tt_quant_format *format, float *offset)
{
    const struct tt_json_value *root = json->root;
    const char *dtype = "float32";
    double value = 0;
    format->nested = tt_json_get(root, "nested_blocksize") != NULL;
    bool has_offset = tt_json_get(root, "nested_offset") != NULL;
    if (format->nested != has_offset)
        return tt_fail(TT_ERR_DATA, "%s: only one of 'nested_blocksize' and 'nested_offset' is present",
                       json->origin);
    if (!format->nested) return TT_OK;
    TT_TRY(tt_json_int(json, root, "nested_blocksize", &format->nested_block));
    TT_TRY(tt_json_double(json, root, "nested_offset", &value));
    TT_TRY(tt_json_opt_string(json, root, "nested_dtype", &dtype));
    if (tt_dtype_from_torch_name(dtype) != TT_F32)
        return tt_fail(TT_ERR_UNSUPPORTED, "%s: 'nested_dtype' is '%.40s', not float32", json->origin, dtype);
    if (!isfinite(value) || fabs(value) > 3.4e38)
        return tt_fail(TT_ERR_DATA, "%s: 'nested_offset' is not a float32 number", json->origin);
    *offset = (float)value;
    return TT_OK;
}

static tt_status read_state(const struct tt_json *json, struct tt_quant_layout *layout, tt_dtype *dtype,
                            float *offset)
{
    const char *type, *torch_name;
    struct tt_quant_format format = {0};
    int64_t rows, cols;
    if (!tt_json_is_object(json->root)) return tt_fail(TT_ERR_DATA, "%s: not a JSON object", json->origin);
    TT_TRY(tt_json_string(json, json->root, "quant_type", &type));
    TT_TRY(tt_json_int(json, json->root, "blocksize", &format.block));
    TT_TRY(tt_json_string(json, json->root, "dtype", &torch_name));
    TT_TRY(read_shape(json, &rows, &cols));
    TT_TRY(read_nested(json, &format, offset));
    format.type = tt_quant_type_from_name(type);
    if (format.type == TT_QUANT_NONE || !tt_weight_format(format.type)->has_state) {
        char names[128];
        return tt_fail(TT_ERR_UNSUPPORTED, "%s: 'quant_type' is '%.40s', not %s", json->origin, type,
                       tt_format_names(4, names, sizeof names));
    }
    *dtype = tt_dtype_from_torch_name(torch_name);
    if (*dtype != TT_F32 && *dtype != TT_BF16 && *dtype != TT_F16)
        return tt_fail(TT_ERR_DATA, "%s: 'dtype' is '%.40s', not float32, bfloat16 or float16", json->origin,
                       torch_name);
    tt_status status = tt_quant_layout_make(format, rows, cols, layout);
    if (status != TT_OK) tt_while("reading %s", json->origin);
    return status;
}

tt_status tt_quantized_state_parse(const char *text, size_t bytes, const char *origin,
                                   struct tt_quant_layout *layout, tt_dtype *dtype, float *offset)
{
    struct tt_json json = {0};
    TT_TRY(tt_json_parse(text, bytes, origin, &json));
    tt_status status = read_state(&json, layout, dtype, offset);
    tt_json_deinit(&json);
    return status;
}

/* ---- Finding ---- */

struct found {
    const char *name; /* of the weight */
    size_t module_bytes;
    enum tt_quant_type type;
    const struct tt_safetensors_entry *codes, *sign;
};

static tt_status add_part(struct tt_quantized *tensor, const char *name, const char *what,
                          const struct tt_safetensors_entry *entry, tt_dtype dtype,
                          struct tt_quant_section section)
{
    if (section.bytes == 0 && entry == NULL) return TT_OK;
    if (section.bytes == 0)
        return tt_fail(TT_ERR_DATA, "'%s' exists, but its quantization state does not have it", entry->name);
    if (entry == NULL) return tt_fail(TT_ERR_DATA, "the quantized weight '%s' has no '%s'", name, what);
    if (dtype != TT_DTYPE_NONE && entry->dtype != dtype)
        return tt_fail(TT_ERR_DATA, "'%s' is %s, but must be %s", entry->name, entry->dtype_name,
                       tt_dtype_name(dtype));
    if (entry->dtype == TT_DTYPE_NONE)
        return tt_fail(TT_ERR_UNSUPPORTED, "'%s' has the type %s, whose bytes cannot be read", entry->name,
                       entry->dtype_name);
    if (entry->bytes != section.bytes)
        return tt_fail(TT_ERR_DATA,
                       "'%s' has %" PRIu64 " bytes, but %s [%" PRId64 ", %" PRId64 "] in blocks of %" PRId64
                       " needs %zu",
                       entry->name, entry->bytes, tt_quant_type_name(tensor->layout.format.type),
                       tensor->layout.rows, tensor->layout.cols, tensor->layout.format.block, section.bytes);
    tensor->parts[tensor->part_count++] = (struct tt_quantized_part){entry, section};
    return TT_OK;
}

static tt_status load_state(const struct tt_model_folder *folder, const struct tt_safetensors_entry *entry,
                            struct tt_quantized *out)
{
    char text[STATE_BYTES_MAX];
    if (entry->dtype != TT_U8)
        return tt_fail(TT_ERR_DATA, "'%s' is %s, but must be U8 with JSON in it", entry->name,
                       entry->dtype_name);
    if (entry->bytes > sizeof text)
        return tt_fail(TT_ERR_DATA, "'%s' has %" PRIu64 " bytes: too many for a quantization state",
                       entry->name, entry->bytes);
    TT_TRY(tt_model_folder_read(folder, entry, 0, (int64_t)entry->bytes, text, TT_U8));
    return tt_quantized_state_parse(text, (size_t)entry->bytes, entry->name, &out->layout, &out->dtype,
                                    &out->offset);
}

/* The codes have the shape where there is no state. */
static tt_status shape_of_codes(const struct tt_model_folder *folder, const struct found *found,
                                struct tt_quantized *out)
{
    const struct tt_weight_format *format = tt_weight_format(found->type);
    const struct tt_safetensors_entry *codes = found->codes;
    uint8_t order = 0;
    if (codes->rank != 2)
        return tt_fail(TT_ERR_DATA, "'%s' has '%s' beside it, but is not a matrix", codes->name,
                       format->files.sign);
    TT_TRY(tt_quant_layout_make(tt_quant_format_make(found->type, false), codes->dims[0], codes->dims[1],
                                &out->layout));
    out->dtype = format->files.original;
    if (format->files.order == NULL) return TT_OK;
    const struct tt_safetensors_entry *entry =
        find(folder, found->name, found->module_bytes, format->files.order);
    if (entry == NULL) return TT_OK;
    if (entry->dtype != TT_U8 || entry->bytes != 1)
        return tt_fail(TT_ERR_DATA, "'%s' is not one U8", entry->name);
    TT_TRY(tt_model_folder_read(folder, entry, 0, 1, &order, TT_U8));
    if (order == 0) return TT_OK;
    tt_status status = tt_fail(TT_ERR_UNSUPPORTED, "'%s' is in tiles (%s %d), not in rows", codes->name,
                               format->files.order + 1, order);
    tt_hint("load and save it with a bitsandbytes of 2024 or later, which writes rows only");
    return status;
}

static tt_status find_parts(const struct tt_model_folder *folder, const struct found *found,
                            struct tt_quantized *out)
{
    const struct tt_weight_format *format = tt_weight_format(found->type);
    if (tt_quant_is_compressed(found->type)) return tt_fp8_find(found->codes, found->sign, out);
    TT_TRY(format->has_state ? load_state(folder, found->sign, out) : shape_of_codes(folder, found, out));
    if (out->layout.format.type != found->type)
        return tt_fail(TT_ERR_DATA, "'%s': 'quant_type' is '%s'", found->sign->name,
                       tt_quant_type_name(out->layout.format.type));
    for (int i = 0; i < format->files.count; i++) {
        const struct tt_format_tensor *tensor = &format->files.tensors[i];
        TT_TRY(add_part(out, found->name, tensor->ending,
                        find(folder, found->name, found->module_bytes, tensor->ending),
                        out->layout.format.nested ? tensor->nested_dtype : tensor->dtype,
                        *tt_format_section(&out->layout, tensor)));
    }
    return TT_OK;
}

/* "'a.SCB' or 'a.weight.quant_state.bitsandbytes__nf4'" */
static tt_status hint_signs(const char *name, size_t module_bytes)
{
    struct tt_str text = {0};
    const struct tt_weight_format *format;
    tt_status status = TT_OK;
    for (int type = TT_QUANT_NONE + 1;
         status == TT_OK && (format = tt_weight_format((enum tt_quant_type)type)) != NULL; type++)
        if (format->files.sign != NULL)
            status = tt_str_printf(&text, "%s'%.*s%s'", text.bytes > 0 ? " or " : "", (int)module_bytes, name,
                                   format->files.sign);
    if (status == TT_OK) tt_hint("a quantized weight needs %s", tt_str_text(&text));
    tt_str_deinit(&text);
    return status;
}

/* A weight with scales but without the sign of their format must not be loaded as a plain weight. */
static tt_status refuse_remains(const struct tt_model_folder *folder, const char *name, size_t module_bytes)
{
    const struct tt_weight_format *format;
    const char *ending;
    for (int type = TT_QUANT_NONE + 1; (format = tt_weight_format((enum tt_quant_type)type)) != NULL; type++)
        for (int i = 0; (ending = beside(&format->files, i)) != NULL; i++) {
            const struct tt_safetensors_entry *entry = find(folder, name, module_bytes, ending);
            if (entry == NULL) continue;
            tt_status status = tt_fail(
                TT_ERR_DATA, "'%s' exists, but no tensor that names the format of '%s'", entry->name, name);
            TT_TRY(hint_signs(name, module_bytes));
            return status;
        }
    return TT_OK;
}

tt_status tt_quantized_find(const struct tt_model_folder *folder, const char *name, struct tt_quantized *out)
{
    struct found found = {.name = name};
    const struct tt_weight_format *format;
    int signs = 0;
    *out = (struct tt_quantized){0};
    if (!cut_ending(name, weight_end, &found.module_bytes)) return TT_OK;
    for (int type = TT_QUANT_NONE + 1; (format = tt_weight_format((enum tt_quant_type)type)) != NULL;
         type++) {
        const char *const endings[] = {format->files.sign, format->files.sign_too};
        for (int i = 0; i < 2 && endings[i] != NULL; i++) {
            const struct tt_safetensors_entry *sign = find(folder, name, found.module_bytes, endings[i]);
            if (sign == NULL) continue;
            found.type = (enum tt_quant_type)type;
            found.sign = sign;
            signs++;
        }
    }
    if (signs == 0) return refuse_remains(folder, name, found.module_bytes);
    if (signs > 1) return tt_fail(TT_ERR_DATA, "'%s' has more than one kind of quantization state", name);
    found.codes = tt_model_folder_find(folder, name);
    if (found.codes == NULL)
        return tt_fail(TT_ERR_DATA, "'%s' is missing: the folder has only its quantization state", name);
    struct tt_quantized tensor = {0};
    TT_TRY(find_parts(folder, &found, &tensor));
    *out = tensor;
    return TT_OK;
}

/* ---- Reading ---- */

/* Elements may be wider than a byte, and the range may begin inside an element. */
static tt_status read_bytes(const struct tt_model_folder *folder, const struct tt_safetensors_entry *entry,
                            size_t first, size_t bytes, uint8_t *to)
{
    size_t width = tt_dtype_bytes(entry->dtype);
    while (bytes > 0) {
        size_t skip = first % width, whole = bytes / width * width;
        if (skip == 0 && whole > 0) {
            TT_TRY(tt_model_folder_read(folder, entry, (int64_t)(first / width), (int64_t)(whole / width), to,
                                        entry->dtype));
        } else {
            uint8_t element[8];
            whole = width - skip < bytes ? width - skip : bytes;
            TT_TRY(tt_model_folder_read(folder, entry, (int64_t)(first / width), 1, element, entry->dtype));
            memcpy(to, element + skip, whole);
        }
        first += whole, bytes -= whole, to += whole;
    }
    return TT_OK;
}

tt_status tt_quantized_read(const struct tt_model_folder *folder, const struct tt_quantized *tensor,
                            size_t first, size_t bytes, void *to)
{
    size_t end = first + bytes;
    memset(to, 0, bytes);
    for (int p = 0; p < tensor->part_count; p++) {
        const struct tt_quantized_part *part = &tensor->parts[p];
        size_t low = part->section.offset > first ? part->section.offset : first;
        size_t high = part->section.offset + part->section.bytes;
        if (high > end) high = end;
        if (low >= high) continue;
        uint8_t *place = (uint8_t *)to + (low - first);
        if (p > 0 && tt_quant_is_compressed(tensor->layout.format.type))
            TT_TRY(tt_fp8_read_scales(folder, tensor, low - part->section.offset, high - low, place));
        else
            TT_TRY(read_bytes(folder, part->entry, low - part->section.offset, high - low, place));
    }
    const struct tt_quant_section *section = &tensor->layout.offset;
    for (size_t i = 0; i < section->bytes; i++)
        if (section->offset + i >= first && section->offset + i < end)
            ((uint8_t *)to)[section->offset + i - first] = ((const uint8_t *)&tensor->offset)[i];
    return TT_OK;
}

tt_status tt_quantized_check_values(const struct tt_model_folder *folder, const struct tt_quantized *tensor)
{
    enum { PIECE = 1024 };
    float values[PIECE];
    if (tt_quant_is_compressed(tensor->layout.format.type)) return tt_fp8_check_scales(folder, tensor);
    for (int p = 0; p < tensor->part_count; p++) {
        const struct tt_safetensors_entry *entry = tensor->parts[p].entry;
        if (entry->dtype != TT_F32 || tensor->parts[p].section.offset == tensor->layout.codes.offset)
            continue;
        int64_t count = (int64_t)(entry->bytes / sizeof(float));
        for (int64_t at = 0; at < count; at += PIECE) {
            int64_t some = count - at < PIECE ? count - at : PIECE;
            TT_TRY(tt_model_folder_read(folder, entry, at, some, values, TT_F32));
            for (int64_t i = 0; i < some; i++)
                if (!isfinite(values[i]))
                    return tt_fail(TT_ERR_DATA, "'%s'[%" PRId64 "] is %s", entry->name, at + i,
                                   isnan(values[i]) ? "not a number" : "infinite");
        }
    }
    return TT_OK;
}
