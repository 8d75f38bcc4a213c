/* Sums of a pass by name (nn/pass.h): a block adds to one that the objective asks for, once in each micro batch,
 * however often its forward runs; the training is the same bit for bit. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "support/must.h"
#include "support/objective_run.h"

enum { CALLS = 3 };

static const struct tt_metric metrics[] = {
    {"loss", 0, TT_OVER_TOKENS, TT_BETTER_SMALLER},
    {"entropy", 2, TT_OVER_TOKENS, TT_BETTER_NONE},
    {"mean_token_accuracy", 1, TT_OVER_TOKENS, TT_BETTER_GREATER},
    {"calls", CALLS, TT_OVER_NOTHING, TT_BETTER_NONE},
};

static const char *const names[] = {TT_SUM_LOSS, "correct", "entropy", "calls", NULL};

static const struct tt_objective counting = {
    .ops = &(const struct tt_objective_ops){
        .name = "counting", .metrics = metrics, .metric_count = 4, .pass_sums = names}};

static const struct tt_block_ops *layer_ops;
static int forwards;

static tt_status forward(struct tt_block *block, const struct tt_pass *pass, tt_tensor x_TD, void *record,
                         tt_tensor y_TD)
{
    tt_tensor calls = tt_pass_sum(pass, "calls");
    if (!tt_tensor_is_empty(calls)) *(double *)calls.data += 1;
    forwards++;
    return layer_ops->forward(block, pass, x_TD, record, y_TD);
}

static void sums_are_added_once(void **state)
{
    (void)state;
    enum { MICRO_STEPS = 2 };
    struct test_run plain, counted;
    struct test_setup setup = {.options = test_lora(TT_F32), .group_size = 1, .accumulation = MICRO_STEPS};
    test_must(test_open_run(&plain, &setup));
    setup.objective = &counting;
    test_must(test_open_run(&counted, &setup));
    struct tt_block *layer = &counted.rank.model->blocks[1];
    assert_int_equal(counted.plan.levels[1], TT_RECOMPUTE_BLOCK);
    struct tt_block_ops ops = *layer->ops;
    layer_ops = layer->ops;
    ops.forward = forward;
    layer->ops = &ops;
    for (int64_t s = 0; s < TEST_STEPS; s++) {
        struct tt_train_step_result wanted, got;
        forwards = 0;
        test_must(test_train_step(&plain, s, &wanted));
        test_must(test_train_step(&counted, s, &got));
        assert_int_equal(forwards, 2 * MICRO_STEPS);
        assert_true(got.metrics[CALLS] == MICRO_STEPS);
        assert_memory_equal(wanted.metrics, got.metrics, CALLS * sizeof *got.metrics);
        assert_true(wanted.grad_norm > 0 && wanted.grad_norm == got.grad_norm);
    }
    layer->ops = layer_ops;
    test_close_run(&counted);
    test_close_run(&plain);
}

/* Names of results and sums, and the room for them. */
static void slots(void **state)
{
    (void)state;
    struct tt_pass_results results = {0};
    const struct tt_pass pass = {.out = &results};
    float values[2] = {0};
    double sum = 0;
    static const char *const many[] = {"a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l", "m"};
    test_must(tt_pass_give(&pass, "a", 0, tt_tensor_1d(values, TT_F32, 1)));
    test_must(tt_pass_give(&pass, "a", 1, tt_tensor_1d(values, TT_F32, 2)));
    test_must(tt_pass_give(&pass, "a", 0, tt_tensor_1d(values + 1, TT_F32, 1)));
    assert_int_equal(results.count, 2);
    assert_ptr_equal(tt_pass_result(&results, "a", 0).data, values + 1);
    assert_int_equal(tt_pass_result(&results, "a", 1).dims[0], 2);
    assert_true(tt_tensor_is_empty(tt_pass_result(&results, "b", 0)));
    for (int i = 2; i < TT_RESULTS_MAX; i++)
        test_must(tt_pass_give(&pass, many[i], 0, tt_tensor_1d(values, TT_F32, 1)));
    assert_int_equal(tt_pass_give(&pass, "m", 0, tt_tensor_1d(values, TT_F32, 1)), TT_ERR_INTERNAL);
    assert_string_equal(tt_error_last()->message, "result 'm' of a pass is one of more than 12");
    assert_true(tt_tensor_is_empty(tt_pass_sum(&pass, "a")));
    for (int i = 0; i < TT_PASS_SUMS_MAX; i++) test_must(tt_pass_lend_sum(&results, many[i], &sum));
    assert_ptr_equal(tt_pass_sum(&pass, "h").data, &sum);
    assert_int_equal(tt_pass_lend_sum(&results, "i", &sum), TT_ERR_INTERNAL);
    assert_string_equal(tt_error_last()->message, "sum 'i' of a pass is one of more than 8");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(sums_are_added_once), cmocka_unit_test(slots)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
