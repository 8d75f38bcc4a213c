/* Weights in FP8 (io/quantized.h). */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "io/quantized_impl.h"
#include "tensor/e4m3.h"

enum { SCALES = 512 }; /* read at a time */

static int64_t blocks_of(int64_t extent)
{
    return (extent + TT_FP8_BLOCK - 1) / TT_FP8_BLOCK;
}

static tt_status fail_scales(const struct tt_safetensors_entry *codes,
                             const struct tt_safetensors_entry *scales)
{
    tt_status status = tt_fail(TT_ERR_DATA, "the scales '%s' do not fit '%s' [%" PRId64 ", %" PRId64 "]",
                               scales->name, codes->name, codes->dims[0], codes->dims[1]);
    tt_hint("supported are one scale for the matrix, [%" PRId64 ", 1] for rows, and [%" PRId64 ", %" PRId64
            "] for blocks of %d x %d",
            codes->dims[0], blocks_of(codes->dims[0]), blocks_of(codes->dims[1]), TT_FP8_BLOCK, TT_FP8_BLOCK);
    return status;
}

static tt_status find_kind(const struct tt_safetensors_entry *codes,
                           const struct tt_safetensors_entry *scales, enum tt_fp8_scales *kind)
{
    int64_t rows = codes->dims[0], cols = codes->dims[1], count = 1;
    int64_t last = scales->rank == 2 ? scales->dims[1] : 1;
    for (int d = 0; d < scales->rank; d++) count *= scales->dims[d];
    if (scales->rank <= 2 && count == 1)
        *kind = TT_FP8_ONE_SCALE;
    else if ((scales->rank == 1 || scales->rank == 2) && scales->dims[0] == rows && last == 1)
        *kind = TT_FP8_ROW_SCALES;
    else if (scales->rank == 2 && scales->dims[0] == blocks_of(rows) && last == blocks_of(cols))
        *kind = TT_FP8_BLOCK_SCALES;
    else
        return fail_scales(codes, scales);
    return TT_OK;
}

static tt_status make_layout(struct tt_quantized *tensor, bool blocks)
{
    struct tt_quant_format format = tt_quant_format_make(TT_QUANT_FP8, false);
    const struct tt_safetensors_entry *codes = tensor->parts[0].entry;
    int64_t rows = codes->dims[0] * (codes->rank == 3 ? codes->dims[1] : 1);
    if (blocks) format.block = TT_FP8_BLOCK;
    TT_TRY(tt_quant_layout_make(format, rows, codes->dims[codes->rank - 1], &tensor->layout));
    tensor->parts[0].section = tensor->layout.codes;
    tensor->parts[1].section = tensor->layout.absmax;
    return TT_OK;
}

static tt_status check_codes(const struct tt_safetensors_entry *codes,
                             const struct tt_safetensors_entry *scales)
{
    if (codes->dtype != TT_F8_E4M3)
        return tt_fail(codes->dtype == TT_F8_E5M2 ? TT_ERR_UNSUPPORTED : TT_ERR_DATA,
                       "'%s' is %s, but must be F8_E4M3, because '%s' exists", codes->name, codes->dtype_name,
                       scales->name);
    return TT_OK;
}

static tt_status check_scales(const struct tt_safetensors_entry *scales)
{
    if (scales->dtype != TT_F32 && scales->dtype != TT_BF16 && scales->dtype != TT_F16 &&
        scales->dtype != TT_F8_E8M0)
        return tt_fail(TT_ERR_DATA, "'%s' is %s, but must be F32, BF16, F16 or F8_E8M0", scales->name,
                       scales->dtype_name);
    return TT_OK;
}

static tt_status set_parts(const struct tt_safetensors_entry *codes,
                           const struct tt_safetensors_entry *scales, struct tt_quantized *out)
{
    out->dtype = tt_weight_format(TT_QUANT_FP8)->files.original;
    out->parts[0].entry = codes;
    out->parts[1].entry = scales;
    out->part_count = 2;
    return make_layout(out, out->scales == TT_FP8_BLOCK_SCALES);
}

tt_status tt_fp8_find(const struct tt_safetensors_entry *codes, const struct tt_safetensors_entry *scales,
                      struct tt_quantized *out)
{
    TT_TRY(check_codes(codes, scales));
    if (codes->rank != 2)
        return tt_fail(TT_ERR_DATA, "'%s' has '%s' beside it, but is not a matrix", codes->name,
                       scales->name);
    TT_TRY(check_scales(scales));
    TT_TRY(find_kind(codes, scales, &out->scales));
    out->scale_rows = 1;
    return set_parts(codes, scales, out);
}

static tt_status find_kind_of_experts(const struct tt_safetensors_entry *codes,
                                      const struct tt_safetensors_entry *scales, struct tt_quantized *out)
{
    int64_t experts = codes->dims[0], rows = codes->dims[1], cols = codes->dims[2];
    int64_t groups = scales->rank > 1 ? scales->dims[1] : 1, last = scales->rank > 2 ? scales->dims[2] : 1;
    bool fits = scales->rank >= 1 && scales->rank <= 3 && scales->dims[0] == experts && groups > 0;
    if (fits && last == 1 && rows % groups == 0) {
        out->scales = TT_FP8_ROW_SCALES;
        out->scale_rows = rows / groups;
        return TT_OK;
    }
    out->scales = TT_FP8_BLOCK_SCALES;
    if (fits && rows % TT_FP8_BLOCK == 0 && groups == blocks_of(rows) && last == blocks_of(cols))
        return TT_OK;
    tt_status status = tt_fail(
        TT_ERR_DATA, "the scales '%s' do not fit '%s', %" PRId64 " experts of [%" PRId64 ", %" PRId64 "]",
        scales->name, codes->name, experts, rows, cols);
    tt_hint("supported are [%" PRId64 "], [%" PRId64 ", G] and [%" PRId64 ", G, 1] for G groups of each "
            "expert's rows, and blocks of %d x %d in whole rows of blocks",
            experts, experts, experts, TT_FP8_BLOCK, TT_FP8_BLOCK);
    return status;
}

tt_status tt_fp8_find_experts(const struct tt_safetensors_entry *codes,
                              const struct tt_safetensors_entry *scales, struct tt_quantized *out)
{
    *out = (struct tt_quantized){0};
    TT_TRY(check_codes(codes, scales));
    TT_TRY(check_scales(scales));
    TT_TRY(find_kind_of_experts(codes, scales, out));
    return set_parts(codes, scales, out);
}

tt_status tt_quantized_in_blocks(struct tt_quantized *tensor)
{
    if (tensor->scales != TT_FP8_ROW_SCALES) return make_layout(tensor, true);
    return tt_fail(TT_ERR_UNSUPPORTED, "'%s' has scales of rows ('%s'), though config.json has blocks",
                   tensor->parts[0].entry->name, tensor->parts[1].entry->name);
}

/* ---- Scales ---- */

/* 2^(code - 127); 255 is NaN. */
static float e8m0_to_f32(uint8_t code)
{
    uint32_t bits = code == 255 ? 0x7fc00000u : code == 0 ? 1u << 22 : (uint32_t)code << 23;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* Scales first .. first + count - 1 of the flat tensor. */
static tt_status read_scales(const struct tt_model_folder *folder, const struct tt_quantized *tensor,
                             int64_t first, int64_t count, float *to)
{
    const struct tt_safetensors_entry *entry = tensor->parts[1].entry;
    uint8_t *codes = (uint8_t *)to + 3 * count;
    if (entry->dtype != TT_F8_E8M0) return tt_model_folder_read(folder, entry, first, count, to, TT_F32);
    TT_TRY(tt_model_folder_read(folder, entry, first, count, codes, TT_F8_E8M0));
    for (int64_t i = 0; i < count; i++) to[i] = e8m0_to_f32(codes[i]);
    return TT_OK;
}

static int64_t scale_count(const struct tt_quantized *tensor)
{
    const struct tt_quant_layout *layout = &tensor->layout;
    if (tensor->scales == TT_FP8_ONE_SCALE) return 1;
    if (tensor->scales == TT_FP8_ROW_SCALES) return layout->rows / tensor->scale_rows;
    return blocks_of(layout->rows) * blocks_of(layout->cols);
}

/* Some of the scales, in order. */
struct window {
    float values[SCALES];
    int64_t first, count;
};

static tt_status scale_at(const struct tt_model_folder *folder, const struct tt_quantized *tensor,
                          struct window *window, int64_t index, float *scale)
{
    if (index < window->first || index >= window->first + window->count) {
        int64_t left = scale_count(tensor) - index;
        window->first = index;
        window->count = left < SCALES ? left : SCALES;
        TT_TRY(read_scales(folder, tensor, index, window->count, window->values));
    }
    *scale = window->values[index - window->first];
    return TT_OK;
}

tt_status tt_fp8_read_scales(const struct tt_model_folder *folder, const struct tt_quantized *tensor,
                             size_t first, size_t bytes, uint8_t *to)
{
    struct window window = {.count = 0};
    float scale;
    for (size_t at = 0, here; at < bytes; at += here) {
        size_t index = (first + at) / sizeof scale, skip = (first + at) % sizeof scale;
        here = sizeof scale - skip < bytes - at ? sizeof scale - skip : bytes - at;
        int64_t stored = (int64_t)index; /* of rows or blocks, which may have one together */
        if (tensor->scales == TT_FP8_ONE_SCALE) stored = 0;
        if (tensor->scales == TT_FP8_ROW_SCALES) stored /= tensor->scale_rows;
        TT_TRY(scale_at(folder, tensor, &window, stored, &scale));
        memcpy(to + at, (const char *)&scale + skip, here);
    }
    return TT_OK;
}

tt_status tt_fp8_check_scales(const struct tt_model_folder *folder, const struct tt_quantized *tensor)
{
    struct window window = {.count = 0};
    float scale;
    for (int64_t i = 0; i < scale_count(tensor); i++) {
        TT_TRY(scale_at(folder, tensor, &window, i, &scale));
        if (!isfinite(scale))
            return tt_fail(TT_ERR_DATA, "'%s'[%" PRId64 "] is %s", tensor->parts[1].entry->name, i,
                           isnan(scale) ? "not a number" : "infinite");
    }
    return TT_OK;
}

/* ---- Weights ---- */

/* The index of the scale of weight `index`, and the weights from it on that have the same. */
static int64_t scale_index(const struct tt_quantized *tensor, int64_t index, int64_t *run)
{
    int64_t cols = tensor->layout.cols, row = index / cols, col = index % cols;
    *run = tensor->scales == TT_FP8_ONE_SCALE ? tensor->layout.count - index : cols - col;
    if (tensor->scales != TT_FP8_BLOCK_SCALES)
        return tensor->scales == TT_FP8_ONE_SCALE ? 0 : row / tensor->scale_rows;
    if (*run > TT_FP8_BLOCK - col % TT_FP8_BLOCK) *run = TT_FP8_BLOCK - col % TT_FP8_BLOCK;
    return row / TT_FP8_BLOCK * blocks_of(cols) + col / TT_FP8_BLOCK;
}

tt_status tt_quantized_read_weights(const struct tt_model_folder *folder, const struct tt_quantized *tensor,
                                    int64_t first, int64_t count, float *to)
{
    struct window window = {.count = 0};
    float value_of[256];
    /* The codes lie in the last quarter, so that each is read before its place is written. */
    uint8_t *codes = (uint8_t *)to + 3 * count;
    for (int i = 0; i < 256; i++) value_of[i] = tt_e4m3_to_f32((uint8_t)i);
    TT_TRY(tt_model_folder_read(folder, tensor->parts[0].entry, first, count, codes, TT_F8_E4M3));
    for (int64_t i = 0, run; i < count; i += run) {
        float scale;
        int64_t index = scale_index(tensor, first + i, &run);
        if (run > count - i) run = count - i;
        TT_TRY(scale_at(folder, tensor, &window, index, &scale));
        for (int64_t j = i; j < i + run; j++) to[j] = value_of[codes[j]] * scale;
    }
    return TT_OK;
}
