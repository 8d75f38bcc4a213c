/* tensor/quant.h without golden files: what lies where, what is refused, ranges. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "tensor/quant.h"

static struct tt_quant_layout make(struct tt_quant_format format, int64_t rows, int64_t cols)
{
    struct tt_quant_layout layout;
    if (tt_quant_layout_make(format, rows, cols, &layout) != TT_OK) fail_msg("%s", tt_error_last()->message);
    return layout;
}

static void sections_follow_each_other(void **state)
{
    (void)state;
    struct tt_quant_layout l = make(tt_quant_format_make(TT_QUANT_NF4, true), 4096, 4096);
    assert_int_equal(l.blocks, 4096 * 4096 / 64);
    assert_int_equal(l.nested_blocks, 4096 * 4096 / 64 / 256);
    assert_int_equal(l.codes.bytes, 4096 * 4096 / 2);
    assert_int_equal(l.absmax.offset, l.codes.bytes);
    assert_int_equal(l.absmax.bytes, l.blocks);
    assert_int_equal(l.nested_absmax.bytes, l.nested_blocks * 4);
    assert_int_equal(l.map.bytes, 64);
    assert_int_equal(l.nested_map.bytes, 1024);
    assert_int_equal(l.offset.bytes, 4);
    assert_int_equal(l.bytes, l.offset.offset + 64);
    l = make(tt_quant_format_make(TT_QUANT_FP4, false), 3, 5);
    assert_int_equal(l.codes.bytes, 8);
    assert_int_equal(l.absmax.offset, 64);
    assert_int_equal(l.absmax.bytes, 4);
    assert_int_equal(l.nested_absmax.bytes + l.nested_map.bytes + l.offset.bytes, 0);
    l = make(tt_quant_format_make(TT_QUANT_INT8, true), 7, 100);
    assert_int_equal(l.blocks, 7);
    assert_int_equal(l.codes.bytes, 700);
    assert_int_equal(l.absmax.bytes, 28);
    assert_int_equal(l.map.bytes, 0);
    assert_int_equal(tt_quant_block_first(&l, 3), 300);
    assert_int_equal(tt_quant_block_first(&l, 7), 700);
}

static void refuse(struct tt_quant_format format, int64_t rows, int64_t cols, const char *part)
{
    struct tt_quant_layout layout;
    assert_int_equal(tt_quant_layout_make(format, rows, cols, &layout), TT_ERR_DATA);
    if (strstr(tt_error_last()->message, part) == NULL)
        fail_msg("'%s' not in '%s'", part, tt_error_last()->message);
}

static void other_formats_are_refused(void **state)
{
    (void)state;
    struct tt_quant_format good = tt_quant_format_make(TT_QUANT_NF4, true), bad = good;
    const int64_t blocks[] = {0, -64, 16, 48, 8192, INT64_MAX};
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++) {
        bad.block = blocks[i];
        refuse(bad, 8, 8, "powers of two from 32 to 4096");
    }
    bad = good;
    bad.nested_block = 100;
    refuse(bad, 8, 8, "nested blocks of 100");
    bad.nested = false;
    refuse(bad, 8, 8, "the scales are not nested");
    bad = (struct tt_quant_format){.type = TT_QUANT_INT8, .block = 64};
    refuse(bad, 8, 8, "int8");
    refuse((struct tt_quant_format){0}, 8, 8, "not nf4");
    refuse(good, 0, 8, "0 x 8");
    refuse(good, -1, -8, "cannot be quantized");
    refuse(good, INT64_MAX, 2, "cannot be quantized");
    refuse(good, INT64_C(1) << 40, INT64_C(1) << 20, "cannot be quantized");
}

static void names_are_those_of_the_library(void **state)
{
    (void)state;
    for (int type = TT_QUANT_NF4; type <= TT_QUANT_INT8; type++)
        assert_int_equal(tt_quant_type_from_name(tt_quant_type_name((enum tt_quant_type)type)), type);
    assert_int_equal(tt_quant_type_from_name("none"), TT_QUANT_NONE);
    assert_int_equal(tt_quant_type_from_name("NF4"), TT_QUANT_NONE);
    assert_string_equal(tt_quant_type_name((enum tt_quant_type)77), "none");
}

static void numbers_that_are_none_are_told(void **state)
{
    (void)state;
    struct tt_quant_layout layout = make(tt_quant_format_make(TT_QUANT_NF4, false), 4, 50);
    float weights[200] = {0}, absmax[4];
    weights[70] = NAN;
    weights[199] = -INFINITY;
    tt_quant_absmax(&layout, 0, 4, weights, TT_F32, absmax);
    assert_true(isnan(absmax[1]) && isinf(absmax[3]) && absmax[0] == 0.0f);
    assert_int_equal(tt_quant_check(&layout, absmax), TT_ERR_DATA);
    assert_non_null(strstr(tt_error_last()->message, "[1, 14]"));
    assert_non_null(strstr(tt_error_last()->message, "not a number"));
    absmax[1] = 1;
    assert_int_equal(tt_quant_check(&layout, absmax), TT_ERR_DATA);
    assert_non_null(strstr(tt_error_last()->message, "infinite"));
}

static tt_status no_more(void *context, int64_t first, int64_t count, void *to)
{
    (void)first, (void)count, (void)to;
    return tt_fail(TT_ERR_IO, "%s", (const char *)context);
}

/* A range without codes reads no weights, one with codes hands the error on. */
static void only_codes_are_read_for(void **state)
{
    (void)state;
    struct tt_quant_layout layout = make(tt_quant_format_make(TT_QUANT_FP4, true), 64, 64);
    float absmax[64];
    uint8_t bytes[4096];
    for (int i = 0; i < 64; i++) absmax[i] = 0.1f + 0.01f * (float)i;
    char text[] = "the disk is gone";
    struct tt_quant_source source = {
        .absmax = absmax, .offset = 0.5f, .dtype = TT_BF16, .read = no_more, .context = text};
    assert_int_equal(
        tt_quant_encode(&layout, &source, layout.absmax.offset, layout.bytes - layout.absmax.offset, bytes),
        TT_OK);
    assert_int_equal(tt_quant_encode(&layout, &source, layout.absmax.offset - 1, 2, bytes), TT_ERR_IO);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sections_follow_each_other),     cmocka_unit_test(other_formats_are_refused),
        cmocka_unit_test(names_are_those_of_the_library), cmocka_unit_test(numbers_that_are_none_are_told),
        cmocka_unit_test(only_codes_are_read_for),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
