/* Columns of values that an objective reads (objective/objective.h): they follow their rows over any split, travel to
 * the device when they are asked for, and data without them is refused. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "engine/rank_pass.h"
#include "support/must.h"
#include "support/objective_run.h"
#include "support/ranks.h"

/* A row's value is the token that it predicts, negative: it stands at that token. A sequence's weight follows from its
 * sample. */
static float weight_of(int64_t sample)
{
    return 0.5f + (float)(sample % 3);
}

static tt_status weigh_by_column(const struct tt_objective *objective, const struct tt_objective_rows *rows)
{
    const struct tt_batch *batch = rows->batch;
    const float *weights = tt_batch_column(batch, "weight", TT_PER_SEQUENCE),
                *predicted = tt_batch_column(batch, "predicted", TT_PER_ROW);
    int64_t n = 0;
    (void)objective;
    for (int64_t s = 0; s < batch->sequence_count; s++)
        for (int64_t end = tt_objective_rows_end(batch, s, n); n < end; n++) {
            if (weights[s] != weight_of(batch->row_keys[batch->rows[n]] >> 24) ||
                predicted[n] != -(float)batch->labels[n])
                return tt_fail(TT_ERR_DATA, "the columns are those of other rows");
            rows->scale_N[n] = weights[s] / (float)rows->counts->tokens;
            rows->sums[0] -= (double)(weights[s] * rows->logp_N[n]);
            rows->sums[1] += (double)weights[s];
        }
    return TT_OK;
}

static const struct tt_metric weight_metrics[] = {
    {"loss", 0, TT_OVER_TOKENS, TT_BETTER_SMALLER},
    {"weight", 1, TT_OVER_TOKENS, TT_BETTER_NONE},
};

static const struct tt_objective_column weight_columns[] = {
    {"weight", TT_PER_SEQUENCE, false},
    {"predicted", TT_PER_ROW, true},
    {.name = NULL},
};

static const struct tt_objective by_columns = {.ops = &(const struct tt_objective_ops){
                                                   .name = "by columns",
                                                   .metrics = weight_metrics,
                                                   .metric_count = 2,
                                                   .columns = weight_columns,
                                                   .rows = weigh_by_column,
                                               }};

static const struct tt_objective_column host_columns[] = {
    {"weight", TT_PER_SEQUENCE, false},
    {"predicted", TT_PER_ROW, false},
    {.name = NULL},
};

/* The same without a copy on the device. */
static const struct tt_objective on_host = {.ops = &(const struct tt_objective_ops){
                                                .name = "on the host",
                                                .metrics = weight_metrics,
                                                .metric_count = 2,
                                                .columns = host_columns,
                                                .rows = weigh_by_column,
                                            }};

static tt_status add_columns(struct tt_dataset *dataset)
{
    static float weights[TEST_SAMPLES], predicted[TEST_SAMPLES * TEST_LENGTH];
    size_t at = 0;
    for (size_t s = 0; s < TEST_SAMPLES; s++) {
        struct tt_sample sample = tt_dataset_sample(dataset, s);
        weights[s] = weight_of((int64_t)s);
        for (int32_t t = 0; t < sample.count; t++, at++) predicted[at] = -(float)sample.ids[t];
    }
    TT_TRY(tt_dataset_add_column(dataset, "weight", TT_PER_SEQUENCE, weights));
    return tt_dataset_add_column(dataset, "predicted", TT_PER_ROW, predicted);
}

struct curve {
    int world;
    int64_t accumulation;
    double metrics[TEST_STEPS][TT_OBJECTIVE_METRICS_MAX];
};

/* Losses of a training whose rows weigh what a column says. */
static tt_status train_by_columns(struct tt_comm *comm, void *argument)
{
    struct curve *curve = argument;
    struct test_run run;
    struct tt_model_options options = test_lora(TT_F32);
    tt_status status = TT_OK;
    options.lora.dropout = 0;
    TT_GO(test_open_run(&run, &(struct test_setup){.objective = &by_columns,
                                                   .options = options,
                                                   .group_size = 1,
                                                   .accumulation = curve->accumulation,
                                                   .comm = comm,
                                                   .prepare = add_columns}));
    for (int64_t s = 0; s < TEST_STEPS; s++) {
        struct tt_train_step_result result;
        TT_GO(test_train_step(&run, s, &result));
        if (tt_comm_rank(comm) == 0) memcpy(curve->metrics[s], result.metrics, sizeof result.metrics);
    }
out:
    test_close_run(&run);
    return status;
}

static void columns_follow_their_rows_on_any_split(void **state)
{
    (void)state;
    struct curve curves[] = {
        {.world = 1, .accumulation = 1}, {.world = 1, .accumulation = 4}, {.world = 2, .accumulation = 2}};
    for (int i = 0; i < 3; i++) test_ranks(curves[i].world, train_by_columns, &curves[i]);
    for (int s = 0; s < TEST_STEPS; s++) {
        double weight = curves[0].metrics[s][1];
        assert_true(weight > 0.5 && weight < 2.5);
        for (int i = 1; i < 3; i++) {
            assert_true(curves[i].metrics[s][1] == weight);
            assert_true(fabs(curves[i].metrics[s][0] - curves[0].metrics[s][0]) < 1e-5);
        }
    }
}

/* The columns that the objective wants on the device are there, and planned for; no others are. */
static void columns_travel_when_asked_for(void **state)
{
    (void)state;
    struct test_run run, other;
    struct tt_feed feed;
    struct tt_micro micro;
    struct tt_pass pass;
    struct tt_step_facts facts;
    const struct test_setup setup = {
        .objective = &by_columns, .options = test_lora(TT_F32), .group_size = 1, .prepare = add_columns};
    test_must(test_open_run(&run, &setup));
    test_must(tt_feed_of_rows(run.sampler, 0, &feed));
    test_must(tt_feed_step(&feed, 0, &facts));
    for (int64_t m = 0; m < facts.micro_count; m++) {
        test_must(tt_feed_micro(&feed, 0, m, &micro));
        test_must(tt_rank_upload_micro(&run.rank, &micro, &pass));
        tt_tensor values = tt_device_batch_column(pass.in.batch, "predicted");
        assert_true(values.dtype == TT_F32 && values.dims[0] == micro.tokens.row_count);
        assert_memory_equal(values.data, tt_batch_column(&micro.tokens, "predicted", TT_PER_ROW),
                            (size_t)values.dims[0] * sizeof(float));
        assert_true(tt_tensor_is_empty(tt_device_batch_column(pass.in.batch, "weight")));
    }
    tt_feed_deinit(&feed);
    struct test_setup plain = setup;
    plain.objective = &on_host;
    test_must(test_open_run(&other, &plain));
    assert_true(run.plan.memory.peak[TT_PURPOSE_BATCH] > other.plan.memory.peak[TT_PURPOSE_BATCH]);
    test_close_run(&other);
    test_close_run(&run);
}

static void a_missing_column_is_named(void **state)
{
    (void)state;
    struct test_run run;
    struct tt_train_step_result result;
    test_must(test_open_run(
        &run, &(struct test_setup){.objective = &by_columns, .options = test_lora(TT_F32), .group_size = 1}));
    assert_int_equal(test_train_step(&run, 0, &result), TT_ERR_DATA);
    assert_string_equal(tt_error_last()->message, "objective 'by columns' reads the column 'weight', one "
                                                  "value a sequence, and the data has none");
    test_close_run(&run);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(columns_follow_their_rows_on_any_split),
        cmocka_unit_test(columns_travel_when_asked_for),
        cmocka_unit_test(a_missing_column_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
