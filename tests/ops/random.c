#include <math.h>
#include <stdlib.h>

#include "backend/ops/elementwise.h"
#include "ops/isa.h"

enum { COUNT = 20000 };

static void fill(struct test_device *device, struct test_tensor *y, int64_t first, bool normal, double scale)
{
    test_tensor_poison(y);
    TEST_TO_DEVICE(device, y);
    struct tt_random_fill_args args = {.y = y->view,
                                       .rng = tt_rng_derive(tt_rng_make(3), "weight"),
                                       .first = first,
                                       .normal = normal,
                                       .scale = scale};
    test_ok(tt_random_fill(device->stream, &args));
    TEST_TO_HOST(device, y);
    test_tensor_check_gaps("y", y);
}

/* A slice has the bits of the whole; the numbers are the generator's; their moments are right. */
static void check_run(struct test_device *device, int threads, void *context)
{
    (void)threads, (void)context;
    static const tt_dtype types[] = {TT_F32, TT_BF16};
    for (int type = 0; type < 2; type++)
        for (int normal = 0; normal < 2; normal++) {
            struct test_tensor whole = test_tensor_make(types[type], COUNT, TEST_UNUSED, TEST_UNUSED, 0);
            struct test_tensor slice = test_tensor_make(types[type], 1001, TEST_UNUSED, TEST_UNUSED, 0);
            fill(device, &whole, 77, normal, 0.5);
            fill(device, &slice, 77 + 5003, normal, 0.5);
            size_t bytes = tt_dtype_bytes(types[type]);
            assert_memory_equal((char *)whole.view.data + 5003 * bytes, slice.view.data, 1001 * bytes);
            double *values = test_tensor_values(&whole), mean = 0, square = 0;
            struct tt_rng rng = tt_rng_derive(tt_rng_make(3), "weight");
            for (int i = 0; i < COUNT; i++) {
                double number = normal ? tt_rng_normal(rng, 77 + (uint64_t)i)
                                       : 2 * tt_rng_uniform(rng, 77 + (uint64_t)i) - 1;
                double want = (double)test_round((float)(0.5 * number), types[type]);
                /* The last bit of a logarithm or cosine is another one on a GPU. */
                double slack = test_on_cpu() ? 0 : (type == 0 ? 0x1p-22 : 0x1p-7) * fabs(want) + 1e-9;
                assert_true(fabs(values[i] - want) <= slack);
                assert_true(normal || fabs(values[i]) <= 0.5);
                mean += values[i] / COUNT;
                square += values[i] * values[i] / COUNT;
            }
            double variance = normal ? 0.25 : 0.25 / 3;
            assert_true(fabs(mean) < 5 * sqrt(variance / COUNT));
            assert_true(fabs(square - variance) < 5 * variance * sqrt(2.0 / COUNT));
            free(values);
            test_tensor_free(&whole);
            test_tensor_free(&slice);
        }
    struct test_tensor none = test_tensor_make(TT_F32, 0, TEST_UNUSED, TEST_UNUSED, 0);
    fill(device, &none, 0, true, 1);
    test_tensor_free(&none);
}

/* Columns of a wider matrix have its numbers. */
static void check_columns(struct test_device *device, int threads, void *context)
{
    enum { ROWS = 37, COLS = 29, WIDE = 83, COL = 11 };
    (void)threads, (void)context;
    struct test_tensor whole = test_tensor_make(TT_F32, ROWS * WIDE, TEST_UNUSED, TEST_UNUSED, 0);
    struct test_tensor columns = test_tensor_make(TT_F32, ROWS, COLS, TEST_UNUSED, 0);
    fill(device, &whole, 500, true, 0.5);
    test_tensor_poison(&columns);
    TEST_TO_DEVICE(device, &columns);
    struct tt_random_fill_args args = {.y = columns.view,
                                       .rng = tt_rng_derive(tt_rng_make(3), "weight"),
                                       .first = 500 + COL,
                                       .row_step = WIDE,
                                       .normal = true,
                                       .scale = 0.5};
    test_ok(tt_random_fill(device->stream, &args));
    TEST_TO_HOST(device, &columns);
    for (int r = 0; r < ROWS; r++)
        assert_memory_equal((const float *)columns.view.data + r * COLS,
                            (const float *)whole.view.data + r * WIDE + COL, COLS * sizeof(float));
    test_tensor_check_gaps("columns", &columns);
    test_tensor_free(&whole);
    test_tensor_free(&columns);
}

static void columns_of_a_matrix(void **state)
{
    (void)state;
    test_on_each_isa(check_columns, NULL);
}

static void slices_and_moments(void **state)
{
    (void)state;
    test_on_each_isa(check_run, NULL);
}

int main(void)
{
    int missing = test_device_missing();
    if (missing != 0) return missing;
    const struct CMUnitTest tests[] = {cmocka_unit_test(slices_and_moments),
                                       cmocka_unit_test(columns_of_a_matrix)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
