/* A rank on the plan device: the memory and the time of a step. */
#include <string.h>

#include "backend/chips.h"
#include "backend/plan/plan.h"
#include "base/alloc.h"
#include "engine/plan_impl.h"
#include "engine/rank_pass.h"
#include "engine/whole.h"

/* Sequence borders of the largest batch, [2][sequences + 1]: as many sequences of full length as its tokens, or its
 * keys, make; then those of the tokens that are a sequence's own, where each has the same share of its keys. */
static int32_t *make_borders(const struct tt_batch_limits *limits)
{
    size_t count = (size_t)limits->sequences + 1;
    int64_t keys = limits->copies > 0 ? tt_batch_limits_keys(limits) : limits->tokens;
    int32_t *borders = tt_calloc(2 * count, sizeof *borders), *own = borders + count;
    if (borders == NULL) return NULL;
    for (int64_t b = 0; b < limits->sequences; b++) {
        int64_t next = borders[b] + limits->length;
        borders[b + 1] = (int32_t)(next < keys ? next : keys);
    }
    borders[limits->sequences] = (int32_t)keys;
    for (size_t b = 0; b < count && keys > 0; b++) own[b] = (int32_t)(borders[b] * limits->tokens / keys);
    return borders;
}

/* Counts what each block leaves in the workspace, and how long it computes. */
struct counter {
    const struct tt_rank *rank;
    struct tt_plan_work *work;
    size_t bytes;
    double seconds;
};

static void begin_count(void *context)
{
    struct counter *counter = context;
    counter->bytes = tt_workspace_mark(counter->rank->workspace);
    counter->seconds = tt_plan_work_seconds(counter->rank->device);
}

static void end_count(void *context, int block, bool backward)
{
    struct counter *counter = context;
    struct tt_plan_work *work = &counter->work[block];
    double passed = tt_plan_work_seconds(counter->rank->device) - counter->seconds;
    work->seconds += passed;
    if (backward) return;
    work->forward = passed;
    work->kept = tt_workspace_mark(counter->rank->workspace) - counter->bytes;
}

static tt_status run_pass(struct tt_rank *rank, const struct tt_batch_limits *limits, bool train,
                          size_t *kept_bytes)
{
    if (tt_batch_limits_are_empty(limits)) return TT_OK;
    tt_status status = TT_OK;
    struct tt_pass pass;
    int32_t *borders = make_borders(limits);
    if (borders == NULL) return TT_ERR_MEMORY;
    const struct tt_batch tokens = {
        .token_count = limits->tokens,
        .sequence_count = limits->sequences,
        .max_length = limits->length,
        .cu_seqlens = borders + limits->sequences + 1,
        .branches = {.key_count = limits->copies > 0 ? tt_batch_limits_keys(limits) : 0,
                     .cu_keys = borders,
                     .copies = limits->copies},
        .row_count = limits->rows};
    TT_GO(tt_rank_upload(rank, &tokens, &pass));
    TT_GO(tt_rank_attach_largest(rank, limits));
    if (tt_rank_share_begin(rank)) TT_GO(tt_rank_share(rank, &tokens, NULL, &pass));
    TT_GO(tt_rank_reference(rank, &pass));
    pass.in.training = train;
    pass.in.gradient = train;
    pass.in.want_logits = !train && rank->objective.ops->evaluates_outputs;
    TT_GO(tt_rank_balance_begin(rank, &pass));
    TT_GO(tt_executor_forward(rank->executor, &pass));
    TT_GO(tt_rank_balance_end(rank, &pass, 1));
    if (train) *kept_bytes = tt_workspace_mark(rank->workspace);
    if (train) TT_GO(tt_executor_backward(rank->executor, &pass, true));
out:
    tt_executor_end(rank->executor);
    tt_free(borders);
    return status;
}

/* The rest of a step: gradients are zeroed, summed and applied. */
static tt_status run_update(const struct tt_plan_attempt *attempt, struct tt_rank *rank)
{
    struct tt_optim_config optim = {.adam_beta1 = 0.9, .adam_beta2 = 0.999, .adam_epsilon = 1e-8};
    if (attempt->rank.optim != NULL) optim = *attempt->rank.optim;
    TT_TRY(tt_shard_context_join(rank->shard));
    TT_TRY(tt_whole_update(rank, &optim, (struct tt_moments_step){.grad_scale = 1.0f, .step = 1}));
    for (int u = 0; u < rank->model->unit_count; u++) {
        struct tt_slices slices = tt_unit_slices(rank->units[u]);
        if (slices.count == 0) continue;
        TT_TRY(tt_unit_zero_grad(rank->units[u]));
        const struct tt_moments_step update = {
            .master = slices.master,
            .grad = slices.grad,
            .grad_scale = 1.0f,
            .step = 1,
        };
        TT_TRY(tt_moments_update(rank->stream, rank->optimizer, &optim, &rank->moments[u], &update));
        TT_TRY(tt_unit_masters_changed(rank->units[u]));
    }
    return TT_OK;
}

/* Runs one micro step and multiplies its time; the optimizer runs once. State in host memory crosses the link both
 * ways. */
static tt_status run_step(const struct tt_plan_attempt *attempt, struct tt_rank *rank, struct tt_plan *plan)
{
    /* Units that stay whole are gathered before the first step. */
    TT_TRY(tt_rank_refresh(rank));
    TT_TRY(tt_stream_synchronize(rank->stream));
    double start = tt_plan_seconds(rank->device);
    struct counter counter = {.rank = rank, .work = attempt->work};
    const struct tt_block_watch watch = {begin_count, end_count, &counter};
    tt_executor_watch(rank->executor, attempt->work != NULL ? &watch : NULL);
    tt_status status = run_pass(rank, &attempt->train, true, &plan->kept_bytes);
    tt_executor_watch(rank->executor, NULL);
    TT_TRY(status);
    TT_TRY(tt_stream_synchronize(rank->stream));
    double passed = tt_plan_seconds(rank->device);
    TT_TRY(run_update(attempt, rank));
    double updated = tt_plan_seconds(rank->device);
    plan->step_seconds = (passed - start) * (double)attempt->micro_steps + (updated - passed);
    const struct tt_chip *chip = tt_device_chip(rank->device);
    if (rank->moments_in_host && !tt_device_is_host(rank->device))
        for (int u = 0; u < rank->model->unit_count; u++)
            plan->step_seconds += 2.0 * (double)rank->moments[u].bytes / chip->host_bytes_per_second;
    return TT_OK;
}

/* Communicators of ranks that do not exist. */
struct groups {
    struct tt_comm *world, *shard;
    struct tt_comm *replicas; /* NULL unless HYBRID_SHARD */
};

static tt_status run_rank(const struct tt_plan_attempt *attempt, const struct groups *groups,
                          struct tt_plan *plan)
{
    tt_status status = TT_OK;
    struct tt_rank rank = {0};
    struct tt_rank_config config = attempt->rank;
    config.world = groups->world;
    config.shard_comm = groups->shard;
    config.replicate_comm = groups->replicas;
    config.levels = plan->levels;
    plan->kept_bytes = 0;
    plan->step_seconds = 0.0;
    TT_GO(tt_rank_init(&config, &rank));
    plan->trainable_count = rank.model->trainable_param_count;
    plan->param_count = rank.model->base_param_count + rank.model->adapter_param_count;
    if (config.train) TT_GO(run_step(attempt, &rank, plan));
    TT_GO(run_pass(&rank, &attempt->eval, false, NULL));
    plan->workspace_bytes = tt_workspace_peak(rank.workspace);
    plan->attention_bytes = tt_workspace_largest(rank.workspace, "attention scratch");
    plan->logits_bytes = tt_workspace_largest(rank.workspace, "chunk of logits");
    tt_device_memory(rank.device, &plan->memory);
    /* The workspace is unlimited and empty on the plan device: its high-water mark is the planned size. */
    plan->memory.peak[TT_PURPOSE_ACTIVATIONS] = plan->workspace_bytes + config.reserved_bytes;
    if (plan->is_host) plan->memory.peak[TT_PURPOSE_SCRATCH] = tt_host_scratch_bytes(plan->threads);
    if (!plan->is_host && config.across_processes)
        plan->memory.peak[TT_PURPOSE_COMM] += tt_device_chip(rank.device)->collectives_bytes;
    plan->memory.total_peak = 0;
    for (int p = 0; p < TT_PURPOSE_COUNT; p++) plan->memory.total_peak += plan->memory.peak[p];
out:
    tt_rank_deinit(&rank);
    return status;
}

static tt_status make_groups(const struct tt_plan_attempt *attempt, struct groups *groups)
{
    bool hybrid = attempt->rank.strategy == TT_HYBRID_SHARD;
    int machines = attempt->ranks.machines, local = (attempt->ranks.count + machines - 1) / machines;
    int world = hybrid ? local : attempt->ranks.count, split = tt_axes_data_size(&attempt->rank.axes, world);
    TT_TRY(tt_comm_create_planned(world, local, &groups->world));
    TT_TRY(tt_comm_create_planned(split, split < local ? split : local, &groups->shard));
    return hybrid ? tt_comm_create_planned(machines, 1, &groups->replicas) : TT_OK;
}

tt_status tt_plan_run(const struct tt_plan_attempt *attempt, struct tt_plan *plan)
{
    tt_status status = TT_OK;
    struct groups groups = {0};
    plan->split_vocabulary = attempt->rank.split_vocabulary;
    plan->page_moments = attempt->rank.page_moments;
    plan->unsharded_blocks = attempt->rank.unsharded_blocks > 0 ? attempt->rank.unsharded_blocks : 0;
    plan->expert_parallel = attempt->rank.expert_parallel;
    TT_GO(make_groups(attempt, &groups));
    status = run_rank(attempt, &groups, plan);
out:
    if (status != TT_OK) tt_while("planning the memory of a rank");
    if (status == TT_ERR_MEMORY) tt_hint("make the batch smaller, or its rows shorter");
    tt_comm_destroy(groups.replicas);
    tt_comm_destroy(groups.shard);
    tt_comm_destroy(groups.world);
    plan->fits = plan->limit_bytes == 0 || tt_plan_need(plan) <= plan->limit_bytes;
    return status;
}
