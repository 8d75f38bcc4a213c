/* Embedding and head gathered in parts: the training is that of the whole matrices to fp32 rounding, on any number of
 * ranks, with any prefetch, level and objective, also where a rank has no tokens; and the pool is smaller. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "base/alloc.h"
#include "checkpoint/load.h"
#include "engine/executor.h"
#include "engine/feed_rows.h"
#include "engine/plan.h"
#include "engine/rank_pass.h"
#include "engine/step.h"
#include "nn/head.h"
#include "support/model_facts.h"
#include "support/model_runner.h"
#include "support/ranks.h"

enum { STEPS = 4, STEP_SAMPLES = 4, SAMPLES = 13 /* the fourth step has one: other ranks have no tokens */ };

/* `ffn` makes the layer that the parts must not exceed. */
struct shape {
    int vocab, ffn, length;
};
static const struct shape small = {700, 24, 24};
static const struct shape rounds = {120011, 9000, 100}; /* several chunks of logits, each over all parts */

struct setup {
    struct shape shape;
    bool split;
    int world;
    int64_t accumulation;
    enum tt_recompute recompute;
    enum tt_prefetch backward_prefetch;
    bool forward_prefetch, dpo;
    tt_dtype dtype;
    bool capped;     /* Gemma 2, whose logits have a soft cap */
    bool inputs;     /* Gemma 4's E sizes: a table for layers in the unit of tied embedding and head */
    bool two_groups; /* HYBRID_SHARD: half of the ranks on each of two machines */
    double label_smoothing, learning_rate;
};

struct outcome {
    struct setup setup;
    double losses[STEPS], norms[STEPS], entropies[STEPS];
    size_t gather_bytes;
    int64_t rows;  /* of the largest micro batch */
    int parts[2];  /* of embedding and head */
    float *logits; /* of each rank's first batch, one after the other; NULL: not wanted */
    int64_t logits_each;
};

struct run {
    struct tt_model_facts model;
    struct tt_dataset *dataset;
    struct tt_sampler *sampler;
    struct tt_plan plan;
    struct tt_rank rank;
    struct tt_gradient_watch watch;
    struct tt_batch_storage storage;
    struct tt_objective objective;
};

static tt_status read_shape(const struct setup *setup, struct tt_model_facts *facts)
{
    static const char inputs[] =
        "\"head_dim\": 8, \"global_head_dim\": 8, \"sliding_window\": 8, \"num_kv_shared_layers\": 1, "
        "\"hidden_size_per_layer_input\": 12, \"layer_types\": [\"full_attention\", \"full_attention\"], "
        "\"vocab_size_per_layer_input\": 700, ";
    char text[1024];
    snprintf(text, sizeof text,
             "{\"model_type\": \"%s\", %s\"vocab_size\": %d, \"hidden_size\": 16, \"intermediate_size\": %d, "
             "\"num_hidden_layers\": 2, \"num_attention_heads\": 2, \"num_key_value_heads\": 1, "
             "\"max_position_embeddings\": 256, \"rms_norm_eps\": 1e-5}",
             setup->inputs   ? "gemma4_text"
             : setup->capped ? "gemma2"
                             : "llama",
             setup->inputs   ? inputs
             : setup->capped ? "\"head_dim\": 8, \"query_pre_attn_scalar\": 8, \"sliding_window\": 8, "
                               "\"final_logit_softcapping\": 0.3, \"tie_word_embeddings\": false, "
                               "\"hidden_activation\": \"gelu_pytorch_tanh\", "
                             : "",
             setup->shape.vocab, setup->shape.ffn);
    return test_facts(text, facts);
}

static tt_status open_run(struct tt_comm *comm, const struct setup *setup, struct run *run)
{
    struct tt_batch_limits limits, none = {0};
    const struct tt_sampler_config sampler = {.micro_batch_size =
                                                  STEP_SAMPLES / setup->accumulation / setup->world,
                                              .world_size = setup->world,
                                              .accumulation = setup->accumulation,
                                              .shuffle = true};
    *run = (struct run){0};
    TT_TRY(read_shape(setup, &run->model));
    TT_TRY(tt_dataset_create_random(SAMPLES * (setup->dpo ? 2 : 1), 5, setup->shape.length,
                                    setup->shape.vocab, 3, &run->dataset));
    TT_TRY(tt_dataset_group(run->dataset, setup->dpo ? 2 : 1));
    TT_TRY(tt_sampler_create(run->dataset, &sampler, &run->sampler));
    TT_TRY(tt_objective_init(setup->dpo ? "dpo" : "sft", &run->objective));
    tt_sampler_limits(run->sampler, 0, STEPS, &limits);
    struct tt_rank_config config = {
        .device = {.kind = "cpu", .threads = 1},
        .world = comm,
        .machine = setup->two_groups ? tt_comm_rank(comm) * 2 / setup->world : 0,
        .local_rank = setup->two_groups ? tt_comm_rank(comm) % (setup->world / 2) : tt_comm_rank(comm),
        .strategy = setup->two_groups ? TT_HYBRID_SHARD : TT_FULL_SHARD,
        .model_facts = &run->model,
        .model_options = {.compute_dtype = setup->dtype,
                          .random_init = true,
                          .lora = {.enabled = true, .r = 4, .alpha = 8, .target_modules = "all-linear"}},
        .objective = &run->objective,
        .limits = limits,
        .train = true,
        .recompute = setup->recompute,
        .backward_prefetch = setup->backward_prefetch,
        .forward_prefetch = setup->forward_prefetch,
        .split_vocabulary = setup->split,
        .reduce_dtype = TT_F32,
    };
    TT_TRY(tt_plan_make(&config, (struct tt_plan_ranks){setup->world, setup->two_groups ? 2 : 1},
                        setup->accumulation, &limits, &none, &run->plan));
    config.levels = run->plan.levels;
    config.workspace_bytes = run->plan.workspace_bytes;
    TT_TRY(tt_rank_init(&config, &run->rank));
    TT_TRY(tt_rank_load(&run->rank, &(struct tt_load_source){.seed = 5}));
    return tt_gradient_watch_init(run->rank.model, &run->watch);
}

static void close_run(struct run *run)
{
    tt_gradient_watch_deinit(&run->watch);
    tt_batch_storage_deinit(&run->storage);
    tt_rank_deinit(&run->rank);
    tt_sampler_destroy(run->sampler);
    tt_dataset_destroy(run->dataset);
}

static tt_status train_steps(struct tt_comm *comm, struct run *run, struct outcome *outcome)
{
    const struct tt_optim_config optim = {.optim = "adamw_torch",
                                          .learning_rate = outcome->setup.learning_rate,
                                          .lr_scheduler_type = "constant",
                                          .adam_beta1 = 0.9,
                                          .adam_beta2 = 0.999,
                                          .adam_epsilon = 1e-8,
                                          .max_grad_norm = 1};
    for (int64_t s = 0; s < STEPS; s++) {
        struct tt_train_step_result result;
        struct tt_feed feed;
        TT_TRY(tt_feed_of_rows(run->sampler, run->rank.mesh.axes[TT_AXIS_DATA].rank, &feed));
        struct tt_train_step_config config = {.optim = &optim,
                                              .feed = &feed,
                                              .seed = 1,
                                              .label_smoothing = outcome->setup.label_smoothing,
                                              .length = {STEPS, STEPS}};
        tt_status status = tt_train_step(&run->rank, &config, s, &run->watch, &result);
        tt_feed_deinit(&feed);
        TT_TRY(status);
        if (tt_comm_rank(comm) > 0) continue;
        outcome->losses[s] = result.loss;
        outcome->norms[s] = result.grad_norm;
        outcome->entropies[s] = result.metrics[1];
    }
    return TT_OK;
}

/* The logits of a rank's part of the first batch. */
static tt_status keep_logits(struct tt_comm *comm, struct run *run, struct outcome *outcome)
{
    struct tt_batch batch;
    struct tt_pass pass;
    tt_status status = TT_OK;
    TT_TRY(
        tt_sampler_batch(run->sampler, 0, 0, run->rank.mesh.axes[TT_AXIS_DATA].rank, &run->storage, &batch));
    TT_TRY(tt_rank_upload(&run->rank, &batch, &pass));
    pass.in.want_logits = true;
    TT_GO(tt_executor_forward(run->rank.executor, &pass));
    tt_tensor logits_NV = tt_pass_result(&run->rank.results, TT_RESULT_LOGITS, 0);
    TEST_RANK_CHECK(tt_tensor_count(logits_NV) == batch.row_count * outcome->setup.shape.vocab);
    TEST_RANK_CHECK(tt_tensor_count(logits_NV) <= outcome->logits_each);
    TT_GO(tt_copy_to_host(run->rank.stream, outcome->logits + tt_comm_rank(comm) * outcome->logits_each,
                          logits_NV.data, tt_tensor_bytes(logits_NV)));
    TT_GO(tt_stream_synchronize(run->rank.stream));
out:
    tt_executor_end(run->rank.executor);
    return status;
}

static tt_status train(struct tt_comm *comm, void *argument)
{
    struct outcome *outcome = argument;
    struct run run;
    struct tt_memory_use use;
    tt_status status = TT_OK;
    TT_GO(open_run(comm, &outcome->setup, &run));
    if (outcome->logits != NULL) {
        status = keep_logits(comm, &run, outcome);
        goto out;
    }
    TT_GO(train_steps(comm, &run, outcome));
    if (tt_comm_rank(comm) == 0) {
        outcome->rows = run.rank.limits.rows;
        tt_device_memory(run.rank.device, &use);
        outcome->gather_bytes = use.peak[TT_PURPOSE_GATHER];
        outcome->parts[0] = tt_unit_part_count(run.rank.units[0]);
        outcome->parts[1] = tt_unit_part_count(run.rank.units[run.rank.model->unit_count - 1]);
    }
out:
    close_run(&run);
    return status;
}

static struct outcome outcome_of(struct setup setup)
{
    struct outcome outcome = {.setup = setup};
    test_ranks(setup.world, train, &outcome);
    return outcome;
}

static void check_same(const struct outcome *whole, const struct outcome *split, double tolerance)
{
    assert_int_equal(whole->parts[0], 0);
    assert_true(split->parts[0] > 1 && split->parts[1] > 1);
    for (int s = 0; s < STEPS; s++)
        if (!(fabs(split->losses[s] - whole->losses[s]) <= tolerance * fabs(whole->losses[s])) ||
            !(fabs(split->norms[s] - whole->norms[s]) <= 100 * tolerance * whole->norms[s]) ||
            !(fabs(split->entropies[s] - whole->entropies[s]) <=
              10 * tolerance * (1 + fabs(whole->entropies[s]))))
            fail_msg("step %d: loss %.9f, norm %.9f, metric %.9f; whole: %.9f, %.9f, %.9f", s + 1,
                     split->losses[s], split->norms[s], split->entropies[s], whole->losses[s],
                     whole->norms[s], whole->entropies[s]);
}

static struct setup plain(struct shape shape)
{
    return (struct setup){.shape = shape,
                          .world = 1,
                          .accumulation = 1,
                          .recompute = TT_RECOMPUTE_AUTO,
                          .backward_prefetch = TT_PREFETCH_PRE,
                          .forward_prefetch = true,
                          .dtype = TT_F32,
                          .learning_rate = 0.01};
}

static void same_training_on_any_ranks(void **state)
{
    (void)state;
    struct outcome whole = outcome_of(plain(small));
    assert_true(whole.losses[0] > 0 && whole.norms[0] > 0 && whole.losses[0] != whole.losses[STEPS - 1]);
    for (int world = 1; world <= 4; world *= 2)
        for (int prefetch = 0; prefetch < 6; prefetch++) {
            struct setup setup = plain(small);
            setup.split = true;
            setup.world = world;
            setup.accumulation = world == 2 ? 2 : 1;
            setup.backward_prefetch = (enum tt_prefetch)(prefetch / 2);
            setup.forward_prefetch = prefetch % 2;
            setup.recompute = prefetch < 3 ? TT_RECOMPUTE_AUTO : TT_RECOMPUTE_NONE;
            struct outcome split = outcome_of(setup);
            check_same(&whole, &split, 2e-6);
        }
}

static void the_pool_has_the_size_of_layers(void **state)
{
    (void)state;
    struct setup setup = plain(small);
    setup.world = 2;
    struct outcome whole = outcome_of(setup);
    setup.split = true;
    struct outcome split = outcome_of(setup), again = outcome_of(setup);
    check_same(&whole, &split, 2e-6);
    assert_true(whole.gather_bytes > 2 * 700 * 16 * sizeof(float));
    assert_true(split.gather_bytes < whole.gather_bytes / 3);
    assert_memory_equal(split.losses, again.losses, sizeof split.losses);
    assert_memory_equal(split.norms, again.norms, sizeof split.norms);
}

/* Ranks have different numbers of rows, so some make rounds over the parts without any. */
static void same_training_over_several_rounds(void **state)
{
    (void)state;
    struct setup setup = plain(rounds);
    struct outcome whole = outcome_of(setup);
    setup.split = true;
    setup.world = 2;
    struct outcome split = outcome_of(setup);
    assert_true(split.rows > tt_head_chunk_rows(rounds.vocab, TT_F32, true));
    check_same(&whole, &split, 2e-6);
}

/* The gradient of the logits waits for backward, where the head takes the parts again; and a reference's pass. */
static void same_preferences(void **state)
{
    (void)state;
    struct setup setup = plain(small);
    setup.dpo = true;
    struct outcome whole = outcome_of(setup);
    setup.split = true;
    for (int world = 1; world <= 4; world *= 2) {
        setup.world = world;
        setup.forward_prefetch = world < 4;
        setup.backward_prefetch = world < 4 ? TT_PREFETCH_PRE : TT_PREFETCH_POST;
        struct outcome split = outcome_of(setup);
        check_same(&whole, &split, 1e-5);
    }
}

static void same_training_in_bfloat16(void **state)
{
    (void)state;
    struct setup setup = plain(small);
    setup.dtype = TT_BF16;
    struct outcome whole = outcome_of(setup);
    setup.split = true;
    setup.world = 2;
    struct outcome split = outcome_of(setup);
    check_same(&whole, &split, 3e-4);
}

static void same_training_with_smoothed_labels(void **state)
{
    (void)state;
    struct setup setup = plain(small);
    struct outcome sharp = outcome_of(setup);
    setup.label_smoothing = 0.2;
    struct outcome whole = outcome_of(setup);
    assert_true(fabs(whole.losses[0] - sharp.losses[0]) > 1e-6);
    setup.split = true;
    setup.world = 2;
    struct outcome split = outcome_of(setup);
    check_same(&whole, &split, 2e-6);
}

static void same_training_with_capped_logits(void **state)
{
    (void)state;
    struct setup setup = plain(small);
    setup.capped = true;
    struct outcome whole = outcome_of(setup);
    setup.split = true;
    for (int world = 1; world <= 4; world *= 2) {
        setup.world = world;
        struct outcome split = outcome_of(setup);
        check_same(&whole, &split, 2e-6);
    }
}

static void same_training_in_two_groups(void **state)
{
    (void)state;
    struct setup setup = plain(small);
    struct outcome whole = outcome_of(setup);
    setup.split = setup.two_groups = true;
    setup.world = 4;
    struct outcome split = outcome_of(setup);
    check_same(&whole, &split, 2e-6);
}

/* The place of the first value that is not finite is found with the parts as with whole matrices. */
static void same_finding(void **state)
{
    (void)state;
    struct tt_error errors[2][2];
    for (int split = 0; split < 2; split++) {
        struct outcome outcome = {.setup = plain(small)};
        outcome.setup.split = split;
        outcome.setup.world = 2;
        outcome.setup.learning_rate = 1e30;
        test_ranks_outcomes(2, train, &outcome, errors[split]);
    }
    assert_int_equal(errors[0][0].status, TT_ERR_DATA);
    assert_non_null(strstr(errors[0][0].message, "it first appeared in the output of model.layers.0"));
    for (int q = 0; q < 2; q++) assert_string_equal(errors[1][q].message, errors[0][q].message);
}

static void same_logits(void **state)
{
    (void)state;
    int64_t each = STEP_SAMPLES * (int64_t)small.length * small.vocab;
    for (int capped = 0; capped < 2; capped++) {
        struct outcome whole = {.setup = plain(small), .logits_each = each}, split;
        whole.setup.capped = capped;
        whole.setup.world = 2;
        split = whole;
        split.setup.split = true;
        whole.logits = tt_calloc(2 * (size_t)each, sizeof *whole.logits);
        split.logits = tt_calloc(2 * (size_t)each, sizeof *split.logits);
        assert_true(whole.logits != NULL && split.logits != NULL);
        test_ranks(2, train, &whole);
        test_ranks(2, train, &split);
        float largest = 0;
        for (int64_t i = 0; i < 2 * each; i++) {
            if (fabsf(whole.logits[i]) > largest) largest = fabsf(whole.logits[i]);
            assert_true(fabsf(split.logits[i] - whole.logits[i]) <= 1e-6f);
        }
        assert_true(largest > 0.01f && whole.logits[each] != 0);
        tt_free(whole.logits);
        tt_free(split.logits);
    }
}

/* Each rank takes the rows of its tokens of the same bytes: the same bits, at every level, also where a rank has no
 * tokens. The tied matrix is whole, in memory of its own. */
static void a_table_for_layers_beside_a_tied_matrix(void **state)
{
    static const enum tt_recompute levels[] = {TT_RECOMPUTE_AUTO, TT_RECOMPUTE_NONE, TT_RECOMPUTE_CHEAP,
                                               TT_RECOMPUTE_EVERY_BLOCK, TT_RECOMPUTE_EVERY_OFFLOAD};
    (void)state;
    for (int world = 1; world <= 4; world *= 2)
        for (size_t level = 0; level < sizeof levels / sizeof *levels; level++) {
            struct setup setup = plain(small);
            setup.inputs = true;
            setup.world = world;
            setup.recompute = levels[level];
            setup.backward_prefetch = (enum tt_prefetch)(level % 3);
            setup.forward_prefetch = level % 2;
            setup.dtype = level % 2 ? TT_BF16 : TT_F32;
            struct outcome whole = outcome_of(setup);
            setup.split = true;
            struct outcome split = outcome_of(setup);
            assert_true(whole.losses[0] > 0 && whole.losses[0] != whole.losses[STEPS - 1]);
            assert_int_equal(whole.parts[0], 0);
            assert_true(split.parts[0] > 1);
            assert_memory_equal(split.losses, whole.losses, sizeof split.losses);
            assert_memory_equal(split.norms, whole.norms, sizeof split.norms);
            if (world > 1) assert_true(split.gather_bytes < whole.gather_bytes / 5 * 3);
        }
}

static void same_logits_of_a_table_for_layers(void **state)
{
    (void)state;
    int64_t each = STEP_SAMPLES * (int64_t)small.length * small.vocab;
    struct outcome whole = {.setup = plain(small), .logits_each = each}, split;
    whole.setup.inputs = true;
    whole.setup.world = 2;
    split = whole;
    split.setup.split = true;
    whole.logits = tt_calloc(2 * (size_t)each, sizeof *whole.logits);
    split.logits = tt_calloc(2 * (size_t)each, sizeof *split.logits);
    assert_true(whole.logits != NULL && split.logits != NULL);
    test_ranks(2, train, &whole);
    test_ranks(2, train, &split);
    assert_true(whole.logits[0] != 0 && whole.logits[each] != 0);
    assert_memory_equal(split.logits, whole.logits, 2 * (size_t)each * sizeof *whole.logits);
    tt_free(whole.logits);
    tt_free(split.logits);
}

static tt_status disagree(struct tt_comm *comm, void *argument)
{
    struct setup setup = *(struct setup *)argument;
    struct run run;
    setup.split = tt_comm_rank(comm) == 1;
    tt_status status = open_run(comm, &setup, &run);
    close_run(&run);
    return status;
}

static void ranks_must_agree(void **state)
{
    (void)state;
    struct setup setup = plain(small);
    struct tt_error errors[2];
    setup.world = 2;
    test_ranks_outcomes(2, disagree, &setup, errors);
    for (int q = 0; q < 2; q++) {
        assert_int_equal(errors[q].status, TT_ERR_USAGE);
        assert_non_null(strstr(errors[q].message, "1 of 2 ranks must gather embedding and head in parts"));
        assert_non_null(strstr(errors[q].hint, "--device_memory"));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(same_training_on_any_ranks),
        cmocka_unit_test(the_pool_has_the_size_of_layers),
        cmocka_unit_test(same_training_over_several_rounds),
        cmocka_unit_test(same_preferences),
        cmocka_unit_test(same_training_in_bfloat16),
        cmocka_unit_test(same_training_with_smoothed_labels),
        cmocka_unit_test(same_training_with_capped_logits),
        cmocka_unit_test(same_training_in_two_groups),
        cmocka_unit_test(same_finding),
        cmocka_unit_test(same_logits),
        cmocka_unit_test(a_table_for_layers_beside_a_tied_matrix),
        cmocka_unit_test(same_logits_of_a_table_for_layers),
        cmocka_unit_test(ranks_must_agree),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
