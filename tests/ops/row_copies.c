/* Rows that gather_rows copies to several places, in any order, and what came of the copies together again, by
 * combine_rows without weights over lists of copies and a row of zeros behind them (nn/attention_branches.c); against
 * fp64. */
#include <stdlib.h>

#include "backend/ops/embedding.h"
#include "backend/ops/expert_rows.h"
#include "ops/isa.h"

struct copies_case {
    int64_t tokens, more, width, gap; /* copies beside one of each token */
    int64_t slots;
    tt_dtype dtype;
};

static const struct copies_case cases[] = {
    {20, 0, 16, 0, 1, TT_F32},   {20, 13, 64, 0, 2, TT_F32},   {33, 70, 67, 3, 5, TT_BF16},
    {5, 20, 300, 1, 8, TT_F32},  {64, 64, 256, 0, 2, TT_BF16}, {100, 60, 33, 5, 3, TT_BF16},
    {1, 7, 2048, 0, 8, TT_BF16},
};

/* Prompts of half a row and two answers; of three quarters and eight. */
static const struct copies_case gpu_cases[] = {
    {6144, 2048, 1024, 1024, 2, TT_BF16},
    {3072, 5376, 1024, 1024, 8, TT_BF16},
    {3001, 1501, 96, 0, 2, TT_F32},
};

enum { X, COPIES, FROM, LIST, Y, TENSORS };
static const char *const names[TENSORS] = {"x", "copies", "from", "list", "y"};

struct problem {
    const struct copies_case *row;
    struct test_tensor tensors[TENSORS], first;
    double *exact, *simple, *copied;
};

/* Copy m is of token m at first, and behind of others in turn, backwards. */
static void make_lists(struct problem *p)
{
    int64_t T = p->row->tokens, M = T + p->row->more, S = p->row->slots;
    int32_t *from = p->tensors[FROM].view.data, *list = p->tensors[LIST].view.data;
    for (int64_t m = 0; m < M; m++) from[m] = (int32_t)(m < T ? m : T - 1 - (m - T) % T);
    for (int64_t i = 0; i < T * S; i++) list[i] = (int32_t)M;
    for (int64_t m = 0; m < M; m++) {
        int64_t s = 0;
        while (list[from[m] * S + s] != M) s++;
        assert_true(s < S);
        list[from[m] * S + s] = (int32_t)m;
    }
}

static void make_problem(struct problem *p, const struct copies_case *row)
{
    int64_t T = row->tokens, M = T + row->more, D = row->width, S = row->slots, none = TEST_UNUSED;
    *p = (struct problem){.row = row};
    p->tensors[X] = test_tensor_random(row->dtype, T, D, none, row->gap, 1, 1);
    p->tensors[COPIES] = test_tensor_random(row->dtype, M + 1, D, none, row->gap, 2, 1);
    p->tensors[FROM] = test_tensor_make(TT_I32, M, none, none, 0);
    p->tensors[LIST] = test_tensor_make(TT_I32, T, S, none, 0);
    p->tensors[Y] = test_tensor_random(row->dtype, T, D, none, row->gap, 3, 1);
    make_lists(p);
    double *zeros = test_tensor_values(&p->tensors[COPIES]), *x = test_tensor_values(&p->tensors[X]);
    p->exact = test_tensor_values(&p->tensors[Y]);
    p->simple = test_tensor_values(&p->tensors[Y]);
    p->copied = test_tensor_values(&p->tensors[COPIES]);
    for (int64_t d = 0; d < D; d++) zeros[M * D + d] = p->copied[M * D + d] = 0;
    test_tensor_set(&p->tensors[COPIES], zeros);
    const int32_t *from = p->tensors[FROM].view.data, *list = p->tensors[LIST].view.data;
    for (int64_t m = 0; m < M; m++)
        for (int64_t d = 0; d < D; d++) p->copied[m * D + d] = x[from[m] * D + d];
    for (int64_t t = 0; t < T; t++)
        for (int64_t d = 0; d < D; d++) {
            double sum = 0;
            float plain = 0;
            for (int64_t i = t * S; i < (t + 1) * S; i++) {
                sum += p->copied[list[i] * D + d];
                plain += (float)p->copied[list[i] * D + d];
            }
            p->exact[t * D + d] = sum;
            p->simple[t * D + d] = (double)test_round(plain, row->dtype);
        }
    free(x), free(zeros);
}

static void check_run(struct test_device *device, int threads, void *context)
{
    struct problem *p = context;
    struct test_tensor t[TENSORS];
    int64_t M = p->row->tokens + p->row->more;
    for (int i = 0; i < TENSORS; i++) t[i] = test_tensor_copy(&p->tensors[i]);
    test_tensor_poison(&t[Y]);
    test_array_to_device(device, t, TENSORS);
    struct tt_gather_rows_args gather = {t[X].view, t[FROM].view, tt_tensor_rows(t[COPIES].view, 0, M)};
    struct tt_combine_rows_args combine = {
        .x_MD = t[COPIES].view, .place_TS = t[LIST].view, .y_TD = t[Y].view};
    test_ok(tt_gather_rows(device->stream, &gather));
    test_ok(tt_combine_rows(device->stream, &combine));
    test_array_to_host(device, t, TENSORS);
    test_array_check_gaps(names, t, TENSORS);
    double *copied = test_tensor_values(&t[COPIES]);
    assert_memory_equal(copied, p->copied, (size_t)tt_tensor_count(t[COPIES].view) * sizeof *copied);
    free(copied);
    test_check_result("y", t[Y], threads, p->exact, p->simple, 2, &p->first);
    for (int i = 0; i < TENSORS; i++)
        if (i != Y) test_tensor_free(&t[i]);
}

static void check_case(const void *row)
{
    struct problem p;
    make_problem(&p, row);
    test_on_each_isa(check_run, &p);
    free(p.exact), free(p.simple), free(p.copied);
    test_array_free(p.tensors, TENSORS);
    test_tensor_free(&p.first);
}

static void close_to_the_oracle(void **state)
{
    (void)state;
    TEST_CASES("row_copies", cases, check_case);
}

static void sizes_of_real_models(void **state)
{
    (void)state;
    TEST_SIZES_ONLY();
    TEST_CASES("row_copies", gpu_cases, check_case);
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
