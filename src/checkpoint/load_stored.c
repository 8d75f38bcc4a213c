#include "checkpoint/load_stored.h"

#include <inttypes.h>
#include <stdio.h>

bool tt_stored_quant_owns(const struct tt_model *model, const char *name)
{
    char weight[512];
    size_t bytes;
    if (!tt_quantized_is_part(name, &bytes)) return false;
    (void)snprintf(weight, sizeof weight, "%.*s.weight", (int)bytes, name);
    const tt_param *param = tt_model_find_param(model, weight);
    return param != NULL && tt_param_is_quantized(param);
}

static bool has_codes_alone(const struct tt_model_folder *folder, const char *name)
{
    const struct tt_safetensors_entry *entry = tt_model_folder_find(folder, name);
    return entry != NULL && entry->dtype == TT_F8_E4M3;
}

static tt_status in_blocks(struct tt_quantized *stored)
{
    tt_status status = tt_quantized_in_blocks(stored);
    if (status == TT_ERR_UNSUPPORTED) tt_hint("--fp8_blocks rows quantizes all of them by rows");
    return status;
}

static tt_status find(const struct tt_model_folder *folder, const tt_param *param,
                      struct tt_quantized *stored)
{
    const struct tt_quant_layout *layout = &stored->layout;
    const struct tt_quant_format *format = &layout->format, *wanted = &param->quant.format;
    bool compressed = tt_quant_is_compressed(wanted->type);
    TT_TRY(tt_quantized_find(folder, param->name, stored));
    if (format->type == TT_QUANT_NONE && has_codes_alone(folder, param->name))
        return tt_fail(TT_ERR_DATA, "'%s' is F8_E4M3, but has no scales: neither '_scale' nor '_scale_inv'",
                       param->name);
    if (format->type == TT_QUANT_NONE)
        return tt_fail(TT_ERR_DATA, "'%s' is not quantized, but config.json says so", param->name);
    if (format->type != wanted->type || format->nested != wanted->nested)
        return tt_fail(TT_ERR_DATA, "'%s' is %s with %s scales, but config.json has %s with %s scales",
                       param->name, tt_quant_type_name(format->type), format->nested ? "nested" : "plain",
                       tt_quant_type_name(wanted->type), wanted->nested ? "nested" : "plain");
    if (layout->rows != param->dims[0] || layout->cols != param->dims[1])
        return tt_fail(TT_ERR_DATA,
                       "'%s' is [%" PRId64 ", %" PRId64 "], though config.json makes it [%" PRId64
                       ", %" PRId64 "]",
                       param->name, layout->rows, layout->cols, param->dims[0], param->dims[1]);
    if (compressed && wanted->block > 0) return in_blocks(stored);
    if (!compressed && (format->block != wanted->block || format->nested_block != wanted->nested_block))
        return tt_fail(TT_ERR_UNSUPPORTED,
                       "'%s' is in blocks of %" PRId64 " (nested: %" PRId64 "); only %" PRId64
                       " (nested: %" PRId64 ") are supported",
                       param->name, format->block, format->nested_block, wanted->block, wanted->nested_block);
    return TT_OK;
}

tt_status tt_stored_quant_check(const struct tt_model_folder *folder, const tt_param *param)
{
    struct tt_quantized stored;
    TT_TRY(find(folder, param, &stored));
    return tt_quant_is_compressed(stored.layout.format.type) ? tt_quantized_check_values(folder, &stored)
                                                             : TT_OK;
}

tt_status tt_stored_quant_find(const struct tt_model_folder *folder, const tt_param *param,
                               struct tt_stored_quant *out)
{
    out->folder = folder;
    return find(folder, param, &out->tensor);
}

bool tt_stored_quant_keeps(const struct tt_stored_quant *stored, const tt_param *param)
{
    return param->transposed_of == NULL && stored->tensor.layout.format.block == param->quant.format.block;
}

/* Bytes of the segment that are not bytes of a file: an offset, the scales of FP8. */
static tt_status make_section(void *context, int64_t first, int64_t count, void *to)
{
    const struct tt_stored_quant *stored = context;
    return tt_quantized_read(stored->folder, &stored->tensor, (size_t)first, (size_t)count, to);
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

static void add_made(struct tt_stored_quant *stored, const struct tt_piece *piece,
                     const struct tt_quant_section *section, struct tt_read_range *ranges,
                     size_t *range_count)
{
    size_t first, bytes;
    if (!intersect(piece, section, &first, &bytes)) return;
    struct tt_read_range range = range_of(piece, section, first);
    range.make = make_section;
    range.context = stored;
    range.dtype = TT_U8;
    range.first = (int64_t)(section->offset + first);
    range.count = (int64_t)bytes;
    ranges[(*range_count)++] = range;
}

tt_status tt_stored_quant_ranges(struct tt_stored_quant *stored, const struct tt_piece *piece,
                                 struct tt_read_range *ranges, size_t *range_count)
{
    const struct tt_quantized *tensor = &stored->tensor;
    bool compressed = tt_quant_is_compressed(tensor->layout.format.type);
    size_t first, bytes;
    for (int p = 0; p < tensor->part_count; p++) {
        const struct tt_quantized_part *part = &tensor->parts[p];
        if (compressed && p > 0) {
            add_made(stored, piece, &part->section, ranges, range_count);
            continue;
        }
        if (!intersect(piece, &part->section, &first, &bytes)) continue;
        struct tt_read_range range = range_of(piece, &part->section, first);
        size_t element = tt_dtype_bytes(part->entry->dtype);
        range.file = tt_model_folder_file(stored->folder, part->entry);
        if (range.file == NULL) return TT_ERR_INTERNAL;
        range.entry = part->entry;
        range.dtype = part->entry->dtype;
        range.first = (int64_t)(first / element);
        range.count = (int64_t)(bytes / element);
        ranges[(*range_count)++] = range;
    }
    add_made(stored, piece, &tensor->layout.offset, ranges, range_count);
    return TT_OK;
}
