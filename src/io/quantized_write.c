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

/* The tensor that has no section: the JSON, or the order of the codes. */
static tt_status add_state(struct describing *d, const struct tt_quant_layout *layout, tt_dtype dtype)
{
    const struct tt_weight_format *format = tt_weight_format(layout->format.type);
    const struct tt_quant_section none = {0};
    struct tt_str state = {0};
    d->out->state = d->out->count;
    if (!format->has_state)
        return format->files.order != NULL ? add_entry(d, format->files.order, TT_U8, none, 1, 0) : TT_OK;
    tt_status status = tt_quantized_state_write(layout, dtype, 0, &state);
    size_t bytes = state.bytes;
    tt_str_deinit(&state);
    return status == TT_OK ? add_entry(d, format->files.sign, TT_U8, none, bytes, 1) : status;
}

tt_status tt_quantized_describe(const char *name, const struct tt_quant_layout *layout, tt_dtype dtype,
                                tt_dtype storage, struct tt_arena *arena, struct tt_quantized_output *out)
{
    static const char ending[] = ".weight";
    size_t bytes = strlen(name);
    *out = (struct tt_quantized_output){0};
    if (bytes < sizeof ending || !tt_ends_with(name, ending))
        return tt_fail(TT_ERR_DATA, "'%s' is not the weight of a module", name);
    struct describing d = {name, bytes - (sizeof ending - 1), arena, out};
    const struct tt_format_files *files = &tt_weight_format(layout->format.type)->files;
    for (int i = 0; i < files->count; i++) {
        const struct tt_format_tensor *tensor = &files->tensors[i];
        const struct tt_quant_section *section = tt_format_section(layout, tensor);
        tt_dtype type = layout->format.nested ? tensor->nested_dtype : tensor->dtype;
        if (section->bytes == 0) continue;
        TT_TRY(add_entry(&d, tensor->ending, type != TT_DTYPE_NONE ? type : storage, *section, section->bytes,
                         i == 0 ? 2 : 1));
    }
    if (files->tensors[0].dtype != TT_DTYPE_NONE) { /* codes of a type of their own have the matrix' shape */
        out->entries[0].dims[0] = layout->rows;
        out->entries[0].dims[1] = layout->cols;
    }
    /* compressed-tensors has scales of rows as [out, 1] */
    if (tt_quant_is_compressed(layout->format.type)) {
        out->entries[1].rank = 2;
        out->entries[1].dims[1] = 1;
    }
    return add_state(&d, layout, dtype);
}
