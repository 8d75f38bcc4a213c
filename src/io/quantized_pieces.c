#include "io/quantized_pieces.h"

#include <stdio.h>
#include <string.h>

#include "base/str.h"
#include "io/param_source_impl.h"

enum { STATE_BYTES = 4096 };

static const char weight_end[] = ".weight";

/* ---- Finding ---- */

struct finding {
    const struct tt_stored_tensor_place *tensors;
    size_t count;
    struct tt_quantized_matrix *out;
};

static const struct tt_stored_tensor_place *find(const struct finding *finding, const char *ending)
{
    char name[TT_SOURCE_NAME_BYTES];
    const char *weight = finding->out->codes->name;
    int module = (int)(strlen(weight) - strlen(weight_end));
    int written = snprintf(name, sizeof name, "%.*s%s", module, weight, ending);
    if (written < 0 || (size_t)written >= sizeof name) return NULL;
    return tt_stored_tensor_find(finding->tensors, finding->count, name);
}

static int64_t common_divisor(int64_t a, int64_t b)
{
    return b == 0 ? a : common_divisor(b, a % b);
}

/* The view of a tensor with an element for each `block` weights, counted over rows. */
static void view_blocks(int64_t block, int64_t cols, struct tt_quantized_beside *beside)
{
    beside->each = block / common_divisor(block, cols);
    beside->columns = beside->each * cols / block;
}

/* The number of values that a view has. */
static int64_t wanted_count(const struct tt_quant_layout *layout, const struct tt_quantized_beside *beside)
{
    int64_t each = beside->each, columns = beside->columns;
    if (tt_quant_is_compressed(layout->format.type)) return (layout->rows + each - 1) / each * columns;
    return (layout->rows * columns + each - 1) / each;
}

static void view_scales(const struct tt_quant_layout *layout, struct tt_quantized_beside *beside)
{
    int64_t count = tt_safetensors_elements(beside->place->entry);
    if (!tt_quant_is_compressed(layout->format.type)) {
        view_blocks(layout->block_weights, layout->cols, beside);
    } else if (count != 1 && count == layout->rows) {
        view_blocks(layout->cols, layout->cols, beside);
    } else if (count != 1) {
        beside->each = TT_FP8_BLOCK;
        beside->columns = (layout->cols + TT_FP8_BLOCK - 1) / TT_FP8_BLOCK;
    }
}

static tt_status add_beside(const struct finding *finding, const char *ending, size_t section)
{
    struct tt_quantized_matrix *out = finding->out;
    const struct tt_quant_layout *layout = &out->layout;
    const struct tt_stored_tensor_place *place = ending != NULL ? find(finding, ending) : NULL;
    if (place == NULL) return TT_OK;
    for (int i = 0; i < out->count; i++)
        if (out->beside[i].place == place) return TT_OK;
    if (out->count == TT_QUANTIZED_BESIDE_MAX)
        return tt_fail(TT_ERR_INTERNAL, "'%s' has too many tensors beside it", out->codes->name);
    struct tt_quantized_beside *beside = &out->beside[out->count++];
    *beside = (struct tt_quantized_beside){.ending = ending, .place = place};
    if (section == offsetof(struct tt_quant_layout, codes))
        view_blocks(layout->byte_weights * (int64_t)tt_dtype_bytes(place->entry->dtype), layout->cols,
                    beside);
    if (section == offsetof(struct tt_quant_layout, absmax)) view_scales(layout, beside);
    if (section == offsetof(struct tt_quant_layout, nested_absmax))
        view_blocks(layout->format.block * layout->format.nested_block, layout->cols, beside);
    if (beside->each == 0 || wanted_count(layout, beside) == tt_safetensors_elements(place->entry))
        return TT_OK;
    return tt_fail(TT_ERR_DATA, "'%s': '%s' has %lld values and '%s', [%lld, %lld], needs %lld",
                   tt_safetensors_path(place->file), place->entry->name,
                   (long long)tt_safetensors_elements(place->entry), out->codes->name,
                   (long long)layout->rows, (long long)layout->cols, (long long)wanted_count(layout, beside));
}

static tt_status read_layout(const struct tt_weight_format *format, enum tt_quant_type type,
                             const struct tt_stored_tensor_place *sign, struct tt_quantized_matrix *out)
{
    char text[STATE_BYTES];
    const struct tt_safetensors_entry *codes = out->codes->entry, *entry = sign->entry;
    out->dtype = format->files.original;
    if (!format->has_state) {
        if (codes->rank != 2)
            return tt_fail(TT_ERR_DATA, "'%s' has '%s' beside it, but is not a matrix", codes->name,
                           entry->name);
        return tt_quant_layout_make(tt_quant_format_make(type, false), codes->dims[0], codes->dims[1],
                                    &out->layout);
    }
    if (entry->dtype != TT_U8 || entry->bytes > sizeof text)
        return tt_fail(TT_ERR_DATA, "'%s' is not JSON of at most %d bytes", entry->name, STATE_BYTES);
    TT_TRY(tt_safetensors_read(sign->file, entry, 0, (int64_t)entry->bytes, text, TT_U8));
    return tt_quantized_state_parse(text, (size_t)entry->bytes, entry->name, &out->layout, &out->dtype,
                                    &out->offset);
}

tt_status tt_quantized_matrix_find(const struct tt_stored_tensor_place *place,
                                   const struct tt_stored_tensor_place *tensors, size_t count,
                                   struct tt_quantized_matrix *out)
{
    struct finding finding = {tensors, count, out};
    const struct tt_weight_format *format;
    const struct tt_stored_tensor_place *sign = NULL;
    int type = TT_QUANT_NONE;
    *out = (struct tt_quantized_matrix){.codes = place};
    while (tt_ends_with(place->name, weight_end) && sign == NULL &&
           (format = tt_weight_format((enum tt_quant_type)(type + 1))) != NULL) {
        if (format->files.sign != NULL) sign = find(&finding, format->files.sign);
        if (sign == NULL && format->files.sign_too != NULL) sign = find(&finding, format->files.sign_too);
        type++;
    }
    if (sign == NULL) {
        out->codes = NULL;
        return TT_OK;
    }
    const struct tt_format_files *files = &tt_weight_format((enum tt_quant_type)type)->files;
    TT_TRY(read_layout(format, (enum tt_quant_type)type, sign, out));
    for (int i = 0; i < files->count; i++)
        TT_TRY(add_beside(&finding, files->tensors[i].ending, files->tensors[i].section));
    size_t rest = files->compressed ? offsetof(struct tt_quant_layout, absmax) : SIZE_MAX;
    TT_TRY(add_beside(&finding, files->sign_too, rest));
    TT_TRY(add_beside(&finding, files->order, SIZE_MAX));
    for (int i = 0; files->unread != NULL && files->unread[i] != NULL; i++)
        TT_TRY(add_beside(&finding, files->unread[i], SIZE_MAX));
    if (!format->has_state) return TT_OK;
    TT_TRY(add_beside(&finding, files->sign, SIZE_MAX));
    out->beside[out->count - 1].is_state = true;
    return TT_OK;
}

/* ---- Pieces ---- */

static bool by_blocks(const struct tt_source_piece *piece, int64_t each)
{
    return tt_source_piece_by_rows(piece) && piece->rows % each == 0 && piece->group_rows % each == 0 &&
           piece->group_stride / piece->columns % each == 0 && piece->offset / piece->columns % each == 0 &&
           piece->first / piece->columns % each == 0;
}

bool tt_quantized_piece_fits(const struct tt_quant_layout *layout, const struct tt_source_piece *piece)
{
    struct tt_quantized_beside scales = {0};
    int64_t block = layout->block_weights;
    if (piece->rows == layout->rows && piece->group_rows == piece->rows) return true;
    view_blocks(block * (layout->format.nested ? layout->format.nested_block : 1), layout->cols, &scales);
    return by_blocks(piece, scales.each);
}

tt_status tt_quantized_piece(const struct tt_quantized_matrix *matrix,
                             const struct tt_quantized_beside *beside, const struct tt_source_piece *of,
                             struct tt_source_piece *piece)
{
    const struct tt_safetensors_entry *entry = beside->place->entry;
    int64_t each = beside->each, cols = of->columns, wide = beside->columns,
            count = tt_safetensors_elements(entry);
    *piece = *of;
    piece->tensor = beside->place->name;
    piece->rank = entry->rank;
    memcpy(piece->dims, entry->dims, sizeof piece->dims);
    bool whole = of->rows == matrix->layout.rows && of->group_rows == of->rows;
    if (each == 0 || whole) {
        piece->first = piece->offset = 0;
        piece->rows = piece->group_rows = piece->column_stride = 1;
        piece->columns = piece->row_stride = piece->group_stride = count;
        return TT_OK;
    }
    if (!by_blocks(of, each)) {
        tt_status status =
            tt_fail(TT_ERR_UNSUPPORTED,
                    "'%s' has parts that are not whole blocks: '%s' has %lld values for %lld rows",
                    matrix->codes->name, entry->name, (long long)wide, (long long)each);
        tt_hint("use the folder of the original weights; they are quantized while loading");
        return status;
    }
    piece->first = of->first / cols / each * wide;
    piece->rows = of->rows / each;
    piece->columns = piece->row_stride = wide;
    piece->offset = of->offset / cols / each * wide;
    piece->group_rows = of->group_rows / each;
    piece->group_stride = of->group_stride / cols / each * wide;
    return TT_OK;
}

tt_status tt_quantized_piece_state(const struct tt_quantized_matrix *matrix, int64_t rows,
                                   struct tt_str *text)
{
    struct tt_quant_layout layout;
    TT_TRY(tt_quant_layout_make(matrix->layout.format, rows, matrix->layout.cols, &layout));
    return tt_quantized_state_write(&layout, matrix->dtype, matrix->offset, text);
}
