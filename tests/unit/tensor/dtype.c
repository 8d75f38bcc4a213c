/* tensor/dtype.h: names and conversions, each half-precision value exhaustively. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <math.h>
#include <string.h>
#include <cmocka.h>

#include "base/rng.h"
#include "tensor/dtype.h"

static void names(void **state)
{
    (void)state;
    for (int i = 1; i < TT_DTYPE_COUNT; i++) {
        const char *name = tt_dtype_name((tt_dtype)i), *torch = tt_dtype_torch_name((tt_dtype)i);
        assert_int_equal(tt_dtype_from_name(name, strlen(name)), i);
        assert_int_equal(tt_dtype_from_torch_name(torch), i);
        assert_true(tt_dtype_bytes((tt_dtype)i) > 0);
    }
    assert_int_equal(tt_dtype_from_name("BF1", 3), TT_DTYPE_NONE);
    assert_int_equal(tt_dtype_from_name("F32x", 3), TT_F32);
    assert_int_equal(tt_dtype_from_torch_name("torch.bfloat16"), TT_BF16);
    assert_int_equal(tt_dtype_from_torch_name("half"), TT_F16);
    assert_int_equal(tt_dtype_from_torch_name("bf16"), TT_BF16);
    assert_int_equal(tt_dtype_from_torch_name("auto"), TT_DTYPE_NONE);
    assert_int_equal(tt_dtype_bytes(TT_DTYPE_NONE), 0);
    assert_true(tt_dtype_is_float(TT_F8_E4M3) && !tt_dtype_is_float(TT_U8));
}

/* The value that 16 bits stand for, from the definition: sign, exponent, mantissa. */
static double half_value(uint16_t bits, int exponent_bits, int mantissa_bits)
{
    int exponent = (bits >> mantissa_bits) & ((1 << exponent_bits) - 1),
        bias = (1 << (exponent_bits - 1)) - 1;
    int mantissa = bits & ((1 << mantissa_bits) - 1);
    double sign = bits & 0x8000 ? -1.0 : 1.0;
    if (exponent == (1 << exponent_bits) - 1) return mantissa ? (double)NAN : sign * (double)INFINITY;
    if (exponent == 0) return sign * ldexp(mantissa, 1 - bias - mantissa_bits);
    return sign * ldexp(mantissa + (1 << mantissa_bits), exponent - bias - mantissa_bits);
}

/* Nearest 16-bit value to `value`, ties to even, by searching both neighbours: slow and plain. */
static uint16_t nearest_half(double value, int exponent_bits, int mantissa_bits)
{
    uint16_t infinity = (uint16_t)(((1 << exponent_bits) - 1) << mantissa_bits);
    double magnitude = fabs(value);
    uint16_t low = 0, high = infinity;
    while (high - low > 1) {
        uint16_t middle = (uint16_t)((low + high) / 2);
        if (half_value(middle, exponent_bits, mantissa_bits) <= magnitude) {
            low = middle;
        } else {
            high = middle;
        }
    }
    double below = half_value(low, exponent_bits, mantissa_bits);
    /* Beyond the largest value the next one up counts, as if the exponent went on. */
    double above = high == infinity ? ldexp(1.0, 1 << (exponent_bits - 1))
                                    : half_value(high, exponent_bits, mantissa_bits);
    double to_low = magnitude - below, to_high = above - magnitude;
    uint16_t result = to_low < to_high || (to_low == to_high && low % 2 == 0) ? low : high;
    return (uint16_t)(result | (signbit(value) ? 0x8000 : 0));
}

static void every_half_widens_exactly(void **state)
{
    (void)state;
    for (uint32_t bits = 0; bits < 0x10000; bits++) {
        double f16 = half_value((uint16_t)bits, 5, 10), bf16 = half_value((uint16_t)bits, 8, 7);
        float from_f16 = tt_f16_to_f32((uint16_t)bits), from_bf16 = tt_bf16_to_f32((uint16_t)bits);
        if (isnan(f16)) {
            assert_true(isnan(from_f16));
            assert_true(isnan(tt_f16_to_f32(tt_f32_to_f16(from_f16))));
        } else {
            assert_true(from_f16 == f16 && !signbit(from_f16) == !signbit(f16));
            assert_int_equal(tt_f32_to_f16(from_f16), bits);
        }
        if (isnan(bf16)) {
            assert_true(isnan(from_bf16));
            assert_true(isnan(tt_bf16_to_f32(tt_f32_to_bf16(from_bf16))));
        } else {
            assert_true(from_bf16 == bf16 && !signbit(from_bf16) == !signbit(bf16));
            assert_int_equal(tt_f32_to_bf16(from_bf16), bits);
        }
    }
}

/* Ties, their neighbours, subnormals, the border to infinity and random values, through every route. */
static double hard_value(uint64_t i)
{
    struct tt_rng rng = tt_rng_make(21);
    uint64_t word = tt_rng_u64(rng, i);
    uint16_t half = (uint16_t)word;
    int format = (word >> 16) & 1;
    double a = format ? half_value(half, 5, 10) : half_value(half, 8, 7);
    double b = format ? half_value((uint16_t)(half + 1), 5, 10) : half_value((uint16_t)(half + 1), 8, 7);
    if (isnan(a) || isnan(b) || isinf(a) || isinf(b)) return 65519.999999999;
    double middle = (a + b) / 2;
    switch ((word >> 20) & 7) {
    case 0:
        return middle;
    case 1:
        return nextafter(middle, (double)INFINITY);
    case 2:
        return nextafter(middle, -(double)INFINITY);
    case 3:
        return (double)nextafterf((float)middle, INFINITY);
    case 4:
        return (double)nextafterf((float)middle, -INFINITY);
    case 5:
        return a + (b - a) * tt_rng_uniform(rng, i + 1000000);
    case 6:
        return ldexp(tt_rng_uniform(rng, i + 2000000), -20);
    default:
        return 65504.0 + 32.0 * tt_rng_uniform(rng, i + 3000000);
    }
}

static void rounding_is_to_nearest_even(void **state)
{
    (void)state;
    enum { COUNT = 50000 };
    static double wide[COUNT];
    static float single[COUNT];
    static uint16_t f16[COUNT], bf16[COUNT];
    for (uint64_t i = 0; i < COUNT; i++) wide[i] = hard_value(i);
    assert_true(tt_dtype_convert(f16, TT_F16, wide, TT_F64, COUNT));
    assert_true(tt_dtype_convert(bf16, TT_BF16, wide, TT_F64, COUNT));
    assert_true(tt_dtype_convert(single, TT_F32, wide, TT_F64, COUNT));
    for (int i = 0; i < COUNT; i++) {
        assert_true(single[i] == (float)wide[i]);
        assert_int_equal(f16[i], nearest_half(wide[i], 5, 10));
        assert_int_equal(bf16[i], nearest_half(wide[i], 8, 7));
        assert_int_equal(tt_f32_to_f16(single[i]), nearest_half((double)single[i], 5, 10));
        assert_int_equal(tt_f32_to_bf16(single[i]), nearest_half((double)single[i], 8, 7));
    }
    static uint16_t through[COUNT];
    assert_true(tt_dtype_convert(through, TT_F16, single, TT_F32, COUNT));
    for (int i = 0; i < COUNT; i++) assert_int_equal(through[i], tt_f32_to_f16(single[i]));
}

static void pairs(void **state)
{
    (void)state;
    static const tt_dtype kinds[] = {TT_F32, TT_BF16, TT_F16, TT_F64};
    /* Exact in all four types, so that every chain gives them back. */
    enum { COUNT = 3001 };
    static double start[COUNT], end[COUNT], a[COUNT], b[COUNT];
    for (int i = 0; i < COUNT; i++) start[i] = (i % 255 - 127) * 0.25;
    for (int x = 0; x < 4; x++) {
        for (int y = 0; y < 4; y++) {
            assert_true(tt_dtype_convert(a, kinds[x], start, TT_F64, COUNT));
            assert_true(tt_dtype_convert(b, kinds[y], a, kinds[x], COUNT));
            assert_true(tt_dtype_convert(end, TT_F64, b, kinds[y], COUNT));
            assert_memory_equal(start, end, sizeof start);
        }
    }
    assert_true(tt_dtype_convert(a, TT_I64, start, TT_I64, 3));
    assert_false(tt_dtype_convert(a, TT_I64, start, TT_F64, 3));
    assert_false(tt_dtype_convert(a, TT_F32, start, TT_F8_E4M3, 3));
    assert_true(tt_dtype_convert(NULL, TT_F32, NULL, TT_BF16, 0));
    double extremes[] = {(double)NAN, (double)INFINITY, -(double)INFINITY, 1e300, -1e300, 1e-300, 3.5e38};
    uint16_t halves[7];
    assert_true(tt_dtype_convert(halves, TT_BF16, extremes, TT_F64, 7));
    assert_true(isnan(tt_bf16_to_f32(halves[0])));
    assert_int_equal(halves[1], 0x7f80);
    assert_int_equal(halves[2], 0xff80);
    assert_int_equal(halves[3], 0x7f80);
    assert_int_equal(halves[4], 0xff80);
    assert_int_equal(halves[5], 0);
    assert_int_equal(halves[6], 0x7f80);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names),
        cmocka_unit_test(every_half_widens_exactly),
        cmocka_unit_test(rounding_is_to_nearest_even),
        cmocka_unit_test(pairs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
