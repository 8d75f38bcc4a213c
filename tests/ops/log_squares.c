#include "backend/ops/log_squares.h"

#include <math.h>
#include <stdlib.h>

#include "ops/isa.h"

struct squares_case {
    int64_t rows, words, gap;
    tt_dtype dtype;
    float size, cap; /* of the logits; the soft cap */
};

static const struct squares_case cases[] = {
    {7, 64, 0, TT_F32, 1, 0},    {7, 64, 0, TT_BF16, 8, 0},   {40, 897, 7, TT_BF16, 3, 30},
    {30, 33, 3, TT_F32, 60, 0},  {30, 33, 3, TT_F32, 60, 30}, {200, 20, 0, TT_F32, 0, 0},
    {5, 4097, 1, TT_BF16, 5, 0}, {50, 1, 0, TT_F32, 4, 0},    {3, 2049, 0, TT_F32, 20, 0},
    {0, 64, 0, TT_F32, 1, 0},
};

static const struct squares_case gpu_cases[] = {
    {500, 32000, 0, TT_BF16, 4, 0},
    {257, 128256, 0, TT_BF16, 6, 0},
    {65, 151937, 1, TT_BF16, 6, 30},
    {2000, 257, 0, TT_F32, 3, 0},
};

struct problem {
    const struct squares_case *row;
    struct test_tensor logits, y, first;
    double *exact, *simple;
};

static void check_run(struct test_device *device, int threads, void *context)
{
    struct problem *p = context;
    struct test_tensor logits = test_tensor_copy(&p->logits), y = test_tensor_copy(&p->y);
    TEST_TO_DEVICE(device, &logits, &y);
    struct tt_log_squares_args args = {.logits_NV = logits.view, .y_N = y.view, .soft_cap = p->row->cap};
    test_ok(tt_log_squares(device->stream, &args));
    TEST_TO_HOST(device, &logits, &y);
    test_tensor_equal("logits", &logits, &p->logits);
    test_check_result("y", y, threads, p->exact, p->simple, 2, &p->first);
    test_tensor_free(&logits);
}

static void check_case(const void *row_pointer)
{
    const struct squares_case *row = row_pointer;
    struct problem p = {.row = row};
    p.logits = test_tensor_random(row->dtype, row->rows, row->words, TEST_UNUSED, row->gap, 1, row->size);
    p.y = test_tensor_make(TT_F32, row->rows, TEST_UNUSED, TEST_UNUSED, 0);
    double *x = test_tensor_values(&p.logits),
           *narrow = test_doubles(row->words); /* as plain code caps them */
    p.exact = test_doubles(row->rows);
    p.simple = test_doubles(row->rows);
    for (int64_t n = 0; n < row->rows; n++) {
        double *of = x + n * row->words, largest = -INFINITY, sum = 0, squares = 0;
        float plain = 0, plain_squares = 0;
        for (int64_t v = 0; v < row->words; v++) {
            float capped = row->cap * tanhf((float)of[v] / row->cap);
            narrow[v] = row->cap > 0 ? (double)capped : of[v];
            if (row->cap > 0) of[v] = (double)row->cap * tanh(of[v] / (double)row->cap);
            largest = fmax(largest, of[v]);
        }
        for (int64_t v = 0; v < row->words; v++) {
            double e = exp(of[v] - largest);
            float rounded = expf((float)narrow[v] - (float)largest);
            sum += e, squares += e * e;
            plain += rounded, plain_squares += rounded * rounded;
        }
        p.exact[n] = log(squares) - 2 * log(sum);
        p.simple[n] = (double)(logf(plain_squares) - 2 * logf(plain));
    }
    test_on_each_isa(check_run, &p);
    free(x), free(narrow), free(p.exact), free(p.simple);
    test_tensor_free(&p.logits);
    test_tensor_free(&p.y);
    test_tensor_free(&p.first);
}

static void close_to_the_oracle(void **state)
{
    (void)state;
    TEST_CASES("log_squares", cases, check_case);
}

static void sizes_of_real_models(void **state)
{
    (void)state;
    TEST_SIZES_ONLY();
    TEST_CASES("log_squares", gpu_cases, check_case);
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
