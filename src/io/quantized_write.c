/* Writing of quantized weights (io/quantized.h). */
#include "io/quantized.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/str.h"
#include "tensor/format.h"

enum { OFFSET_TEXT = 24 }; /* bytes of a double in its shortest decimal form, at most */

tt_status tt_quantized_state_write(const struct tt_quant_layout *layout, tt_dtype dtype, float offset,
                                   struct tt_str *text)
{
    const struct tt_quant_format *format = &layout->format;
    struct tt_str number = {0};
    TT_TRY(tt_str_printf(text, "{\"quant_type\": \"%s\", \"blocksize\": %lld, \"dtype\": \"%s\", ",
                         tt_quant_type_name(format->type), (long long)format->block,
                         tt_dtype_torch_name(dtype)));
    TT_TRY(tt_str_printf(text, "\"shape\": [%lld, %lld]", (long long)layout->rows, (long long)layout->cols));
    if (!format->nested) return tt_str_append_char(text, '}');
    TT_TRY(tt_str_printf(text, ", \"nested_blocksize\": %lld, \"nested_dtype\": \"float32\", ",
                         (long long)format->nested_block));
    struct tt_json_value *value = tt_json_new_real((double)offset);
    tt_status status = value == NULL      ? TT_ERR_MEMORY
                       : isfinite(offset) ? tt_json_write(value, 0, false, &number)
                                          : tt_fail(TT_ERR_DATA, "the mean of the scales is not finite");
    tt_json_release(value);
    if (status == TT_OK)
        status = tt_str_printf(text, "\"nested_offset\": %s}%*s", tt_str_text(&number),
                               OFFSET_TEXT - (int)number.bytes, "");
    tt_str_deinit(&number);
    return status;
}

struct describing {
    const char *name; /* of the weight */
    size_t module_bytes;
    struct tt_arena *arena;
    struct tt_quantized_output *out;
};

static tt_status add_entry(struct describing *d, const char *ending, tt_dtype dtype,
                           struct tt_quant_section section, size_t bytes, int rank)
{
    char name[1024];
    size_t width = tt_dtype_bytes(dtype);
    int written = snprintf(name, sizeof name, "%.*s%s", (int)d->module_bytes, d->name, ending);
    if (written < 0 || (size_t)written >= sizeof name)
        return tt_fail(TT_ERR_DATA, "the name '%.80s...' is too long", d->name);
    if (bytes % width != 0)
        return tt_fail(TT_ERR_DATA, "the %zu bytes of codes of '%s' do not divide into %s", bytes, d->name,
                       tt_dtype_torch_name(dtype));
    char *copy = tt_arena_strdup(d->arena, name);
    if (copy == NULL) return TT_ERR_MEMORY;
    d->out->sections[d->out->count] = section;
    d->out->entries[d->out->count++] =
        (struct tt_safetensors_entry){.name = copy,
                                      .dtype = dtype,
                                      .rank = rank,
                                      .dims = {rank > 0 ? (int64_t)(bytes / width) : 0, rank > 1 ? 1 : 0}};
    return TT_OK;
}

static tt_status describe_four(struct describing *d, const struct tt_quant_layout *layout, tt_dtype dtype,
                               tt_dtype storage)
{
    const struct tt_quant_section none = {0};
    struct tt_str state = {0};
    char ending[64];
    TT_TRY(add_entry(d, ".weight", storage, layout->codes, layout->codes.bytes, 2));
    TT_TRY(add_entry(d, ".weight.absmax", layout->format.nested ? TT_U8 : TT_F32, layout->absmax,
                     layout->absmax.bytes, 1));
    TT_TRY(add_entry(d, ".weight.quant_map", TT_F32, layout->map, layout->map.bytes, 1));
    if (layout->format.nested) {
        TT_TRY(add_entry(d, ".weight.nested_absmax", TT_F32, layout->nested_absmax,
                         layout->nested_absmax.bytes, 1));
        TT_TRY(add_entry(d, ".weight.nested_quant_map", TT_F32, layout->nested_map, layout->nested_map.bytes,
                         1));
    }
    tt_status status = tt_quantized_state_write(layout, dtype, 0, &state);
    size_t bytes = state.bytes;
    tt_str_deinit(&state);
    TT_TRY(status);
    snprintf(ending, sizeof ending, ".weight.quant_state.bitsandbytes__%s",
             tt_quant_type_name(layout->format.type));
    d->out->state = d->out->count;
    return add_entry(d, ending, TT_U8, none, bytes, 1);
}

tt_status tt_quantized_describe(const char *name, const struct tt_quant_layout *layout, tt_dtype dtype,
                                tt_dtype storage, struct tt_arena *arena, struct tt_quantized_output *out)
{
    static const char ending[] = ".weight";
    const struct tt_quant_section none = {0};
    size_t bytes = strlen(name);
    *out = (struct tt_quantized_output){0};
    if (bytes < sizeof ending || !tt_ends_with(name, ending))
        return tt_fail(TT_ERR_DATA, "'%s' is not the weight of a module", name);
    struct describing d = {name, bytes - (sizeof ending - 1), arena, out};
    if (tt_weight_format(layout->format.type)->has_state) return describe_four(&d, layout, dtype, storage);
    TT_TRY(add_entry(&d, ".weight", TT_I8, layout->codes, layout->codes.bytes, 2));
    out->entries[0].dims[0] = layout->rows;
    out->entries[0].dims[1] = layout->cols;
    TT_TRY(add_entry(&d, ".SCB", TT_F32, layout->absmax, layout->absmax.bytes, 1));
    out->state = out->count;
    return add_entry(&d, ".weight_format", TT_U8, none, 1, 0);
}
