/* Rows of E4M3 on the cpu: on every instruction set, each code times scales of every kind has the bits of the plain
 * code of tensor/e4m3.h, wherever it is in a row, with scales a row and scales of squares. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cpu/e4m3.h"
#include "backend/ops/quant.h"
#include "base/alloc.h"
#include "ops/isa.h"
#include "tensor/e4m3.h"

/* 287 = 8 * 32 + 31: a row has all codes in whole vectors, and as many behind them as there can be. */
enum { CODES = 256, COLS = 287, GUARD = 64 };

/* clang-format off */
static const float scales[] = {
    1, -1, 0.0371f, 448, 1.0f / 448, 0x1p-9f, 3e4f, 0, -0.0f,
    0x1p-100f, 0x1p-120f, 0x1p-126f, 0x1.8p-127f, 0x1p-149f,              /* small and subnormal products */
    0x1.fffffep119f, 0x1.2p120f, 0x1p127f, 0x1.fffffep127f, INFINITY, -INFINITY, /* infinite ones, NaN of 0 */
    NAN, __builtin_nanf("0x3fffff"),                                      /* rounding would overflow all bits set */
};
/* clang-format on */
enum { SCALES = sizeof scales / sizeof *scales };

struct number {
    uint32_t bits;
    bool is_nan;
};

static struct number number_at(const void *y, int64_t at, bool bf16)
{
    uint32_t bits;
    if (bf16)
        bits = (uint32_t)((const uint16_t *)y)[at] << 16;
    else
        memcpy(&bits, (const float *)y + at, sizeof bits);
    return (struct number){bits, (bits & 0x7fffffffu) > 0x7f800000u};
}

static struct number expected_of(uint8_t code, float scale, bool bf16)
{
    float product = tt_e4m3_to_f32(code) * scale;
    uint16_t narrow = tt_f32_to_bf16(product);
    return bf16 ? number_at(&narrow, 0, true) : number_at(&product, 0, false);
}

/* Which of two NaN a product has is the processor's choice. */
static void expect_number(const void *y, int64_t at, uint8_t code, float scale, bool bf16)
{
    struct number got = number_at(y, at, bf16), wanted = expected_of(code, scale, bf16);
    bool same = isnan(scale) ? got.is_nan && wanted.is_nan : got.bits == wanted.bits;
    if (!same)
        fail_msg("code %02x times %a at %lld, %s: %08x instead of %08x", code, (double)scale, (long long)at,
                 bf16 ? "bf16" : "f32", got.bits, wanted.bits);
}

/* Every code at every place of a row, in whole vectors and behind them. */
static uint8_t code_at(int64_t row, int64_t col)
{
    return (uint8_t)(row + col);
}

static void check_rows(struct test_device *device, int threads, void *context)
{
    (void)context;
    if (threads > 1) return;
    tt_cpu_e4m3_decode *decode = tt_cpu_e4m3_decode_of(device->stream);
    for (int bf16 = 0; bf16 < 2; bf16++)
        for (int s = 0; s < SCALES; s++)
            for (int64_t row = 0; row < CODES; row++) {
                const int64_t at = row % 5, count = row % 2 == 0 ? COLS : row;
                uint8_t codes[COLS];
                float y[COLS + GUARD], untouched[COLS + GUARD];
                memset(y, 0xa5, sizeof y);
                memset(untouched, 0xa5, sizeof untouched);
                for (int64_t i = 0; i < count; i++) codes[i] = code_at(row, i);
                decode(codes, count, scales[s], y, at, bf16);
                for (int64_t i = 0; i < count; i++) expect_number(y, at + i, codes[i], scales[s], bf16);
                size_t bytes = bf16 ? sizeof(uint16_t) : sizeof(float), end = (size_t)(at + count) * bytes;
                assert_memory_equal(y, untouched, (size_t)at * bytes);
                assert_memory_equal((char *)y + end, (char *)untouched + end, sizeof y - end);
            }
}

static void check_widened(struct test_device *device, int threads, void *context)
{
    (void)context;
    if (threads > 1) return;
    tt_cpu_e4m3_widen *widen = tt_cpu_e4m3_widen_of(device->stream);
    for (int64_t row = 0; row < CODES; row++) {
        const int64_t count = row % 2 == 0 ? COLS : row;
        uint8_t codes[COLS];
        uint16_t y[COLS + GUARD];
        memset(y, 0xa5, sizeof y);
        for (int64_t i = 0; i < count; i++) codes[i] = code_at(row, i);
        widen(codes, count, y);
        for (int64_t i = 0; i < count; i++) expect_number(y, i, codes[i], 1, true);
        for (int64_t i = count; i < COLS + GUARD; i++) assert_int_equal(y[i], 0xa5a5);
    }
}

struct layout_case {
    int64_t block, rows, cols;
    tt_dtype dtype;
};

/* The scales follow each other from row to row, and from square to square. */
static void check_layout(struct test_device *device, int threads, void *context)
{
    const struct layout_case *is = context;
    const struct tt_quant_format format = {.type = TT_QUANT_FP8, .block = is->block};
    struct tt_quant_layout layout;
    (void)threads;
    test_ok(tt_quant_layout_make(format, is->rows, is->cols, &layout));
    uint8_t *segment = tt_alloc_aligned(layout.bytes);
    assert_non_null(segment);
    memset(segment, 0, layout.bytes);
    float *scale = (float *)(void *)(segment + layout.absmax.offset);
    for (int64_t i = 0; i < layout.blocks; i++) scale[i] = scales[i % SCALES];
    for (int64_t row = 0; row < is->rows; row++)
        for (int64_t col = 0; col < is->cols; col++)
            segment[layout.codes.offset + (size_t)(row * is->cols + col)] = code_at(row, col);
    struct test_tensor y = test_tensor_make(is->dtype, is->rows, is->cols, TEST_UNUSED, 3);
    test_tensor_poison(&y);
    struct tt_dequantize_args args = {
        .layout = layout, .packed = tt_tensor_1d(segment, TT_U8, (int64_t)layout.bytes), .y_NK = y.view};
    test_ok(tt_dequantize(device->stream, &args));
    for (int64_t row = 0; row < is->rows; row++)
        for (int64_t col = 0; col < is->cols; col++) {
            int64_t block = is->block > 0 ? row / is->block * layout.row_squares + col / is->block : row;
            expect_number(tt_tensor_rows(y.view, row, 1).data, col, code_at(row, col), scales[block % SCALES],
                          is->dtype == TT_BF16);
        }
    test_tensor_check_gaps("y", &y);
    test_tensor_free(&y);
    tt_free(segment);
}

static void each_code_times_each_scale(void **state)
{
    (void)state;
    test_on_each_isa(check_rows, NULL);
}

static void each_code_in_bf16(void **state)
{
    (void)state;
    test_on_each_isa(check_widened, NULL);
}

static void scales_of_rows_and_of_squares(void **state)
{
    static const struct layout_case cases[] = {
        {0, 2 * SCALES, COLS, TT_BF16},
        {0, 2 * SCALES, COLS, TT_F32},
        {TT_FP8_BLOCK, 2 * TT_FP8_BLOCK + 1, SCALES * TT_FP8_BLOCK + 31, TT_BF16},
        {TT_FP8_BLOCK, 2 * TT_FP8_BLOCK + 1, SCALES * TT_FP8_BLOCK + 31, TT_F32},
    };
    (void)state;
    TEST_ISA_CASES("dequantize", cases, check_layout);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_code_times_each_scale),
        cmocka_unit_test(each_code_in_bf16),
        cmocka_unit_test(scales_of_rows_and_of_squares),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
