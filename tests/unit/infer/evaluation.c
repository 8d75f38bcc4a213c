/* An evaluation by an objective that looks at many rows: where it adds up what sft does, the metrics are sft's bit for
 * bit, whatever the size of micro batches; dpo compares groups with the reference; an objective that fails ends it. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "checkpoint/load.h"
#include "engine/plan.h"
#include "infer/evaluator.h"
#include "support/model_runner.h"
#include "support/must.h"

enum { SAMPLES = 12, LENGTH = 24, VOCAB_MAX = 64 };

static const struct tt_metric sft_metrics[] = {
    {"loss", 0, TT_OVER_TOKENS, TT_BETTER_SMALLER},
    {"entropy", 2, TT_OVER_TOKENS, TT_BETTER_NONE},
    {"mean_token_accuracy", 1, TT_OVER_TOKENS, TT_BETTER_GREATER},
    {"mean_logits", 3, TT_OVER_TOKENS, TT_BETTER_NONE},
};

static tt_status mean_of_rows(const struct tt_objective *objective, const struct tt_objective_rows *rows)
{
    (void)objective;
    for (int64_t n = 0; n < rows->batch->row_count; n++) {
        rows->sums[0] += (double)-rows->logp_N[n];
        rows->sums[1] += rows->correct_N[n];
        rows->sums[2] += (double)rows->entropy_N[n];
        rows->sums[3] += (double)rows->mean_N[n];
    }
    return TT_OK;
}

static const struct tt_objective by_rows = {
    .ops = &(const struct tt_objective_ops){
        .name = "by rows", .metrics = sft_metrics, .metric_count = 4, .rows = mean_of_rows}};

static tt_status count_rows(const struct tt_objective *objective, const struct tt_objective_rows *rows,
                            double *shared)
{
    (void)objective;
    shared[0] += (double)rows->batch->row_count;
    return TT_OK;
}

static tt_status read_shared(const struct tt_objective *objective, const struct tt_objective_rows *rows)
{
    (void)objective;
    for (int64_t n = 0; n < rows->batch->row_count; n++) rows->sums[0] -= (double)rows->logp_N[n];
    rows->sums[3] += rows->shared[0];
    return TT_OK;
}

static const struct tt_metric shared_metrics[] = {{"loss", 0, TT_OVER_TOKENS, TT_BETTER_SMALLER},
                                                  {"shared", 3, TT_OVER_TOKENS, TT_BETTER_NONE}};
static const struct tt_objective sharing = {.ops = &(const struct tt_objective_ops){.name = "sharing",
                                                                                    .metrics = shared_metrics,
                                                                                    .metric_count = 2,
                                                                                    .share = count_rows,
                                                                                    .rows = read_shared}};

static tt_status refuse(const struct tt_objective *objective, const struct tt_objective_rows *rows)
{
    (void)objective, (void)rows;
    return tt_fail(TT_ERR_DATA, "these rows are not wanted");
}

static const struct tt_objective refusing = {
    .ops = &(const struct tt_objective_ops){
        .name = "refusing", .metrics = sft_metrics, .metric_count = 4, .rows = refuse}};

struct run {
    struct tt_model_facts model;
    struct tt_dataset *dataset;
    struct tt_sampler *sampler;
    struct tt_comm *comm;
    struct tt_plan plan;
    struct tt_rank rank;
    struct tt_batch_storage storage;
};

/* NULL: sft. `micro`: groups of a micro batch. */
static void open_run(struct run *run, const struct tt_objective *objective, size_t group_size, int64_t micro)
{
    struct tt_batch_limits limits, none = {0};
    const struct tt_sampler_config sampler = {.micro_batch_size = micro, .world_size = 1, .accumulation = 1};
    *run = (struct run){0};
    tt_runner_read_config(TT_TEST_ROOT "/golden/llama2/model", NULL, &run->model);
    test_must(tt_dataset_create_random(SAMPLES, 5, LENGTH, VOCAB_MAX, 3, &run->dataset));
    test_must(tt_dataset_group(run->dataset, group_size));
    test_must(tt_sampler_create(run->dataset, &sampler, &run->sampler));
    tt_sampler_limits(run->sampler, 0, tt_sampler_steps_per_epoch(run->sampler), &limits);
    test_must(tt_comm_create_self(&run->comm));
    struct tt_rank_config config = {
        .device = {.kind = "cpu", .threads = 1},
        .world = run->comm,
        .strategy = TT_FULL_SHARD,
        .model_facts = &run->model,
        .model_options = {.compute_dtype = TT_F32,
                          .random_init = true,
                          .lora = {.enabled = true, .r = 4, .alpha = 8, .target_modules = "all-linear"}},
        .objective = objective,
        .limits = limits,
        .reduce_dtype = TT_F32,
    };
    test_must(tt_plan_make(&config, (struct tt_plan_ranks){1, 1}, 1, &none, &limits, &run->plan));
    config.levels = run->plan.levels;
    config.workspace_bytes = run->plan.workspace_bytes;
    test_must(tt_rank_init(&config, &run->rank));
    test_must(tt_rank_load(&run->rank, &(struct tt_load_source){.seed = 5}));
}

static void close_run(struct run *run)
{
    tt_batch_storage_deinit(&run->storage);
    tt_rank_deinit(&run->rank);
    tt_comm_destroy(run->comm);
    tt_sampler_destroy(run->sampler);
    tt_dataset_destroy(run->dataset);
}

static void evaluate(const struct tt_objective *objective, size_t group_size, int64_t micro,
                     struct tt_evaluation *result)
{
    struct run run;
    open_run(&run, objective, group_size, micro);
    test_must(
        tt_evaluate(&run.rank, run.sampler, NULL, NULL, &run.storage, &(struct tt_by_source){0}, result));
    close_run(&run);
}

static void sums_of_rows_are_those_of_sft(void **state)
{
    (void)state;
    for (int64_t micro = 1; micro <= SAMPLES; micro += 5) {
        struct tt_evaluation sft, rows;
        evaluate(NULL, 1, micro, &sft);
        evaluate(&by_rows, 1, micro, &rows);
        assert_true(sft.loss > 1 && sft.metrics[1] > 0.1);
        assert_memory_equal(sft.metrics, rows.metrics, 3 * sizeof *rows.metrics);
        assert_true(sft.loss == rows.loss && isfinite(rows.metrics[3]) && rows.metrics[3] != 0);
        assert_int_equal(sft.supervised_tokens, rows.supervised_tokens);
        assert_int_equal(rows.samples, SAMPLES);
        assert_int_equal(rows.groups, SAMPLES);
    }
}

/* A new adapter adds nothing: both answers of a pair are as likely as in the reference. */
static void pairs_are_compared_with_the_reference(void **state)
{
    (void)state;
    struct tt_objective dpo;
    struct tt_evaluation result, alone;
    assert_int_equal(tt_objective_init("dpo", &dpo), TT_OK);
    evaluate(&dpo, 2, 4, &result);
    evaluate(&dpo, 2, 1, &alone);
    assert_int_equal(result.groups, SAMPLES / 2);
    assert_true(fabs(result.loss - log(2)) < 1e-12);
    for (int i = 0; i < dpo.ops->metric_count; i++)
        if (!(fabs(result.metrics[i] - alone.metrics[i]) <= 1e-6 * fabs(alone.metrics[i])))
            fail_msg("%s is %g, and %g pair by pair", dpo.ops->metrics[i].name, result.metrics[i],
                     alone.metrics[i]);
}

/* Each batch has the sums of its own rows alone. */
static void a_batch_shares_values(void **state)
{
    (void)state;
    struct tt_evaluation sft, result;
    evaluate(NULL, 1, 5, &sft);
    evaluate(&sharing, 1, 5, &result);
    assert_true(result.metrics[1] == 1);
    assert_true(fabs(result.loss - sft.loss) < 1e-6);
}

static void a_failing_objective_ends_it(void **state)
{
    (void)state;
    struct run run;
    struct tt_evaluation result;
    open_run(&run, &refusing, 1, 4);
    assert_int_equal(
        tt_evaluate(&run.rank, run.sampler, NULL, NULL, &run.storage, &(struct tt_by_source){0}, &result),
        TT_ERR_DATA);
    assert_string_equal(tt_error_last()->message, "these rows are not wanted");
    close_run(&run);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_of_rows_are_those_of_sft),
        cmocka_unit_test(pairs_are_compared_with_the_reference),
        cmocka_unit_test(a_batch_shares_values),
        cmocka_unit_test(a_failing_objective_ends_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
