#include "backend/ops/transpose.h"

#include <stdlib.h>

#include "ops/harness.h"

struct transpose_case {
    int64_t rows, cols, gap;
    tt_dtype dtype;
    bool accumulate;
};

static const struct transpose_case cases[] = {
    {1, 1, 0, TT_F32, false},      {64, 32, 0, TT_F32, true},   {33, 31, 3, TT_F32, false},
    {7, 200, 1, TT_BF16, true},    {200, 7, 0, TT_BF16, false}, {96, 5, 0, TT_F32, true},
    {0, 4, 0, TT_F32, false},      {4, 0, 0, TT_BF16, false},   {700, 65, 2, TT_F32, true},
    {513, 128, 8, TT_BF16, false},
};

static const struct transpose_case gpu_cases[] = {
    {24576, 128, 0, TT_BF16, false}, /* B of gate and up of Qwen3-30B, r 16 */
    {128, 24576, 0, TT_F32, true},
    {2097153, 3, 0, TT_F32, false}, /* more tiles than a second dimension of blocks has */
    {3, 2097153, 0, TT_BF16, true},
};

/* Numbers are moved, and sums are of two: both are exact in fp32 and rounded once. */
static void check_case(const void *row_pointer)
{
    const struct transpose_case *row = row_pointer;
    struct test_device device;
    test_device_open(&device, test_device_kind(), 3);
    struct test_tensor x = test_tensor_random(row->dtype, row->rows, row->cols, TEST_UNUSED, row->gap, 1, 1);
    struct test_tensor y = test_tensor_random(row->dtype, row->cols, row->rows, TEST_UNUSED, row->gap, 2, 1);
    double *from = test_tensor_values(&x), *before = test_tensor_values(&y);
    TEST_TO_DEVICE(&device, &x, &y);
    struct tt_transpose_args args = {.x_MN = x.view, .y_NM = y.view, .accumulate = row->accumulate};
    test_ok(tt_transpose(device.stream, &args));
    TEST_TO_HOST(&device, &x, &y);
    double *after = test_tensor_values(&y);
    for (int64_t m = 0; m < row->rows; m++)
        for (int64_t n = 0; n < row->cols; n++) {
            int64_t place = n * row->rows + m;
            float sum = (float)from[m * row->cols + n] + (row->accumulate ? (float)before[place] : 0.0f);
            if (after[place] != (double)test_round(sum, row->dtype))
                fail_msg("%lld, %lld: %g, wanted %g", (long long)m, (long long)n, after[place], (double)sum);
        }
    test_tensor_check_gaps("x", &x);
    test_tensor_check_gaps("y", &y);
    free(from), free(before), free(after);
    test_tensor_free(&x);
    test_tensor_free(&y);
    test_device_close(&device);
}

static void moves_every_number(void **state)
{
    (void)state;
    TEST_CASES("transpose", cases, check_case);
}

static void sizes_of_real_models(void **state)
{
    (void)state;
    TEST_SIZES_ONLY();
    TEST_CASES("transpose", gpu_cases, check_case);
}

int main(void)
{
    int missing = test_device_missing();
    if (missing != 0) return missing;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(moves_every_number),
        cmocka_unit_test(sizes_of_real_models),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
