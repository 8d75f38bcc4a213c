/* Every row of tensor/formats.def: its name, the size of its codes, and the error of one code. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "tensor/e4m3.h"
#include "tensor/format.h"
#include "tensor/mxfp4.h"

enum { ROWS = 6, COLS = 64, COUNT = ROWS * COLS };

static const enum tt_quant_type types[] = {
#define FORMAT(id, name) TT_QUANT_##id,
#include "tensor/formats.def"
#undef FORMAT
};
enum { TYPES = sizeof types / sizeof *types };

static void names_are_found_again(void **state)
{
    (void)state;
    for (int i = 0; i < TYPES; i++) {
        assert_non_null(tt_weight_format(types[i]));
        assert_int_equal(tt_quant_type_from_name(tt_quant_type_name(types[i])), types[i]);
    }
    assert_null(tt_weight_format(TT_QUANT_NONE));
    assert_null(tt_weight_format((enum tt_quant_type)(TYPES + 1)));
    assert_string_equal(tt_quant_type_name(TT_QUANT_NONE), "none");
    assert_int_equal(tt_quant_type_from_name("none"), TT_QUANT_NONE);
}

static tt_status read_floats(void *context, int64_t first, int64_t count, void *to)
{
    memcpy(to, (const float *)context + first, (size_t)count * sizeof(float));
    return TT_OK;
}

/* Half of the widest gap between two values that a code has, for weights up to 1. */
static float widest(const struct tt_weight_format *format)
{
    float gap = 0;
    if (format->powers)
        return 0.25f; /* the largest number is 1: scales of 1/4, steps of 2 of these at the top */
    if (format->scale_of != NULL) return 16.0f / TT_E4M3_MOST + 0x1p-20f; /* fp8: steps of 32 at the top */
    if (format->map == NULL) return 0.5f / 127 + 0x1p-11f;                /* and the rounding to fp16 */
    for (int a = 0; a < TT_QUANT_MAP; a++) {
        float next = 2;
        for (int b = 0; b < TT_QUANT_MAP; b++)
            if (format->map[b] > format->map[a] && format->map[b] < next) next = format->map[b];
        if (next < 2) gap = fmaxf(gap, next - format->map[a]);
    }
    return gap / 2 + 0x1p-20f;
}

static void codes_are_the_nearest(void **state)
{
    (void)state;
    float x[COUNT], absmax[COUNT], y[COUNT];
    uint8_t segment[8192];
    for (int i = 0; i < COUNT; i++) x[i] = i % COLS == 5 ? 1.0f : (float)(i * 37 % 199 - 99) / 100.0f;
    for (int i = 0; i < TYPES; i++) {
        const struct tt_weight_format *format = tt_weight_format(types[i]);
        struct tt_quant_layout layout;
        assert_int_equal(tt_quant_layout_make(tt_quant_format_make(types[i], false), ROWS, COLS, &layout),
                         TT_OK);
        assert_int_equal(layout.codes.bytes, COUNT / format->byte_weights);
        assert_int_equal(layout.blocks, format->block > 0 ? COUNT / format->block : ROWS);
        assert_true(layout.bytes <= sizeof segment);
        tt_quant_absmax(&layout, 0, layout.blocks, x, TT_F32, absmax);
        struct tt_quant_source source = {
            .absmax = absmax, .dtype = TT_F32, .read = read_floats, .context = x};
        assert_int_equal(tt_quant_encode(&layout, &source, 0, layout.bytes, segment), TT_OK);
        tt_quant_decode(&layout, segment, 0, COUNT, y, TT_F32);
        for (int w = 0; w < COUNT; w++)
            if (fabsf(y[w] - x[w]) > widest(format))
                fail_msg("%s: weight %d is %g, decoded %g", format->name, w, (double)x[w], (double)y[w]);
    }
}

static void a_type_that_is_none_is_refused_with_all_names(void **state)
{
    (void)state;
    struct tt_quant_layout layout;
    struct tt_quant_format format = {.type = (enum tt_quant_type)(TYPES + 1), .block = TT_QUANT_BLOCK};
    assert_int_equal(tt_quant_layout_make(format, ROWS, COLS, &layout), TT_ERR_DATA);
    for (int i = 0; i < TYPES; i++)
        assert_non_null(strstr(tt_error_last()->message, tt_quant_type_name(types[i])));
}

/* Sizes by the properties of the row, at counts that are no multiple of a block or of a byte. */
static void sections_follow_the_row(void **state)
{
    static const int64_t rows = 3, cols = 77, count = rows * cols;
    (void)state;
    for (int i = 0; i < TYPES; i++) {
        const struct tt_weight_format *format = tt_weight_format(types[i]);
        for (int nested = 0; nested < (format->row_blocks ? 1 : 2); nested++) {
            struct tt_quant_layout layout;
            struct tt_quant_format made = tt_quant_format_make(types[i], nested);
            int64_t each = format->block > 0 ? format->block : TT_QUANT_BLOCK;
            int64_t blocks = format->row_blocks ? rows : (count + each - 1) / each;
            bool codes = nested || format->powers; /* of scales */
            assert_int_equal(tt_quant_layout_make(made, rows, cols, &layout), TT_OK);
            assert_int_equal(layout.blocks, blocks);
            assert_int_equal(layout.codes.bytes, (count + format->byte_weights - 1) / format->byte_weights);
            assert_int_equal(layout.absmax.bytes, codes ? blocks : 4 * blocks);
            assert_int_equal(layout.map.bytes, format->map != NULL ? 4 * TT_QUANT_MAP : 0);
            assert_int_equal(layout.nested_map.bytes, codes ? 4 * TT_QUANT_NESTED_MAP : 0);
        }
    }
}

/* Every cut of a segment gives the bytes of the whole, as ranks encode their slices. */
static void cuts_give_the_bytes_of_the_whole(void **state)
{
    (void)state;
    float x[COUNT], absmax[COUNT];
    for (int i = 0; i < COUNT; i++) x[i] = (float)(i * 53 % 211 - 105) * (i % 7 == 0 ? 1e-39f : 0.013f);
    for (int i = 0; i < TYPES; i++) {
        struct tt_quant_layout layout;
        uint8_t whole[8192], parts[sizeof whole];
        assert_int_equal(tt_quant_layout_make(tt_quant_format_make(types[i], false), ROWS, COLS - 1, &layout),
                         TT_OK);
        assert_true(layout.bytes <= sizeof whole);
        tt_quant_absmax(&layout, 0, layout.blocks, x, TT_F32, absmax);
        struct tt_quant_source source = {
            .absmax = absmax, .dtype = TT_F32, .read = read_floats, .context = x};
        assert_int_equal(tt_quant_encode(&layout, &source, 0, layout.bytes, whole), TT_OK);
        for (size_t cut = 1; cut < layout.bytes; cut++) {
            memset(parts, 0xa5, sizeof parts);
            assert_int_equal(tt_quant_encode(&layout, &source, 0, cut, parts), TT_OK);
            assert_int_equal(tt_quant_encode(&layout, &source, cut, layout.bytes - cut, parts + cut), TT_OK);
            assert_memory_equal(parts, whole, layout.bytes);
        }
    }
}

/* Each format has a sign in files of its own, its codes first, and no section in two tensors. */
static void files_tell_formats_apart(void **state)
{
    (void)state;
    for (int i = 0; i < TYPES; i++) {
        const struct tt_format_files *files = &tt_weight_format(types[i])->files;
        struct tt_quant_layout layout;
        bool nested = !tt_weight_format(types[i])->row_blocks;
        size_t bytes = 0;
        if (files->sign == NULL) continue; /* it is not one of weights of modules: io/mxfp4.h */
        assert_int_equal(tt_quant_layout_make(tt_quant_format_make(types[i], nested), ROWS, COLS, &layout),
                         TT_OK);
        assert_in_range(files->count, 1, TT_FORMAT_TENSORS);
        assert_string_equal(files->tensors[0].ending, ".weight");
        assert_ptr_equal(tt_format_section(&layout, &files->tensors[0]), &layout.codes);
        for (int t = 0; t < files->count; t++) {
            assert_true(tt_format_section(&layout, &files->tensors[t])->bytes > 0);
            bytes += tt_format_section(&layout, &files->tensors[t])->bytes;
        }
        /* all but the mean of the scales, which stands in the JSON */
        assert_int_equal(bytes, layout.codes.bytes + layout.absmax.bytes + layout.nested_absmax.bytes +
                                    layout.map.bytes + layout.nested_map.bytes);
        for (int other = 0; other < i && tt_weight_format(types[other])->files.sign != NULL; other++)
            assert_string_not_equal(files->sign, tt_weight_format(types[other])->files.sign);
    }
}

/* Numbers that are in MXFP4 stay the same bits: every code with every scale whose numbers are finite, and blocks of few
 * codes, whose scale could be a smaller one. */
static void mxfp4_keeps_its_numbers(void **state)
{
    enum { SCALES = 253, KINDS = 9, BLOCKS = SCALES * KINDS, NUMBERS = BLOCKS * TT_MXFP4_BLOCK };
    static uint8_t codes[NUMBERS / 2], scales[BLOCKS], segment[NUMBERS];
    static uint16_t wanted[NUMBERS], got[NUMBERS];
    static float wide[NUMBERS], absmax[BLOCKS];
    struct tt_quant_layout layout;
    (void)state;
    for (int b = 0; b < BLOCKS; b++) {
        int most = b % KINDS < 8 ? b % KINDS : 7; /* the largest code of the block, of both signs */
        scales[b] = (uint8_t)(b / KINDS);
        for (int i = 0; i < TT_MXFP4_BLOCK; i++) {
            int code = (i % (most + 1)) | (i % 3 == 0 ? 8 : 0), at = b * TT_MXFP4_BLOCK + i;
            codes[at / 2] = (uint8_t)(i % 2 == 0 ? code : codes[at / 2] | code << 4);
        }
    }
    tt_mxfp4_decode(codes, scales, 0, NUMBERS, wanted);
    assert_true(tt_dtype_convert(wide, TT_F32, wanted, TT_BF16, NUMBERS));
    assert_int_equal(
        tt_quant_layout_make(tt_quant_format_make(TT_QUANT_MXFP4, false), BLOCKS, TT_MXFP4_BLOCK, &layout),
        TT_OK);
    assert_true(layout.bytes <= sizeof segment);
    tt_quant_absmax(&layout, 0, layout.blocks, wanted, TT_BF16, absmax);
    assert_int_equal(tt_quant_check(&layout, absmax), TT_OK);
    struct tt_quant_source source = {.absmax = absmax,
                                     .offset = tt_quant_offset(&layout, absmax),
                                     .dtype = TT_F32,
                                     .read = read_floats,
                                     .context = wide};
    assert_true(source.offset == 0);
    assert_int_equal(tt_quant_encode(&layout, &source, 0, layout.bytes, segment), TT_OK);
    tt_quant_decode(&layout, segment, 0, NUMBERS, got, TT_BF16);
    for (int i = 0; i < NUMBERS; i++)
        if (got[i] != wanted[i])
            fail_msg("scale %d, number %d is %04x, wanted %04x", scales[i / TT_MXFP4_BLOCK], i, got[i],
                     wanted[i]);
}

static void formats_of_a_width_in_the_order_of_settings(void **state)
{
    (void)state;
    char names[64];
    assert_int_equal(tt_format_of_width(4, 0), TT_QUANT_NF4);
    assert_int_equal(tt_format_of_width(4, 1), TT_QUANT_FP4);
    assert_int_equal(tt_format_of_width(4, 2), TT_QUANT_NONE);
    assert_int_equal(tt_format_of_width(8, 0), TT_QUANT_INT8);
    assert_int_equal(tt_format_of_width(8, 1), TT_QUANT_NONE);
    assert_int_equal(tt_quant_multiplied(), TT_QUANT_FP8);
    for (int type = TT_QUANT_NONE; type <= TT_QUANT_FP8; type++) {
        assert_int_equal(tt_quant_multiplies((enum tt_quant_type)type), type == TT_QUANT_FP8);
        assert_int_equal(tt_quant_is_compressed((enum tt_quant_type)type), type == TT_QUANT_FP8);
    }
    assert_string_equal(tt_format_names(4, names, sizeof names), "nf4 or fp4");
    assert_string_equal(tt_format_names(0, names, sizeof names), "nf4, fp4, int8, fp8 or mxfp4");
    assert_string_equal(tt_format_names(8, names, 3), "in");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_are_found_again),
        cmocka_unit_test(codes_are_the_nearest),
        cmocka_unit_test(a_type_that_is_none_is_refused_with_all_names),
        cmocka_unit_test(sections_follow_the_row),
        cmocka_unit_test(cuts_give_the_bytes_of_the_whole),
        cmocka_unit_test(files_tell_formats_apart),
        cmocka_unit_test(mxfp4_keeps_its_numbers),
        cmocka_unit_test(formats_of_a_width_in_the_order_of_settings),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
