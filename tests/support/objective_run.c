#include "support/objective_run.h"

#include "checkpoint/load.h"
#include "support/model_runner.h"

enum { VOCAB_MAX = 64 };

struct tt_model_options test_lora(tt_dtype dtype)
{
    return (struct tt_model_options){
        .compute_dtype = dtype,
        .random_init = true,
        .lora = {.enabled = true, .r = 4, .alpha = 8, .dropout = 0.1, .target_modules = "all-linear"}};
}

tt_status test_open_run(struct test_run *run, const struct test_setup *setup)
{
    struct tt_batch_limits limits, none = {0};
    int world = setup->comm != NULL ? tt_comm_world_size(setup->comm) : 1;
    int64_t accumulation = setup->accumulation > 0 ? setup->accumulation : 2;
    const struct tt_sampler_config sampler = {.micro_batch_size = TEST_STEP_UNITS / accumulation / world,
                                              .world_size = world,
                                              .accumulation = accumulation,
                                              .shuffle = true};
    *run = (struct test_run){0};
    tt_runner_read_config(TT_TEST_ROOT "/golden/llama2/model", NULL, &run->model);
    TT_TRY(tt_dataset_create_random(TEST_SAMPLES, 5, TEST_LENGTH, VOCAB_MAX, 3, &run->dataset));
    TT_TRY(tt_dataset_group(run->dataset, setup->group_size));
    if (setup->prepare != NULL) TT_TRY(setup->prepare(run->dataset));
    TT_TRY(tt_sampler_create(run->dataset, &sampler, &run->sampler));
    tt_sampler_limits(run->sampler, 0, TEST_STEPS, &limits);
    if (setup->comm == NULL) TT_TRY(tt_comm_create_self(&run->comm));
    struct tt_rank_config config = {
        .device = {.kind = "cpu", .threads = 1},
        .world = setup->comm != NULL ? setup->comm : run->comm,
        .strategy = TT_FULL_SHARD,
        .model_facts = &run->model,
        .model_options = setup->options,
        .objective = setup->objective,
        .limits = limits,
        .attached = setup->attached,
        .train = !setup->evaluates,
        .recompute = TT_RECOMPUTE_AUTO,
        .backward_prefetch = TT_PREFETCH_PRE,
        .reduce_dtype = TT_F32,
    };
    TT_TRY(tt_plan_make(&config, (struct tt_plan_ranks){world, 1}, accumulation, &limits, &none, &run->plan));
    config.levels = run->plan.levels;
    config.workspace_bytes = run->plan.workspace_bytes;
    TT_TRY(tt_rank_init(&config, &run->rank));
    TT_TRY(tt_rank_load(&run->rank, &(struct tt_load_source){.seed = 5}));
    return tt_gradient_watch_init(run->rank.model, &run->watch);
}

void test_close_run(struct test_run *run)
{
    tt_gradient_watch_deinit(&run->watch);
    tt_rank_deinit(&run->rank);
    tt_comm_destroy(run->comm);
    tt_sampler_destroy(run->sampler);
    tt_dataset_destroy(run->dataset);
}

tt_status test_train_step(struct test_run *run, int64_t index, struct tt_train_step_result *result)
{
    static const struct tt_optim_config optim = {.optim = "adamw_torch",
                                                 .learning_rate = 0.01,
                                                 .lr_scheduler_type = "constant",
                                                 .adam_beta1 = 0.9,
                                                 .adam_beta2 = 0.999,
                                                 .adam_epsilon = 1e-8,
                                                 .max_grad_norm = 1};
    struct tt_feed feed;
    TT_TRY(tt_feed_of_rows(run->sampler, run->rank.mesh.axes[TT_AXIS_DATA].rank, &feed));
    struct tt_train_step_config config = {
        .optim = &optim, .feed = &feed, .seed = 1, .length = {TEST_STEPS, TEST_STEPS}};
    tt_status status = tt_train_step(&run->rank, &config, index, &run->watch, result);
    tt_feed_deinit(&feed);
    return status;
}
