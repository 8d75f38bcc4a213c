#include "tensor/quant.h"

#include <stdio.h>
#include <string.h>

#include "base/integer.h"
#include "tensor/format.h"

static const struct tt_weight_format *const formats[] = {
    NULL,
#define FORMAT(id, name) &tt_format_##name,
#include "tensor/formats.def"
#undef FORMAT
};

enum { TYPES = sizeof formats / sizeof *formats };

const struct tt_weight_format *tt_weight_format(enum tt_quant_type type)
{
    return (unsigned)type < TYPES ? formats[type] : NULL;
}

const char *tt_quant_type_name(enum tt_quant_type type)
{
    const struct tt_weight_format *format = tt_weight_format(type);
    return format != NULL ? format->name : "none";
}

enum tt_quant_type tt_quant_type_from_name(const char *name)
{
    for (int i = TT_QUANT_NONE + 1; i < TYPES; i++)
        if (strcmp(name, formats[i]->name) == 0) return (enum tt_quant_type)i;
    return TT_QUANT_NONE;
}

const float *tt_quant_map(enum tt_quant_type type)
{
    const struct tt_weight_format *format = tt_weight_format(type);
    return format != NULL ? format->map : NULL;
}

struct tt_quant_format tt_quant_format_make(enum tt_quant_type type, bool nested)
{
    struct tt_quant_format format = {.type = type};
    const struct tt_weight_format *kind = tt_weight_format(type);
    if (kind == NULL || kind->row_blocks) return format;
    format.block = kind->block > 0 ? kind->block : TT_QUANT_BLOCK;
    format.nested = nested || kind->powers;
    if (format.nested) format.nested_block = TT_QUANT_NESTED_BLOCK;
    return format;
}

static bool is_power_between(int64_t value, int64_t least, int64_t most)
{
    return value >= least && value <= most && (value & (value - 1)) == 0;
}

bool tt_quant_multiplies(enum tt_quant_type type)
{
    const struct tt_weight_format *format = tt_weight_format(type);
    return format != NULL && format->multiplies;
}

bool tt_quant_is_compressed(enum tt_quant_type type)
{
    const struct tt_weight_format *format = tt_weight_format(type);
    return format != NULL && format->files.compressed;
}

enum tt_quant_type tt_quant_multiplied(void)
{
    int type = TT_QUANT_NONE + 1;
    while (type < TYPES - 1 && !formats[type]->multiplies) type++;
    return (enum tt_quant_type)type;
}

enum tt_quant_type tt_format_of_width(int load_bits, int place)
{
    for (int i = TT_QUANT_NONE + 1; i < TYPES; i++)
        if (formats[i]->load_bits == load_bits && place-- == 0) return (enum tt_quant_type)i;
    return TT_QUANT_NONE;
}

const char *tt_format_names(int load_bits, char *text, size_t bytes)
{
    const char *names[TYPES];
    int count = 0;
    size_t length = 0;
    for (int i = TT_QUANT_NONE + 1; i < TYPES; i++)
        if (load_bits == 0 || formats[i]->load_bits == load_bits) names[count++] = formats[i]->name;
    text[0] = '\0';
    for (int i = 0; i < count && length < bytes; i++) {
        const char *before = i == 0 ? "" : i + 1 < count ? ", " : " or ";
        int added = snprintf(text + length, bytes - length, "%s%s", before, names[i]);
        length += added > 0 ? (size_t)added : 0;
    }
    return text;
}

static tt_status check_format(const struct tt_quant_format *format)
{
    const struct tt_weight_format *kind = tt_weight_format(format->type);
    if (kind == NULL) {
        char names[128];
        return tt_fail(TT_ERR_DATA, "quantization type %d is not %s", (int)format->type,
                       tt_format_names(0, names, sizeof names));
    }
    if (kind->row_blocks) {
        bool square = kind->square != 0 && format->block == kind->square;
        if (format->nested || (format->block != 0 && !square) || format->nested_block != 0)
            return tt_fail(TT_ERR_DATA, "%s has one scale a row: block sizes and nested scales do not apply",
                           kind->name);
        return TT_OK;
    }
    if (!is_power_between(format->block, 32, 4096))
        return tt_fail(TT_ERR_DATA, "blocks of %lld weights: bitsandbytes has powers of two from 32 to 4096",
                       (long long)format->block);
    if (format->nested && !is_power_between(format->nested_block, 16, 4096))
        return tt_fail(TT_ERR_DATA,
                       "nested blocks of %lld absmax: they must be a power of two from 16 to 4096",
                       (long long)format->nested_block);
    if (!format->nested && format->nested_block != 0)
        return tt_fail(TT_ERR_DATA, "nested_block is %lld, but the scales are not nested",
                       (long long)format->nested_block);
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
    const struct tt_weight_format *kind = tt_weight_format(format.type);
    layout.block_weights = kind->row_blocks ? cols : format.block;
    layout.byte_weights = kind->byte_weights;
    layout.blocks = (layout.count + layout.block_weights - 1) / layout.block_weights;
    if (kind->row_blocks && format.block > 0) {
        layout.block_weights = 0;
        layout.row_squares = (cols + format.block - 1) / format.block;
        layout.blocks = (rows + format.block - 1) / format.block * layout.row_squares;
    }
    if (format.nested) layout.nested_blocks = (layout.blocks + format.nested_block - 1) / format.nested_block;
    add_section(&layout, &layout.codes, (layout.count + kind->byte_weights - 1) / kind->byte_weights);
    add_section(&layout, &layout.absmax, layout.blocks * (format.nested ? 1 : (int64_t)sizeof(float)));
    add_section(&layout, &layout.nested_absmax, layout.nested_blocks * (int64_t)sizeof(float));
    add_section(&layout, &layout.map, kind->map != NULL ? TT_QUANT_MAP * (int64_t)sizeof(float) : 0);
    add_section(&layout, &layout.nested_map,
                format.nested ? TT_QUANT_NESTED_MAP * (int64_t)sizeof(float) : 0);
    add_section(&layout, &layout.offset, format.nested ? (int64_t)sizeof(float) : 0);
    *out = layout;
    return TT_OK;
}

int64_t tt_quant_block_first(const struct tt_quant_layout *layout, int64_t index)
{
    int64_t first = index * layout->block_weights;
    return first < layout->count ? first : layout->count;
}
