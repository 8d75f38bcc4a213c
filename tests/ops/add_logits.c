/* The op add_logits: the entries and nothing else, infinities, no entries, wrong shapes. */
#include "backend/ops/add_logits.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "ops/isa.h"

struct add_case {
    int64_t rows, vocab, gap, entries;
};

static const struct add_case cases[] = {
    {1, 1, 0, 1}, {3, 263, 5, 40}, {16, 49152, 0, 3000}, {7, 100, 1, 0}, {2, 33, 0, 66},
};

struct problem {
    const struct add_case *row;
    struct test_tensor logits, rows, ids, values;
    float *wanted; /* [rows, vocab] */
};

static void check_run(struct test_device *device, int threads, void *context)
{
    struct problem *p = context;
    struct test_tensor logits = test_tensor_copy(&p->logits);
    (void)threads;
    TEST_TO_DEVICE(device, &logits, &p->rows, &p->ids, &p->values);
    struct tt_add_logits_args args = {
        .logits_NV = logits.view, .rows_E = p->rows.view, .ids_E = p->ids.view, .values_E = p->values.view};
    test_ok(tt_add_logits(device->stream, &args));
    TEST_TO_HOST(device, &logits, &p->rows, &p->ids, &p->values);
    for (int64_t n = 0; n < p->row->rows; n++)
        if (memcmp((float *)logits.view.data + n * logits.view.strides[0], p->wanted + n * p->row->vocab,
                   (size_t)p->row->vocab * sizeof(float)) != 0)
            fail_msg("row %lld of %lld has other logits", (long long)n, (long long)p->row->rows);
    test_tensor_check_gaps("logits", &logits);
    test_tensor_free(&logits);
}

static void check_case(const void *row_pointer)
{
    const struct add_case *row = row_pointer;
    struct problem p = {.row = row};
    struct tt_rng rng = tt_rng_make(3);
    p.logits = test_tensor_random(TT_F32, row->rows, row->vocab, TEST_UNUSED, row->gap, 1, 1);
    p.rows = test_tensor_make(TT_I32, row->entries, TEST_UNUSED, TEST_UNUSED, 0);
    p.ids = test_tensor_make(TT_I32, row->entries, TEST_UNUSED, TEST_UNUSED, 0);
    p.values = test_tensor_make(TT_F32, row->entries, TEST_UNUSED, TEST_UNUSED, 0);
    p.wanted = calloc((size_t)(row->rows * row->vocab), sizeof *p.wanted);
    for (int64_t n = 0; n < row->rows; n++)
        memcpy(p.wanted + n * row->vocab, (float *)p.logits.view.data + n * p.logits.view.strides[0],
               (size_t)row->vocab * sizeof(float));
    int64_t step = row->entries > 0 ? row->rows * row->vocab / row->entries : 1;
    for (int64_t e = 0; e < row->entries; e++) {
        int64_t at = e * step;
        float value = e % 9 == 4 ? -INFINITY : (float)tt_rng_normal(rng, (uint64_t)e);
        ((int32_t *)p.rows.view.data)[e] = (int32_t)(at / row->vocab);
        ((int32_t *)p.ids.view.data)[e] = (int32_t)(at % row->vocab);
        ((float *)p.values.view.data)[e] = value;
        p.wanted[at] += value;
    }
    test_on_each_isa(check_run, &p);
    free(p.wanted);
    test_tensor_free(&p.logits);
    test_tensor_free(&p.rows);
    test_tensor_free(&p.ids);
    test_tensor_free(&p.values);
}

static void entries_and_nothing_else(void **state)
{
    (void)state;
    TEST_CASES("add_logits", cases, check_case);
}

static void refuse(struct test_device *device, int threads, void *context)
{
    float values[8] = {0};
    int32_t numbers[4] = {0};
    struct tt_add_logits_args args = {.logits_NV = tt_tensor_2d(values, TT_F32, 2, 4),
                                      .rows_E = tt_tensor_1d(numbers, TT_I32, 4),
                                      .ids_E = tt_tensor_1d(numbers, TT_I32, 3),
                                      .values_E = tt_tensor_1d(values, TT_F32, 4)};
    (void)threads;
    (void)context;
    assert_int_equal(tt_add_logits(device->stream, &args), TT_ERR_INTERNAL);
}

static void wrong_shapes_are_refused(void **state)
{
    (void)state;
    test_on_each_isa(refuse, NULL);
}

int main(void)
{
    int missing = test_device_missing();
    if (missing != 0) return missing;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(entries_and_nothing_else),
        cmocka_unit_test(wrong_shapes_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
