#include "backend/ops/center.h"

#include <stdlib.h>

#include "ops/isa.h"

struct center_case {
    int64_t rows, width, gap;
    tt_dtype dtype;
    bool in_place;
};

static const struct center_case cases[] = {
    {7, 64, 0, TT_F32, false},   {7, 64, 0, TT_BF16, true},    {40, 896, 8, TT_BF16, false},
    {300, 33, 3, TT_F32, true},  {300, 33, 3, TT_BF16, false}, {2000, 20, 0, TT_F32, false},
    {5, 4097, 1, TT_BF16, true}, {50, 1, 0, TT_F32, false},    {0, 64, 0, TT_F32, true},
};

static const struct center_case gpu_cases[] = {
    {500, 4096, 0, TT_BF16, false},
    {257, 8192, 0, TT_BF16, true},
    {1001, 1537, 1, TT_BF16, true},
    {70000, 16, 0, TT_F32, false},
};

struct problem {
    const struct center_case *row;
    struct test_tensor x, first;
    double *exact, *simple;
};

static void check_run(struct test_device *device, int threads, void *context)
{
    struct problem *p = context;
    struct test_tensor x = test_tensor_copy(&p->x), y = test_tensor_copy(&p->x);
    TEST_TO_DEVICE(device, &x, &y);
    struct tt_center_args args = {.x_ND = x.view, .y_ND = p->row->in_place ? x.view : y.view};
    test_ok(tt_center(device->stream, &args));
    TEST_TO_HOST(device, &x, &y);
    test_check_result("y", p->row->in_place ? x : y, threads, p->exact, p->simple, 2, &p->first);
    if (!p->row->in_place)
        test_tensor_free(&x);
    else
        test_tensor_free(&y);
}

static void check_case(const void *row_pointer)
{
    const struct center_case *row = row_pointer;
    struct problem p = {.row = row};
    p.x = test_tensor_random(row->dtype, row->rows, row->width, TEST_UNUSED, row->gap, 1, 1);
    double *x = test_tensor_values(&p.x);
    p.exact = test_doubles(row->rows * row->width);
    p.simple = test_doubles(row->rows * row->width);
    for (int64_t n = 0; n < row->rows; n++) {
        const double *of = x + n * row->width;
        double sum = 0;
        float plain = 0;
        for (int64_t d = 0; d < row->width; d++) sum += of[d], plain += (float)of[d];
        for (int64_t d = 0; d < row->width; d++) {
            p.exact[n * row->width + d] = of[d] - sum / (double)row->width;
            p.simple[n * row->width + d] =
                (double)test_round((float)of[d] - plain / (float)row->width, row->dtype);
        }
    }
    test_on_each_isa(check_run, &p);
    free(x), free(p.exact), free(p.simple);
    test_tensor_free(&p.x);
    test_tensor_free(&p.first);
}

static void close_to_the_oracle(void **state)
{
    (void)state;
    TEST_CASES("center", cases, check_case);
}

static void sizes_of_real_models(void **state)
{
    (void)state;
    TEST_SIZES_ONLY();
    TEST_CASES("center", gpu_cases, check_case);
}

int main(void)
{
    int missing = test_device_missing();
    if (missing != 0) return missing;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(close_to_the_oracle),
        cmocka_unit_test(sizes_of_real_models),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
