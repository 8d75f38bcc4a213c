#include "checkpoint/load_stored.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/json.h"

enum { STATE_BYTES_MAX = 4096, NAME_BYTES = 512 };

static const char weight_end[] = ".weight";

/* The tensor whose name is the weight's with `from_weight` behind it, or its module's with `from_module`. */
static const struct tt_safetensors_entry *find(const struct tt_model_folder *folder, const tt_param *param,
                                               const char *from_weight, const char *from_module)
{
    char name[NAME_BYTES];
    size_t bytes = strlen(param->name);
    if (from_module != NULL) bytes -= sizeof weight_end - 1;
    int written = snprintf(name, sizeof name, "%.*s%s", (int)bytes, param->name,
                           from_module != NULL ? from_module : from_weight);
    if (written < 0 || (size_t)written >= sizeof name) return NULL;
    return tt_model_folder_find(folder, name);
}

bool tt_stored_quant_owns(const struct tt_model *model, const char *name)
{
    static const char *const ends[] = {".weight.absmax",
                                       ".weight.quant_map",
                                       ".weight.nested_absmax",
                                       ".weight.nested_quant_map",
                                       ".weight.quant_state.bitsandbytes__nf4",
                                       ".weight.quant_state.bitsandbytes__fp4",
                                       ".SCB",
                                       ".weight_format"};
    char weight[NAME_BYTES];
    size_t bytes = strlen(name);
    for (size_t e = 0; e < sizeof ends / sizeof *ends; e++) {
        size_t end_bytes = strlen(ends[e]);
        if (bytes <= end_bytes || strcmp(name + bytes - end_bytes, ends[e]) != 0) continue;
        (void)snprintf(weight, sizeof weight, "%.*s%s", (int)(bytes - end_bytes), name, weight_end);
        const tt_param *param = tt_model_find_param(model, weight);
        return param != NULL && tt_param_is_quantized(param);
    }
    return false;
}

/* ---- What one weight consists of ---- */

struct part {
    const struct tt_safetensors_entry *entry;
    struct tt_quant_section section;
};

struct stored {
    struct part parts[TT_STORED_RANGES_MAX];
    size_t part_count;
    float offset;
};

static tt_status add_part(const struct tt_safetensors_entry *entry, const char *what, const tt_param *param,
                          struct tt_quant_section section, struct stored *stored)
{
    if (section.bytes == 0) return TT_OK;
    if (entry == NULL) return tt_fail(TT_ERR_DATA, "the quantized weight '%s' has no %s", param->name, what);
    if (entry->bytes != section.bytes)
        return tt_fail(TT_ERR_DATA, "the %s of '%s' have %" PRIu64 " bytes instead of %zu", what, param->name,
                       entry->bytes, section.bytes);
    stored->parts[stored->part_count++] = (struct part){entry, section};
    return TT_OK;
}

static tt_status check_type(const struct tt_safetensors_entry *entry, tt_dtype dtype, const tt_param *param)
{
    if (entry == NULL || entry->dtype == dtype) return TT_OK;
    return tt_fail(TT_ERR_DATA, "'%s' of the quantized weight '%s' is %s, not %s", entry->name, param->name,
                   entry->dtype_name, tt_dtype_name(dtype));
}

/* The JSON beside the codes says how they were made. */
static tt_status check_state(const struct tt_json *json, const tt_param *param, struct stored *stored)
{
    const struct tt_quant_format *format = &param->quant.format;
    const char *type = NULL;
    const json_t *shape = NULL;
    int64_t block = 0, nested_block = 0;
    double offset = 0;
    TT_TRY(tt_json_opt_string(json, json->root, "quant_type", &type));
    TT_TRY(tt_json_opt_int(json, json->root, "blocksize", &block));
    TT_TRY(tt_json_opt_int(json, json->root, "nested_blocksize", &nested_block));
    TT_TRY(tt_json_opt_double(json, json->root, "nested_offset", &offset));
    TT_TRY(tt_json_array(json, json->root, "shape", &shape));
    if (type == NULL || tt_quant_type_from_name(type) != format->type)
        return tt_fail(TT_ERR_DATA, "%s: quant_type is not %s", json->origin,
                       tt_quant_type_name(format->type));
    if (json_array_size(shape) != 2 || json_integer_value(json_array_get(shape, 0)) != param->dims[0] ||
        json_integer_value(json_array_get(shape, 1)) != param->dims[1])
        return tt_fail(TT_ERR_DATA, "%s: the shape is not [%" PRId64 ", %" PRId64 "]", json->origin,
                       param->dims[0], param->dims[1]);
    if (block != format->block || nested_block != format->nested_block)
        return tt_fail(TT_ERR_UNSUPPORTED,
                       "%s: blocks of %" PRId64 " and %" PRId64 " instead of %" PRId64 " and %" PRId64,
                       json->origin, block, nested_block, format->block, format->nested_block);
    stored->offset = (float)offset;
    return TT_OK;
}

static tt_status read_state(const struct tt_model_folder *folder, const tt_param *param,
                            struct stored *stored)
{
    char suffix[64], text[STATE_BYTES_MAX];
    struct tt_json json = {0};
    (void)snprintf(suffix, sizeof suffix, ".quant_state.bitsandbytes__%s",
                   tt_quant_type_name(param->quant.format.type));
    const struct tt_safetensors_entry *entry = find(folder, param, suffix, NULL);
    if (entry == NULL)
        return tt_fail(TT_ERR_DATA, "the quantized weight '%s' has no %s", param->name, suffix + 1);
    TT_TRY(check_type(entry, TT_U8, param));
    if (entry->bytes > sizeof text)
        return tt_fail(TT_ERR_DATA, "'%s' has %" PRIu64 " bytes", entry->name, entry->bytes);
    TT_TRY(tt_model_folder_read(folder, entry, 0, (int64_t)entry->bytes, text, TT_U8));
    tt_status status = tt_json_parse(text, (size_t)entry->bytes, entry->name, &json);
    if (status == TT_OK) status = check_state(&json, param, stored);
    tt_json_deinit(&json);
    return status;
}

static tt_status find_int8(const struct tt_model_folder *folder, const tt_param *param,
                           const struct tt_safetensors_entry *codes, struct stored *stored)
{
    const struct tt_safetensors_entry *scales = find(folder, param, NULL, ".SCB");
    const struct tt_safetensors_entry *format = find(folder, param, NULL, ".weight_format");
    uint8_t order = 0;
    TT_TRY(check_type(codes, TT_I8, param));
    TT_TRY(check_type(scales, TT_F32, param));
    if (format != NULL && format->dtype == TT_U8 && format->bytes == 1)
        TT_TRY(tt_model_folder_read(folder, format, 0, 1, &order, TT_U8));
    if (order != 0)
        return tt_fail(TT_ERR_UNSUPPORTED, "'%s' is stored in tiles (weight_format %d), not in rows",
                       param->name, order);
    TT_TRY(add_part(codes, "codes", param, param->quant.codes, stored));
    return add_part(scales, "scales (SCB)", param, param->quant.absmax, stored);
}

static tt_status find_stored(const struct tt_model_folder *folder, const tt_param *param,
                             struct stored *stored)
{
    const struct tt_quant_layout *layout = &param->quant;
    const struct tt_safetensors_entry *codes = find(folder, param, "", NULL);
    *stored = (struct stored){0};
    if (layout->format.type == TT_QUANT_INT8) return find_int8(folder, param, codes, stored);
    const struct tt_safetensors_entry *absmax = find(folder, param, ".absmax", NULL);
    const struct tt_safetensors_entry *nested = find(folder, param, ".nested_absmax", NULL);
    const struct tt_safetensors_entry *map = find(folder, param, ".quant_map", NULL);
    const struct tt_safetensors_entry *nested_map = find(folder, param, ".nested_quant_map", NULL);
    TT_TRY(check_type(absmax, layout->format.nested ? TT_U8 : TT_F32, param));
    TT_TRY(check_type(nested, TT_F32, param));
    TT_TRY(check_type(map, TT_F32, param));
    TT_TRY(check_type(nested_map, TT_F32, param));
    TT_TRY(read_state(folder, param, stored));
    TT_TRY(add_part(codes, "codes", param, layout->codes, stored));
    TT_TRY(add_part(absmax, "scales (absmax)", param, layout->absmax, stored));
    TT_TRY(add_part(nested, "nested scales (nested_absmax)", param, layout->nested_absmax, stored));
    TT_TRY(add_part(map, "values (quant_map)", param, layout->map, stored));
    return add_part(nested_map, "values of scales (nested_quant_map)", param, layout->nested_map, stored);
}

tt_status tt_stored_quant_check(const struct tt_model_folder *folder, const tt_param *param)
{
    struct stored stored;
    return find_stored(folder, param, &stored);
}

/* ---- Reading ---- */

static tt_status make_offset(void *context, int64_t first, int64_t count, void *to)
{
    memcpy(to, (const char *)context + first, (size_t)count);
    return TT_OK;
}

/* Sections and slices begin at multiples of 64 bytes, so no element is cut. */
static bool intersect(const struct tt_piece *piece, const struct tt_quant_section *section, size_t *first,
                      size_t *bytes)
{
    size_t begin = (size_t)piece->first, end = begin + (size_t)piece->count;
    size_t low = begin > section->offset ? begin : section->offset;
    size_t high = end < section->offset + section->bytes ? end : section->offset + section->bytes;
    if (low >= high) return false;
    *first = low - section->offset;
    *bytes = high - low;
    return true;
}

static struct tt_read_range range_of(const struct tt_piece *piece, const struct tt_quant_section *section,
                                     size_t first)
{
    return (struct tt_read_range){
        .to = (char *)piece->data + (section->offset + first - (size_t)piece->first),
        .in_host = piece->in_host,
        .name = piece->param->name,
    };
}

tt_status tt_stored_quant_ranges(const struct tt_model_folder *folder, const struct tt_piece *piece,
                                 float *offset, struct tt_read_range *ranges, size_t *range_count)
{
    struct stored stored;
    size_t first, bytes;
    TT_TRY(find_stored(folder, piece->param, &stored));
    for (size_t p = 0; p < stored.part_count; p++) {
        const struct part *part = &stored.parts[p];
        if (!intersect(piece, &part->section, &first, &bytes)) continue;
        struct tt_read_range range = range_of(piece, &part->section, first);
        size_t element = tt_dtype_bytes(part->entry->dtype);
        range.file = tt_model_folder_file(folder, part->entry);
        if (range.file == NULL) return TT_ERR_INTERNAL;
        range.entry = part->entry;
        range.dtype = part->entry->dtype;
        range.first = (int64_t)(first / element);
        range.count = (int64_t)(bytes / element);
        ranges[(*range_count)++] = range;
    }
    const struct tt_quant_section *section = &piece->param->quant.offset;
    *offset = stored.offset;
    if (!intersect(piece, section, &first, &bytes)) return TT_OK;
    struct tt_read_range range = range_of(piece, section, first);
    range.make = make_offset;
    range.context = offset;
    range.dtype = TT_U8;
    range.count = (int64_t)bytes;
    ranges[(*range_count)++] = range;
    return TT_OK;
}
