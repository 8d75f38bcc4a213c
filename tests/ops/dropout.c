#include <math.h>
#include <stdlib.h>

#include "backend/ops/elementwise.h"
#include "ops/isa.h"
#include "support/dropout_mask.h"

struct dropout_case {
    int64_t rows, width, gap;
    tt_dtype x, y;
    double p;
    bool accumulate;
};

static const struct dropout_case cases[] = {
    {20, 896, 0, TT_BF16, TT_BF16, 0.05, false}, {20, 896, 0, TT_F32, TT_F32, 0.05, false},
    {20, 896, 0, TT_BF16, TT_BF16, 0.05, true},  {70, 333, 3, TT_F32, TT_BF16, 0.3, true},
    {70, 333, 3, TT_BF16, TT_F32, 0.3, false},   {9, 64, 0, TT_F32, TT_F32, 0, false},
    {9, 65, 1, TT_F32, TT_F32, 0.999, false},    {3, 1, 0, TT_F32, TT_F32, 0.5, false},
    {3, 31, 0, TT_BF16, TT_BF16, 0.5, true},     {5, 127, 0, TT_F32, TT_F32, 0.25, true},
    {0, 64, 0, TT_F32, TT_F32, 0.5, false},      {4, 100, 0, TT_F32, TT_F32, 1 - 0x1p-40, false},
};

static const struct dropout_case gpu_cases[] = {
    {500, 4096, 0, TT_BF16, TT_BF16, 0.05, false},
    {513, 4095, 1, TT_BF16, TT_BF16, 0.1, true},
    {70000, 64, 0, TT_BF16, TT_BF16, 0.05, true},
};

struct problem {
    const struct dropout_case *row;
    struct test_tensor x, y, keys;
    double *x_values, *y_values;
    struct tt_rng rng;
};

/* Against the definition, element by element. */
static void check_run(struct test_device *device, int threads, void *context)
{
    (void)threads;
    const struct problem *p = context;
    const struct dropout_case *row = p->row;
    struct test_tensor x = test_tensor_copy(&p->x), keys_T = test_tensor_copy(&p->keys);
    struct test_tensor y = test_tensor_copy(&p->y);
    if (!row->accumulate) test_tensor_poison(&y);
    TEST_TO_DEVICE(device, &x, &y, &keys_T);
    struct tt_dropout_args args = {.x_TD = x.view,
                                   .row_keys_T = keys_T.view,
                                   .rng = p->rng,
                                   .p = row->p,
                                   .accumulate = row->accumulate,
                                   .y_TD = y.view};
    test_ok(tt_dropout(device->stream, &args));
    TEST_TO_HOST(device, &x, &y, &keys_T);
    double *got = test_tensor_values(&y);
    const int64_t *keys = p->keys.view.data;
    int64_t kept_count = 0;
    double dropped = test_dropout_rate(row->p);
    for (int64_t t = 0; t < row->rows; t++)
        for (int64_t d = 0; d < row->width; d++) {
            int64_t at = t * row->width + d;
            bool kept = test_dropout_keeps(p->rng, keys[t], d, row->p);
            kept_count += kept;
            double before = row->accumulate ? p->y_values[at] : 0;
            double want = (kept ? p->x_values[at] / (1 - dropped) : 0) + before;
            double slack = (row->y == TT_BF16 ? 0x1p-8 : 0x1p-22) * (fabs(want) + fabs(before));
            if (fabs(got[at] - want) > slack || (!kept && got[at] != before))
                fail_msg("token %lld element %lld is %.9g instead of %.9g", (long long)t, (long long)d,
                         got[at], want);
        }
    double count = (double)(row->rows * row->width), expected = count * (1 - dropped);
    assert_true(fabs((double)kept_count - expected) <= 5 * sqrt(count * dropped * (1 - dropped)) + 1e-6);
    test_tensor_check_gaps("y", &y);
    test_tensor_equal("x", &x, &p->x);
    free(got);
    test_tensor_free(&x);
    test_tensor_free(&y);
    test_tensor_free(&keys_T);
}

static void check_case(const void *row_pointer)
{
    const struct dropout_case *row = row_pointer;
    struct problem p = {.row = row, .rng = tt_rng_derive(tt_rng_make(12345678901234567u), "dropout")};
    p.x = test_tensor_random(row->x, row->rows, row->width, TEST_UNUSED, row->gap, 1, 1);
    p.y = test_tensor_random(row->y, row->rows, row->width, TEST_UNUSED, row->gap, 2, 1);
    p.keys = test_tensor_make(TT_I64, row->rows, TEST_UNUSED, TEST_UNUSED, 0);
    for (int64_t t = 0; t < row->rows; t++) /* beyond 32 bits, and negative */
        ((int64_t *)p.keys.view.data)[t] = (t % 3 - 1) * 0x123456789abcdef + t;
    p.x_values = test_tensor_values(&p.x);
    p.y_values = test_tensor_values(&p.y);
    test_on_each_isa(check_run, &p);
    free(p.x_values), free(p.y_values);
    test_tensor_free(&p.x);
    test_tensor_free(&p.y);
    test_tensor_free(&p.keys);
}

static void every_element_follows_the_definition(void **state)
{
    (void)state;
    TEST_CASES("dropout", cases, check_case);
}

static void sizes_of_real_models(void **state)
{
    (void)state;
    TEST_SIZES_ONLY();
    TEST_CASES("dropout", gpu_cases, check_case);
}

static void in_place(void **state)
{
    (void)state;
    struct test_device device;
    test_device_open(&device, test_device_kind(), 1);
    struct test_tensor x = test_tensor_random(TT_BF16, 6, 77, TEST_UNUSED, 1, 1, 1);
    struct test_tensor y = test_tensor_make(TT_BF16, 6, 77, TEST_UNUSED, 1);
    struct test_tensor keys = test_tensor_make(TT_I64, 6, TEST_UNUSED, TEST_UNUSED, 0);
    TEST_TO_DEVICE(&device, &x, &y, &keys);
    struct tt_dropout_args args = {
        .x_TD = x.view, .row_keys_T = keys.view, .rng = tt_rng_make(1), .p = 0.4, .y_TD = y.view};
    test_ok(tt_dropout(device.stream, &args));
    args.y_TD = x.view;
    test_ok(tt_dropout(device.stream, &args));
    TEST_TO_HOST(&device, &x, &y, &keys);
    test_tensor_equal("in place", &x, &y);
    test_device_close(&device);
    test_tensor_free(&x);
    test_tensor_free(&y);
    test_tensor_free(&keys);
}

int main(void)
{
    int missing = test_device_missing();
    if (missing != 0) return missing;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_element_follows_the_definition),
        cmocka_unit_test(sizes_of_real_models),
        cmocka_unit_test(in_place),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
