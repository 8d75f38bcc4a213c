#include "backend/ops/elementwise.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ops/isa.h"

/* cols 0: rank 1. */
struct elementwise_case {
    int64_t rows, cols, gap;
    tt_dtype a, b, y;
};

static const struct elementwise_case cases[] = {
    {5, 64, 0, TT_F32, TT_F32, TT_F32},       {5, 64, 0, TT_BF16, TT_BF16, TT_BF16},
    {70, 333, 3, TT_F32, TT_BF16, TT_F32},    {70, 333, 3, TT_BF16, TT_F32, TT_BF16},
    {70, 333, 0, TT_F32, TT_F32, TT_BF16},    {3, 20000, 1, TT_BF16, TT_BF16, TT_F32},
    {20001, 0, 0, TT_BF16, TT_BF16, TT_BF16}, {100003, 0, 0, TT_F32, TT_F32, TT_F32},
    {1, 1, 0, TT_F32, TT_F32, TT_F32},        {0, 5, 0, TT_F32, TT_F32, TT_F32},
    {0, 0, 0, TT_F32, TT_F32, TT_F32},        {4000, 3, 1, TT_BF16, TT_BF16, TT_BF16},
};

static const struct elementwise_case gpu_cases[] = {
    {1024, 4096, 0, TT_BF16, TT_BF16, TT_BF16}, {200, 14336, 0, TT_BF16, TT_F32, TT_BF16},
    {1001, 1537, 0, TT_BF16, TT_BF16, TT_BF16}, {2000005, 0, 0, TT_F32, TT_F32, TT_F32},
    {70001, 16, 16, TT_BF16, TT_BF16, TT_BF16}, {2, 1000001, 0, TT_F32, TT_BF16, TT_BF16},
};

static struct test_tensor random_tensor(const struct elementwise_case *row, tt_dtype dtype, uint64_t seed)
{
    return test_tensor_random(dtype, row->rows, row->cols > 0 ? row->cols : TEST_UNUSED, TEST_UNUSED,
                              row->gap, seed, 1);
}

/* Sums, products and conversions are rounded once, so they are known to the bit. */
static void expect(const char *what, const struct test_tensor *got, const double *exact)
{
    double *values = test_tensor_values(got);
    int64_t count = tt_tensor_count(got->view), wrong = -1;
#pragma omp parallel for reduction(max : wrong) if (TEST_IS_LARGE(count))
    for (int64_t i = 0; i < count; i++) {
        double want = (double)test_round((float)exact[i], got->view.dtype);
        if (values[i] != want && !(isnan(values[i]) && isnan(want))) wrong = i;
    }
    if (wrong >= 0)
        fail_msg("%s: element %lld is %.9g instead of %.9g", what, (long long)wrong, values[wrong],
                 (double)test_round((float)exact[wrong], got->view.dtype));
    test_tensor_check_gaps(what, got);
    free(values);
}

static void check_run(struct test_device *device, int threads, void *context)
{
    (void)threads;
    const struct elementwise_case *row = context;
    struct test_tensor a = random_tensor(row, row->a, 1), b = random_tensor(row, row->b, 2);
    struct test_tensor y = random_tensor(row, row->y, 3), a_before = test_tensor_copy(&a);
    double *a_values = test_tensor_values(&a), *b_values = test_tensor_values(&b);
    int64_t count = tt_tensor_count(a.view);
    double *want = test_doubles(count);
    test_tensor_poison(&y);
    TEST_TO_DEVICE(device, &a, &b, &y);
    struct tt_add_args add = {.a = a.view, .b = b.view, .y = y.view};
    test_ok(tt_add(device->stream, &add));
    TEST_TO_HOST(device, &a, &b, &y);
    for (int64_t i = 0; i < count; i++) want[i] = a_values[i] + b_values[i];
    expect("sum", &y, want);
    TEST_TO_DEVICE(device, &b);
    struct tt_scale_args scale = {.x = b.view, .factor = -1.7f};
    test_ok(tt_scale(device->stream, &scale));
    TEST_TO_HOST(device, &b);
    for (int64_t i = 0; i < count; i++) want[i] = (double)((float)b_values[i] * -1.7f);
    expect("product", &b, want);
    struct test_tensor by = test_tensor_make(TT_F32, 1, TEST_UNUSED, TEST_UNUSED, 0);
    *(float *)by.view.data = 0.3f;
    double *scaled = test_tensor_values(&b);
    TEST_TO_DEVICE(device, &b, &by);
    scale.by_1 = by.view;
    test_ok(tt_scale(device->stream, &scale));
    TEST_TO_HOST(device, &b, &by);
    for (int64_t i = 0; i < count; i++) want[i] = (double)((float)scaled[i] * 0.3f);
    expect("product with a factor of the device", &b, want);
    test_tensor_free(&by);
    test_free_values(&scaled, 1);
    TEST_TO_DEVICE(device, &a, &y);
    struct tt_cast_args cast = {.x = a.view, .y = y.view};
    test_ok(tt_cast(device->stream, &cast));
    TEST_TO_HOST(device, &a, &y);
    expect("cast", &y, a_values);
    test_tensor_equal("a", &a, &a_before);
    if (row->a == row->y) { /* in place */
        struct test_tensor c = random_tensor(row, row->b, 2);
        TEST_TO_DEVICE(device, &a, &c);
        struct tt_add_args onto = {.a = a.view, .b = c.view, .y = a.view};
        test_ok(tt_add(device->stream, &onto));
        TEST_TO_HOST(device, &a, &c);
        for (int64_t i = 0; i < count; i++) want[i] = a_values[i] + b_values[i];
        expect("sum in place", &a, want);
        test_tensor_free(&c);
    }
    free(a_values), free(b_values), free(want);
    test_tensor_free(&a);
    test_tensor_free(&a_before);
    test_tensor_free(&b);
    test_tensor_free(&y);
}

static void rounded_once(void **state)
{
    (void)state;
    TEST_ISA_CASES("elementwise", cases, check_run);
}

/* Rows of magnitudes far apart, so that another order of additions shows. */
struct rows_case {
    int64_t rows, cols, gap;
    tt_dtype dtype;
};

static const struct rows_case rows_cases[] = {
    {1, 64, 0, TT_F32},    {2, 64, 0, TT_BF16},     {3, 333, 3, TT_F32}, {5, 333, 1, TT_BF16},
    {8, 1003, 5, TT_BF16}, {7, 20001, 15, TT_F32},  {4, 1, 0, TT_BF16},  {2, 0, 0, TT_F32},
    {16, 8200, 8, TT_F32}, {3, 20000, 16, TT_BF16},
};

static const struct rows_case gpu_rows_cases[] = {
    {2, 4194304, 0, TT_F32},
    {8, 1048576, 0, TT_BF16},
    {5, 1000001, 3, TT_BF16},
    {8, 262147, 1, TT_F32},
};

static void check_rows(struct test_device *device, int threads, void *context)
{
    (void)threads;
    const struct rows_case *row = context;
    struct test_tensor x = test_tensor_random(row->dtype, row->rows, row->cols, TEST_UNUSED, row->gap, 4, 1);
    struct test_tensor y = test_tensor_make(row->dtype, row->cols, TEST_UNUSED, TEST_UNUSED, row->gap);
    double *values = test_tensor_values(&x), *want = test_doubles(row->cols);
    for (int64_t i = 0; i < row->rows * row->cols; i++)
        values[i] = (double)test_round((float)ldexp(values[i], (int)(i * 7 / 5 % 40) - 20), row->dtype);
    test_tensor_set(&x, values);
    for (int64_t col = 0; col < row->cols; col++) {
        float sum = (float)values[col];
        for (int64_t r = 1; r < row->rows; r++) sum += (float)values[r * row->cols + col];
        want[col] = (double)sum;
    }
    test_tensor_poison(&y);
    struct test_tensor before = test_tensor_copy(&x);
    TEST_TO_DEVICE(device, &x, &y);
    struct tt_sum_rows_args args = {.x_RD = x.view, .y_D = y.view};
    test_ok(tt_sum_rows(device->stream, &args));
    TEST_TO_HOST(device, &x, &y);
    expect("sum of rows", &y, want);
    test_tensor_equal("x", &x, &before);
    free(values), free(want);
    test_tensor_free(&x);
    test_tensor_free(&before);
    test_tensor_free(&y);
}

static void rows_added_in_their_order(void **state)
{
    (void)state;
    TEST_ISA_CASES("sum_rows", rows_cases, check_rows);
}

static void rows_of_real_sizes(void **state)
{
    (void)state;
    TEST_SIZES_ONLY();
    TEST_ISA_CASES("sum_rows", gpu_rows_cases, check_rows);
}

static void cast_one(const struct test_device *device, struct test_tensor *x, struct test_tensor *y)
{
    TEST_TO_DEVICE(device, x, y);
    struct tt_cast_args args = {.x = x->view, .y = y->view};
    test_ok(tt_cast(device->stream, &args));
    TEST_TO_HOST(device, x, y);
}

static void sizes_of_real_models(void **state)
{
    (void)state;
    TEST_SIZES_ONLY();
    TEST_ISA_CASES("elementwise", gpu_cases, check_run);
}

/* A GPU makes a NaN of every NaN, but not with the same bits. */
static bool both_nan(float a, float b)
{
    return !test_on_cpu() && isnan(a) && isnan(b);
}

/* Every bf16 number, and floats around every border of rounding, as the scalar conversions have them. */
static void check_bits(struct test_device *device, int threads, void *context)
{
    (void)threads, (void)context;
    enum { COUNT = 65536 };
    struct test_tensor half = test_tensor_make(TT_BF16, COUNT, TEST_UNUSED, TEST_UNUSED, 0);
    struct test_tensor wide = test_tensor_make(TT_F32, COUNT, TEST_UNUSED, TEST_UNUSED, 0);
    uint16_t *bits = half.view.data;
    float *floats = wide.view.data;
    for (int i = 0; i < COUNT; i++) bits[i] = (uint16_t)i;
    cast_one(device, &half, &wide);
    for (int i = 0; i < COUNT; i++) {
        float want = tt_bf16_to_f32((uint16_t)i);
        if (!both_nan(floats[i], want)) assert_memory_equal(&floats[i], &want, sizeof want);
    }
    static const uint32_t lower[] = {0, 1, 0x7fff, 0x8000, 0x8001, 0xffff};
    for (size_t k = 0; k < sizeof lower / sizeof lower[0]; k++) {
        for (int i = 0; i < COUNT; i++) {
            uint32_t word = (uint32_t)i << 16 | lower[k];
            memcpy(&floats[i], &word, sizeof word);
        }
        cast_one(device, &wide, &half);
        for (int i = 0; i < COUNT; i++)
            if (!both_nan(tt_bf16_to_f32(bits[i]), floats[i]))
                assert_int_equal(bits[i], tt_f32_to_bf16(floats[i]));
    }
    test_tensor_free(&half);
    test_tensor_free(&wide);
}

static void conversion_has_the_bits_of_the_scalar_one(void **state)
{
    (void)state;
    test_on_each_isa(check_bits, NULL);
}

static const struct rows_case cap_cases[] = {
    {70, 333, 3, TT_F32}, {70, 333, 0, TT_BF16}, {3, 20000, 1, TT_BF16}, {1, 1, 0, TT_F32}, {0, 5, 0, TT_F32},
};

/* Numbers from far below the cap to far above it. */
static void check_cap(struct test_device *device, int threads, void *context)
{
    (void)threads;
    const struct rows_case *row = context;
    const float cap = 2.5f;
    struct test_tensor x = test_tensor_random(row->dtype, row->rows, row->cols, TEST_UNUSED, row->gap, 6, 1);
    double *values = test_tensor_values(&x);
    int64_t count = row->rows * row->cols;
    double *exact = test_doubles(count), *simple = test_doubles(count);
    for (int64_t i = 0; i < count; i++)
        values[i] = (double)test_round((float)ldexp(values[i], (int)(i % 12) - 6), row->dtype);
    test_tensor_set(&x, values);
    for (int64_t i = 0; i < count; i++) {
        float value = (float)values[i];
        exact[i] = (double)cap * tanh(values[i] / (double)cap);
        simple[i] = (double)test_round(cap * tanhf(value / cap), row->dtype);
    }
    TEST_TO_DEVICE(device, &x);
    struct tt_soft_cap_args args = {.x = x.view, .cap = cap};
    test_ok(tt_soft_cap(device->stream, &args));
    TEST_TO_HOST(device, &x);
    double *got = test_tensor_values(&x);
    test_close("capped", got, exact, simple, count, row->dtype, 2);
    test_tensor_check_gaps("capped", &x);
    free(values), free(exact), free(simple), free(got);
    test_tensor_free(&x);
}

static void capped_numbers(void **state)
{
    (void)state;
    TEST_ISA_CASES("soft_cap", cap_cases, check_cap);
}

static void check_half(struct test_device *device, int threads, void *context)
{
    (void)threads, (void)context;
    static const tt_dtype types[] = {TT_F32, TT_BF16, TT_F16};
    for (int i = 0; i < 3; i++)
        for (int j = 0; j < 3; j++) {
            struct test_tensor x = test_tensor_random(types[i], 9, 37, TEST_UNUSED, 2, 1, 100);
            struct test_tensor y = test_tensor_make(types[j], 9, 37, TEST_UNUSED, 5);
            cast_one(device, &x, &y);
            double *values = test_tensor_values(&x);
            expect("cast", &y, values);
            free(values);
            test_tensor_free(&x);
            test_tensor_free(&y);
        }
}

static void every_pair_of_types(void **state)
{
    (void)state;
    test_on_each_isa(check_half, NULL);
}

int main(void)
{
    int missing = test_device_missing();
    if (missing != 0) return missing;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(capped_numbers),
        cmocka_unit_test(rounded_once),
        cmocka_unit_test(rows_added_in_their_order),
        cmocka_unit_test(rows_of_real_sizes),
        cmocka_unit_test(sizes_of_real_models),
        cmocka_unit_test(conversion_has_the_bits_of_the_scalar_one),
        cmocka_unit_test(every_pair_of_types),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
