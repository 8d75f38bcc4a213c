/* Steps with an objective of the test's own: a training that scales each row by itself is that of sft bit for bit, the
 * reference is the model before the training, and what an objective cannot work with is refused. DPO trains alike on
 * any split over ranks and micro batches. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "support/must.h"
#include "support/objective_run.h"
#include "support/ranks.h"

/* ---- Objectives ---- */

static const struct tt_metric sft_metrics[] = {
    {"loss", 0, TT_OVER_TOKENS, TT_BETTER_SMALLER},
    {"entropy", 2, TT_OVER_TOKENS, TT_BETTER_NONE},
    {"mean_token_accuracy", 1, TT_OVER_TOKENS, TT_BETTER_GREATER},
};

/* The cross entropy, written as an objective that looks at many rows. */
static tt_status mean_of_rows(const struct tt_objective *objective, const struct tt_objective_rows *rows)
{
    (void)objective;
    for (int64_t n = 0; n < rows->batch->row_count; n++) {
        rows->scale_N[n] = 1.0f / (float)rows->counts->tokens;
        rows->sums[0] += (double)-rows->logp_N[n];
        rows->sums[1] += rows->correct_N[n];
        rows->sums[2] += (double)rows->entropy_N[n];
    }
    return TT_OK;
}

static const struct tt_objective by_rows = {
    .ops = &(const struct tt_objective_ops){
        .name = "by rows", .metrics = sft_metrics, .metric_count = 3, .rows = mean_of_rows}};

static const struct tt_metric reference_metrics[] = {
    {"loss", 0, TT_OVER_TOKENS, TT_BETTER_SMALLER},
    {"reference", 1, TT_OVER_TOKENS, TT_BETTER_NONE},
    {"differ", 2, TT_OVER_GROUPS, TT_BETTER_NONE},
};

static tt_status compare_reference(const struct tt_objective *objective, const struct tt_objective_rows *rows)
{
    (void)objective;
    for (int64_t n = 0; n < rows->batch->row_count; n++) {
        rows->scale_N[n] = 1.0f / (float)rows->counts->tokens;
        rows->sums[0] += (double)-rows->logp_N[n];
        rows->sums[1] += (double)-rows->ref_logp_N[n];
        rows->sums[2] += rows->logp_N[n] != rows->ref_logp_N[n];
    }
    return TT_OK;
}

static const struct tt_objective with_reference = {.ops = &(const struct tt_objective_ops){
                                                       .name = "with reference",
                                                       .metrics = reference_metrics,
                                                       .metric_count = 3,
                                                       .needs = TT_NEEDS_REFERENCE,
                                                       .rows_kind = &tt_row_pair,
                                                       .rows = compare_reference,
                                                   }};

/* The mean log p of the step's second sequences, which have no gradient, weighs the first ones' (as KTO's estimate of a
 * divergence does). Values that share() gives: that sum, its rows, and the calls. */
enum { SECOND_LOGP, SECOND_ROWS, CALLS };

static const struct tt_metric shared_metrics[] = {
    {"loss", 0, TT_OVER_TOKENS, TT_BETTER_SMALLER},
    {"second", 1, TT_OVER_GROUPS, TT_BETTER_NONE},
    {"rows", 2, TT_OVER_GROUPS, TT_BETTER_NONE},
    {"calls", 3, TT_OVER_GROUPS, TT_BETTER_NONE},
    {"own", 4, 5, TT_BETTER_NONE},
};

static tt_status add_second(const struct tt_objective *objective, const struct tt_objective_rows *rows,
                            double *shared)
{
    (void)objective;
    assert_null(rows->scale_N);
    assert_null(rows->sums);
    assert_non_null(rows->ref_logp_N);
    int64_t n = 0;
    for (int64_t s = 0; s < rows->batch->sequence_count; s++)
        for (int64_t end = tt_objective_rows_end(rows->batch, s, n); n < end; n++) {
            if (s % 2 == 0) continue;
            shared[SECOND_LOGP] += (double)rows->logp_N[n];
            shared[SECOND_ROWS]++;
        }
    shared[CALLS]++;
    return TT_OK;
}

static tt_status weigh_by_second(const struct tt_objective *objective, const struct tt_objective_rows *rows)
{
    (void)objective;
    const double *shared = rows->shared;
    double mean = shared[SECOND_LOGP] / shared[SECOND_ROWS], weight = 1 + mean * mean;
    int64_t n = 0;
    for (int64_t s = 0; s < rows->batch->sequence_count; s++)
        for (int64_t end = tt_objective_rows_end(rows->batch, s, n); n < end; n++) {
            bool first = s % 2 == 0;
            rows->scale_N[n] = first ? (float)(weight / (double)rows->counts->tokens) : 0;
            rows->sums[0] -= first ? weight * (double)rows->logp_N[n] : 0;
            rows->sums[4] += first ? 0 : (double)rows->logp_N[n];
            rows->sums[5] += !first;
        }
    rows->sums[1] += mean * (double)rows->batch->group_count;
    rows->sums[2] += shared[SECOND_ROWS] * (double)rows->batch->group_count;
    rows->sums[3] += shared[CALLS] * (double)rows->batch->group_count;
    return TT_OK;
}

static const struct tt_objective sharing = {.ops = &(const struct tt_objective_ops){
                                                .name = "sharing",
                                                .metrics = shared_metrics,
                                                .metric_count = 5,
                                                .needs = TT_NEEDS_REFERENCE,
                                                .rows_kind = &tt_row_pair,
                                                .share = add_second,
                                                .rows = weigh_by_second,
                                            }};

static tt_status refuse(const struct tt_objective *objective, const struct tt_objective_rows *rows)
{
    (void)objective, (void)rows;
    return tt_fail(TT_ERR_DATA, "these rows are not wanted");
}

static const struct tt_objective refusing = {
    .ops = &(const struct tt_objective_ops){
        .name = "refusing", .metrics = sft_metrics, .metric_count = 3, .rows = refuse}};

/* ---- Tests ---- */

static void check_same_weights(const struct test_run *a, const struct test_run *b)
{
    int64_t count = 0;
    for (int u = 0; u < a->rank.model->unit_count; u++) {
        struct tt_slices x = tt_unit_slices(a->rank.units[u]), y = tt_unit_slices(b->rank.units[u]);
        assert_int_equal(x.count, y.count);
        if (x.count > 0) assert_memory_equal(x.master, y.master, (size_t)x.count * sizeof *x.master);
        count += x.count;
    }
    assert_true(count > 0);
}

static void rows_scaled_one_by_one_train_alike(void **state)
{
    (void)state;
    static const tt_dtype dtypes[] = {TT_F32, TT_BF16};
    for (int d = 0; d < 2; d++) {
        struct test_run one, other;
        struct tt_model_options options = test_lora(dtypes[d]);
        test_must(test_open_run(&one, &(struct test_setup){.options = options, .group_size = 1}));
        test_must(test_open_run(
            &other, &(struct test_setup){.objective = &by_rows, .options = options, .group_size = 1}));
        assert_string_equal(one.rank.objective.ops->name, "sft");
        for (int64_t s = 0; s < TEST_STEPS; s++) {
            struct tt_train_step_result wanted, got;
            test_must(test_train_step(&one, s, &wanted));
            test_must(test_train_step(&other, s, &got));
            assert_memory_equal(wanted.metrics, got.metrics, sizeof got.metrics);
            assert_true(wanted.loss > 0 && wanted.loss == got.loss);
            assert_true(wanted.grad_norm > 0 && wanted.grad_norm == got.grad_norm);
        }
        check_same_weights(&one, &other);
        test_close_run(&other);
        test_close_run(&one);
    }
}

/* The first step sees the reference itself: a new adapter adds nothing, and a copy has the values as they are. */
static void check_reference(struct tt_model_options options)
{
    struct test_run run;
    struct tt_train_step_result result;
    double reference = 0;
    options.lora.dropout = 0;
    test_must(test_open_run(
        &run, &(struct test_setup){.objective = &with_reference, .options = options, .group_size = 2}));
    int64_t per_epoch = tt_sampler_steps_per_epoch(run.sampler);
    for (int64_t s = 0; s < 2 * per_epoch; s++) {
        test_must(test_train_step(&run, s, &result));
        if (s == 0) assert_true(result.metrics[0] == result.metrics[1] && result.metrics[2] == 0);
        if (s > 0) assert_true(result.metrics[0] != result.metrics[1] && result.metrics[2] > 0);
        if (s > per_epoch) assert_true(result.metrics[0] < result.metrics[1]); /* it has learned */
        reference += (s < per_epoch ? 1 : -1) * result.metrics[1] * (double)result.facts.supervised;
    }
    assert_true(fabs(reference) < 1e-3); /* the same samples in each epoch, and the same reference */
    test_close_run(&run);
}

static struct tt_model_options with_head(void)
{
    struct tt_model_options saved = test_lora(TT_F32);
    saved.lora.modules_to_save = "[\"lm_head\"]";
    return saved;
}

static void the_reference_is_the_model_before_the_training(void **state)
{
    (void)state;
    check_reference(test_lora(TT_F32));
    check_reference(
        (struct tt_model_options){.compute_dtype = TT_F32, .random_init = true, .train_base = true});
    check_reference(with_head());
}

/* The plan runs the reference's pass, the second pass over the logits, and the pass of values that are shared. */
static void a_plan_has_all_passes(void **state)
{
    (void)state;
    const struct tt_objective *objectives[] = {NULL, &by_rows, &with_reference, &sharing};
    double seconds[4];
    struct tt_model_options options = test_lora(TT_F32);
    for (int i = 0; i < 4; i++) {
        struct test_run run;
        test_must(test_open_run(
            &run, &(struct test_setup){.objective = objectives[i], .options = options, .group_size = 2}));
        seconds[i] = run.plan.step_seconds;
        test_close_run(&run);
    }
    assert_true(seconds[0] < seconds[1] && seconds[1] < seconds[2] && seconds[2] < seconds[3]);
}

static void other_groups_are_refused(void **state)
{
    (void)state;
    struct test_run run;
    struct tt_train_step_result result;
    struct tt_model_options options = test_lora(TT_F32);
    test_must(test_open_run(
        &run, &(struct test_setup){.objective = &with_reference, .options = options, .group_size = 3}));
    assert_int_equal(test_train_step(&run, 0, &result), TT_ERR_DATA);
    assert_string_equal(tt_error_last()->message,
                        "objective 'with reference' compares groups of 2 sequences, "
                        "and the data has groups of 3");
    test_close_run(&run);
}

static void an_objective_may_fail(void **state)
{
    (void)state;
    struct test_run run;
    struct tt_train_step_result result;
    struct tt_model_options options = test_lora(TT_F32);
    test_must(test_open_run(
        &run, &(struct test_setup){.objective = &refusing, .options = options, .group_size = 1}));
    assert_int_equal(test_train_step(&run, 0, &result), TT_ERR_DATA);
    assert_string_equal(tt_error_last()->message, "these rows are not wanted");
    test_close_run(&run);
}

static void an_evaluation_has_adapters_to_switch_off(void **state)
{
    (void)state;
    struct test_run run;
    const struct test_setup setup = {
        .objective = &with_reference, .options = with_head(), .group_size = 2, .evaluates = true};
    assert_int_equal(test_open_run(&run, &setup), TT_ERR_USAGE);
    assert_non_null(strstr(tt_error_last()->message, "lm_head"));
    assert_non_null(strstr(tt_error_last()->hint, "adapters off"));
    test_close_run(&run);
}

/* ---- DPO ---- */

struct curve {
    int world;
    int64_t accumulation;
    double losses[TEST_STEPS], accuracies[TEST_STEPS], norms[TEST_STEPS];
    double metrics[TEST_STEPS][TT_OBJECTIVE_METRICS_MAX];
};

/* Pairs of random texts, of which one is to become likelier than the other. */
static tt_status train_pairs(struct tt_comm *comm, void *argument)
{
    struct curve *curve = argument;
    struct test_run run;
    struct tt_objective dpo;
    struct tt_model_options options = test_lora(TT_F32);
    tt_status status = TT_OK;
    options.lora.dropout = 0;
    TT_TRY(tt_objective_init("dpo", &dpo));
    dpo.values[0] = 1;
    TT_GO(test_open_run(&run, &(struct test_setup){.objective = &dpo,
                                                   .options = options,
                                                   .group_size = 2,
                                                   .accumulation = curve->accumulation,
                                                   .comm = comm}));
    for (int64_t s = 0; s < TEST_STEPS; s++) {
        struct tt_train_step_result result;
        TT_GO(test_train_step(&run, s, &result));
        if (tt_comm_rank(comm) > 0) continue;
        curve->losses[s] = result.loss;
        curve->norms[s] = result.grad_norm;
        curve->accuracies[s] =
            result.metrics[tt_objective_best_metric(&dpo, "rewards/accuracies") - dpo.ops->metrics];
    }
out:
    test_close_run(&run);
    return status;
}

static void dpo_learns_to_prefer_on_any_split(void **state)
{
    (void)state;
    struct curve curves[] = {{.world = 1, .accumulation = 1},
                             {.world = 1, .accumulation = 4},
                             {.world = 2, .accumulation = 1},
                             {.world = 2, .accumulation = 2}};
    for (int i = 0; i < 4; i++) test_ranks(curves[i].world, train_pairs, &curves[i]);
    assert_true(fabs(curves[0].losses[0] - log(2)) < 1e-12); /* a new adapter is the reference */
    assert_true(curves[0].accuracies[0] == 0);
    assert_true(curves[0].losses[TEST_STEPS - 1] < 0.6);
    assert_true(curves[0].accuracies[TEST_STEPS - 1] == 1);
    for (int i = 1; i < 4; i++)
        for (int s = 0; s < TEST_STEPS; s++) {
            assert_true(fabs(curves[i].losses[s] - curves[0].losses[s]) < 1e-5);
            assert_true(fabs(curves[i].norms[s] / curves[0].norms[s] - 1) < 1e-4);
            assert_true(curves[i].accuracies[s] == curves[0].accuracies[s]);
        }
}

/* ---- Values of the whole step ---- */

static tt_status train_sharing(struct tt_comm *comm, void *argument)
{
    struct curve *curve = argument;
    struct test_run run;
    struct tt_model_options options = test_lora(TT_F32);
    tt_status status = TT_OK;
    options.lora.dropout = 0;
    TT_GO(test_open_run(&run, &(struct test_setup){.objective = &sharing,
                                                   .options = options,
                                                   .group_size = 2,
                                                   .accumulation = curve->accumulation,
                                                   .comm = comm}));
    for (int64_t s = 0; s < TEST_STEPS; s++) {
        struct tt_train_step_result result;
        TT_GO(test_train_step(&run, s, &result));
        if (tt_comm_rank(comm) > 0) continue;
        curve->norms[s] = result.grad_norm;
        memcpy(curve->metrics[s], result.metrics, sizeof result.metrics);
    }
out:
    test_close_run(&run);
    return status;
}

/* Each micro batch of each rank is seen once before the first gradient, and all of them know the sums of all. */
static void values_are_shared_over_the_step(void **state)
{
    (void)state;
    struct curve curves[] = {{.world = 1, .accumulation = 1},
                             {.world = 1, .accumulation = 4},
                             {.world = 2, .accumulation = 1},
                             {.world = 2, .accumulation = 2}};
    for (int i = 0; i < 4; i++) test_ranks(curves[i].world, train_sharing, &curves[i]);
    for (int i = 0; i < 4; i++)
        for (int s = 0; s < TEST_STEPS; s++) {
            const double *own = curves[i].metrics[s], *one = curves[0].metrics[s];
            int64_t batches = TEST_STEP_UNITS / (TEST_STEP_UNITS / curves[i].accumulation / curves[i].world);
            bool whole = s % 2 == 0; /* an epoch has 6 groups: the second step of each has 2 of them */
            if (whole) assert_true(own[3] == (double)batches);
            assert_true(own[2] == one[2] && own[2] > 0);
            assert_true(fabs(own[1] - own[4]) <
                        1e-5); /* without dropout it is the mean of the pass with gradient */
            assert_true(fabs(own[0] - one[0]) < 1e-4 * fabs(one[0]));
            assert_true(fabs(curves[i].norms[s] / curves[0].norms[s] - 1) < 1e-4);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_scaled_one_by_one_train_alike),
        cmocka_unit_test(the_reference_is_the_model_before_the_training),
        cmocka_unit_test(a_plan_has_all_passes),
        cmocka_unit_test(other_groups_are_refused),
        cmocka_unit_test(an_objective_may_fail),
        cmocka_unit_test(an_evaluation_has_adapters_to_switch_off),
        cmocka_unit_test(dpo_learns_to_prefer_on_any_split),
        cmocka_unit_test(values_are_shared_over_the_step),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
