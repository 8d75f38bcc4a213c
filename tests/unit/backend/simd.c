/* Eight floats at a time, compiled for every x86-64 and for AVX2. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>

#include "backend/cpu/simd.h"
#include "tensor/dtype.h"

TT_SIMD_BODY void exp_body(float *y, const float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i += 8) {
        int64_t some = n - i < 8 ? n - i : 8;
        tt_v8_store_some(y + i, tt_v8_exp(tt_v8_load_some(x + i, some)), some);
    }
}

TT_SIMD_AVX2 static void exp_avx2(float *y, const float *x, int64_t n)
{
    exp_body(y, x, n);
}

static void exp_portable(float *y, const float *x, int64_t n)
{
    exp_body(y, x, n);
}

TT_SIMD_BODY void round_trip_body(uint16_t *to, float *wide, const float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i += 8) {
        int64_t some = n - i < 8 ? n - i : 8;
        tt_v8_store_some_bf16(to + i, tt_v8_load_some(x + i, some), some);
        tt_v8_store_some(wide + i, tt_v8_load_some_bf16(to + i, some), some);
        if (some == 8) {
            tt_v8_store_bf16(to + i, tt_v8_load(x + i));
            tt_v8_store(wide + i, tt_v8_load_bf16(to + i));
        }
    }
}

TT_SIMD_AVX2 static void round_trip_avx2(uint16_t *to, float *wide, const float *x, int64_t n)
{
    round_trip_body(to, wide, x, n);
}

static void round_trip_portable(uint16_t *to, float *wide, const float *x, int64_t n)
{
    round_trip_body(to, wide, x, n);
}

TT_SIMD_BODY void reduce_body(const float *x, float *sum, float *largest)
{
    *sum = tt_v8_sum(tt_v8_load(x));
    *largest = tt_v8_largest(tt_v8_load(x));
}

TT_SIMD_AVX2 static void reduce_avx2(const float *x, float *sum, float *largest)
{
    reduce_body(x, sum, largest);
}

static void reduce_portable(const float *x, float *sum, float *largest)
{
    reduce_body(x, sum, largest);
}

static int versions(void)
{
#if defined(__x86_64__)
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") ? 2 : 1;
#else
    return 1;
#endif
}

static void exponential_is_close_everywhere(void **state)
{
    (void)state;
    enum { COUNT = 400003 };
    float *x = malloc(COUNT * sizeof *x), *y = malloc(COUNT * sizeof *y);
    assert_true(x != NULL && y != NULL);
    for (int i = 0; i < COUNT; i++) x[i] = -87.3f + 176.0f * (float)i / COUNT;
    for (int version = 0; version < versions(); version++) {
        (version == 0 ? exp_portable : exp_avx2)(y, x, COUNT);
        double worst = 0;
        for (int i = 0; i < COUNT; i++) {
            double exact = exp((double)x[i]);
            worst = fmax(worst, fabs((double)y[i] - exact) / exact);
        }
        assert_true(worst < 2 * 0x1p-23);
        const float special[8] = {-INFINITY, INFINITY, NAN, 0.0f, -100.0f, 88.9f, -87.4f, -0.0f};
        float got[8];
        (version == 0 ? exp_portable : exp_avx2)(got, special, 8);
        assert_true(got[0] == 0 && isinf(got[1]) && got[1] > 0 && isnan(got[2]) && got[3] == 1.0f);
        assert_true(got[4] == 0 && isinf(got[5]) && got[6] == 0 && got[7] == 1.0f);
    }
    free(x);
    free(y);
}

static void bf16_is_the_scalar_conversion(void **state)
{
    (void)state;
    static const uint32_t bits[] = {0x00000000, 0x80000000, 0x3f800000, 0x3f808000, 0x3f818000, 0x3f807fff,
                                    0x3f808001, 0x7f7fffff, 0x7f800000, 0xff800000, 0x7fc00000, 0x7f800001,
                                    0xffffffff, 0x7fffffff, 0x00000001, 0x00008000, 0x00018000, 0x807fffff};
    enum { COUNT = sizeof bits / sizeof bits[0] };
    float x[COUNT], wide[COUNT];
    uint16_t half[COUNT];
    memcpy(x, bits, sizeof x);
    for (int version = 0; version < versions(); version++) {
        (version == 0 ? round_trip_portable : round_trip_avx2)(half, wide, x, COUNT);
        for (int i = 0; i < COUNT; i++) {
            assert_int_equal(half[i], tt_f32_to_bf16(x[i]));
            float expected = tt_bf16_to_f32(half[i]);
            assert_memory_equal(&wide[i], &expected, sizeof expected);
        }
    }
}

static void reductions_have_one_order(void **state)
{
    (void)state;
    const float x[8] = {1e8f, 1.0f, -1e8f, 3.0f, 0.25f, -7.0f, 5.0f, 11.0f};
    for (int version = 0; version < versions(); version++) {
        float sum, largest;
        (version == 0 ? reduce_portable : reduce_avx2)(x, &sum, &largest);
        assert_true(sum == ((x[0] + x[4]) + (x[2] + x[6])) + ((x[1] + x[5]) + (x[3] + x[7])));
        assert_true(largest == 1e8f);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(exponential_is_close_everywhere),
        cmocka_unit_test(bf16_is_the_scalar_conversion),
        cmocka_unit_test(reductions_have_one_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
