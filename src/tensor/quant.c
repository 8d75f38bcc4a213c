#include "tensor/quant.h"

#include <string.h>

#include "base/integer.h"

static const char *const names[] = {
    [TT_QUANT_NONE] = "none",
    [TT_QUANT_NF4] = "nf4",
    [TT_QUANT_FP4] = "fp4",
    [TT_QUANT_INT8] = "int8",
};

enum { TYPES = sizeof names / sizeof *names };

const char *tt_quant_type_name(enum tt_quant_type type)
{
    return names[(unsigned)type < TYPES ? type : TT_QUANT_NONE];
}

enum tt_quant_type tt_quant_type_from_name(const char *name)
{
    for (int i = TT_QUANT_NONE + 1; i < TYPES; i++)
        if (strcmp(name, names[i]) == 0) return (enum tt_quant_type)i;
    return TT_QUANT_NONE;
}

struct tt_quant_format tt_quant_format_make(enum tt_quant_type type, bool nested)
{
    struct tt_quant_format format = {.type = type};
    if (type != TT_QUANT_NF4 && type != TT_QUANT_FP4) return format;
    format.block = TT_QUANT_BLOCK;
    format.nested = nested;
    if (nested) format.nested_block = TT_QUANT_NESTED_BLOCK;
    return format;
}

static bool is_power_between(int64_t value, int64_t least, int64_t most)
{
    return value >= least && value <= most && (value & (value - 1)) == 0;
}

static tt_status check_format(const struct tt_quant_format *format)
{
    if (format->type == TT_QUANT_INT8) {
        if (format->nested || format->block != 0 || format->nested_block != 0)
            return tt_fail(TT_ERR_DATA,
                           "int8 has one scale a row: block sizes and nested scales do not apply");
        return TT_OK;
    }
    if (format->type != TT_QUANT_NF4 && format->type != TT_QUANT_FP4)
        return tt_fail(TT_ERR_DATA, "quantization type %d is not nf4, fp4 or int8", (int)format->type);
    if (!is_power_between(format->block, 32, 4096))
        return tt_fail(TT_ERR_DATA, "blocks of %lld weights: bitsandbytes has powers of two from 32 to 4096",
                       (long long)format->block);
    if (format->nested && !is_power_between(format->nested_block, 16, 4096))
        return tt_fail(TT_ERR_DATA,
                       "nested blocks of %lld absmax: they must be a power of two from 16 to 4096",
                       (long long)format->nested_block);
    if (!format->nested && format->nested_block != 0)
        return tt_fail(TT_ERR_DATA, "a nested block size without nested quantization");
    return TT_OK;
}

static void add_section(struct tt_quant_layout *layout, struct tt_quant_section *section, int64_t bytes)
{
    section->offset = layout->bytes;
    section->bytes = (size_t)bytes;
    layout->bytes = tt_align_up(layout->bytes + (size_t)bytes, TT_QUANT_ALIGN);
}

tt_status tt_quant_layout_make(struct tt_quant_format format, int64_t rows, int64_t cols,
                               struct tt_quant_layout *out)
{
    const int64_t most = INT64_C(1) << 56;
    struct tt_quant_layout layout = {.format = format, .rows = rows, .cols = cols};
    TT_TRY(check_format(&format));
    if (rows < 1 || cols < 1 || __builtin_mul_overflow(rows, cols, &layout.count) || layout.count > most)
        return tt_fail(TT_ERR_DATA, "a matrix of %lld x %lld cannot be quantized", (long long)rows,
                       (long long)cols);
    bool int8 = format.type == TT_QUANT_INT8;
    layout.blocks = int8 ? rows : (layout.count + format.block - 1) / format.block;
    if (format.nested) layout.nested_blocks = (layout.blocks + format.nested_block - 1) / format.nested_block;
    add_section(&layout, &layout.codes, int8 ? layout.count : (layout.count + 1) / 2);
    add_section(&layout, &layout.absmax, layout.blocks * (format.nested ? 1 : (int64_t)sizeof(float)));
    add_section(&layout, &layout.nested_absmax, layout.nested_blocks * (int64_t)sizeof(float));
    add_section(&layout, &layout.map, int8 ? 0 : TT_QUANT_MAP * (int64_t)sizeof(float));
    add_section(&layout, &layout.nested_map,
                format.nested ? TT_QUANT_NESTED_MAP * (int64_t)sizeof(float) : 0);
    add_section(&layout, &layout.offset, format.nested ? (int64_t)sizeof(float) : 0);
    *out = layout;
    return TT_OK;
}

int64_t tt_quant_block_first(const struct tt_quant_layout *layout, int64_t index)
{
    int64_t first = index * (layout->format.type == TT_QUANT_INT8 ? layout->cols : layout->format.block);
    return first < layout->count ? first : layout->count;
}
