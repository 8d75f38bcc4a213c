/* E4M3: every code, every rounding between neighbours, and the format with a scale a row. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "tensor/e4m3.h"
#include "tensor/quant.h"

enum { CODES = 256, HALF = 128 };

/* By the definition: 2^(e - 7) * (1 + m / 8), 2^-6 * m / 8 where e is 0. */
static double value_of(int code)
{
    int e = code >> 3 & 15, m = code & 7;
    double size = e == 0 ? ldexp(m, -9) : ldexp(1 + m / 8.0, e - 7);
    return code >= HALF ? -size : size;
}

static void every_code_has_its_value(void **state)
{
    (void)state;
    for (int code = 0; code < CODES; code++) {
        float value = tt_e4m3_to_f32((uint8_t)code);
        if (code % HALF == TT_E4M3_NAN) {
            assert_true(isnan(value));
            continue;
        }
        assert_true((double)value == value_of(code));
        assert_int_equal(tt_e4m3_from_f32(value), code);
    }
    assert_true(tt_e4m3_to_f32(0x7e) == TT_E4M3_MOST);
}

static void numbers_between_go_to_the_nearest_even(void **state)
{
    (void)state;
    for (int code = 0; code < 0x7e; code++) {
        float middle = (float)((value_of(code) + value_of(code + 1)) / 2);
        assert_int_equal(tt_e4m3_from_f32(middle), code % 2 == 0 ? code : code + 1);
        assert_int_equal(tt_e4m3_from_f32(nextafterf(middle, 0)), code);
        assert_int_equal(tt_e4m3_from_f32(nextafterf(middle, 1e9f)), code + 1);
        assert_int_equal(tt_e4m3_from_f32(-middle), HALF + (code % 2 == 0 ? code : code + 1));
    }
}

static void what_is_larger_saturates(void **state)
{
    (void)state;
    const float large[] = {448.0f, 464.0f, 465.0f, 1e30f, INFINITY};
    for (size_t i = 0; i < sizeof large / sizeof *large; i++) {
        assert_int_equal(tt_e4m3_from_f32(large[i]), 0x7e);
        assert_int_equal(tt_e4m3_from_f32(-large[i]), 0xfe);
    }
    assert_int_equal(tt_e4m3_from_f32(NAN), TT_E4M3_NAN);
    assert_int_equal(tt_e4m3_from_f32(-NAN), TT_E4M3_NAN);
    assert_int_equal(tt_e4m3_from_f32(-0.0f), HALF);
}

static void rows_have_scales_of_their_own(void **state)
{
    (void)state;
    enum { ROWS = 3, COLS = 5 };
    const float weights[ROWS][COLS] = {
        {1, -0.5f, 0.25f, 0.001f, -1}, {0, 0, 0, 0, 0}, {3e4f, 1, -2, 448, 3e4f}};
    struct tt_quant_layout layout;
    float scales[ROWS], decoded[ROWS][COLS];
    uint8_t segment[256];
    assert_int_equal(tt_quant_layout_make(tt_quant_format_make(TT_QUANT_FP8, false), ROWS, COLS, &layout),
                     TT_OK);
    assert_int_equal(layout.bytes, 128);
    tt_quant_absmax(&layout, 0, ROWS, weights, TT_F32, scales);
    assert_true(scales[0] == 1.0f / 448.0f && scales[2] == 3e4f / 448.0f);
    assert_true(scales[1] == TT_E4M3_LEAST_ROW / 448.0f);
    memset(segment, 0, sizeof segment);
    tt_quant_codes(&layout, 0, ROWS * COLS, weights, TT_F32, scales, segment + layout.codes.offset);
    memcpy(segment + layout.absmax.offset, scales, sizeof scales);
    tt_quant_decode(&layout, segment, 0, ROWS * COLS, decoded, TT_F32);
    for (int r = 0; r < ROWS; r++)
        for (int c = 0; c < COLS; c++) {
            float step = fmaxf(fabsf(weights[r][c]) / 16, scales[r] / 1024);
            assert_true(fabsf(decoded[r][c] - weights[r][c]) <= step * 1.0001f);
        }
    assert_true(fabsf(decoded[0][0] - 1) < 1e-6f && decoded[1][3] == 0);
}

/* As compressed-tensors: the code of weight / scale, which the product with the reciprocal misses at borders between
 * codes. */
static void weights_are_divided_by_their_scale(void **state)
{
    enum { ROWS = 40, COLS = 125 };
    static float weights[ROWS][COLS], scales[ROWS];
    static uint8_t codes[ROWS * COLS];
    struct tt_quant_layout layout;
    int misses = 0;
    (void)state;
    assert_int_equal(tt_quant_layout_make(tt_quant_format_make(TT_QUANT_FP8, false), ROWS, COLS, &layout),
                     TT_OK);
    for (int r = 0; r < ROWS; r++) {
        weights[r][0] = 0.01f + 0.0137f * (float)r;
        for (int c = 1; c < COLS; c++)
            weights[r][c] =
                (float)(0.5 * (value_of(c) + value_of(c + 1)) * (double)tt_e4m3_scale(weights[r][0]));
    }
    tt_quant_absmax(&layout, 0, ROWS, weights, TT_F32, scales);
    tt_quant_codes(&layout, 0, ROWS * COLS, weights, TT_F32, scales, codes);
    for (int r = 0; r < ROWS; r++)
        for (int c = 0; c < COLS; c++) {
            uint8_t code = tt_e4m3_from_f32(weights[r][c] / scales[r]);
            assert_int_equal(codes[r * COLS + c], code);
            misses += code != tt_e4m3_from_f32(weights[r][c] * (1.0f / scales[r]));
        }
    assert_true(misses > 100);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_code_has_its_value),
        cmocka_unit_test(numbers_between_go_to_the_nearest_even),
        cmocka_unit_test(what_is_larger_saturates),
        cmocka_unit_test(rows_have_scales_of_their_own),
        cmocka_unit_test(weights_are_divided_by_their_scale),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
