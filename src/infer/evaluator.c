#include "infer/evaluator.h"

#include <math.h>

#include "base/clock.h"
#include "base/thread.h"
#include "comm/host_values.h"
#include "engine/rank_pass.h"

static tt_status run_micro(struct tt_rank *rank, const struct tt_sampler *sampler, int64_t index,
                           const struct tt_objective_counts *counts, int64_t micro,
                           struct tt_batch_storage *storage, struct tt_by_source *by_source)
{
    tt_status status = TT_OK;
    struct tt_batch batch;
    struct tt_pass pass;
    TT_GO(tt_sampler_batch(sampler, index, micro, rank->mesh.axes[TT_AXIS_DATA].rank, storage, &batch));
    TT_GO(tt_rank_upload(rank, &batch, &pass));
    TT_GO(tt_rank_reference(rank, &pass));
    pass.in.loss_scale = 1.0f;
    TT_GO(tt_executor_forward(rank->executor, &pass));
    TT_GO(tt_rank_add_loss(rank, &batch, counts, &pass));
    TT_GO(tt_by_source_add(by_source, rank, &batch, &pass));
out:
    if (status == TT_ERR_CANCELLED) tt_rank_abandon(rank);
    tt_executor_end(rank->executor);
    return status;
}

/* Values that an objective takes from all micro batches of step `index`. */
static tt_status share(struct tt_rank *rank, const struct tt_sampler *sampler, int64_t index,
                       int64_t micro_count, const struct tt_objective_counts *counts,
                       struct tt_batch_storage *storage)
{
    if (!tt_rank_share_begin(rank)) return TT_OK;
    for (int64_t micro = 0; micro < micro_count; micro++) {
        struct tt_batch batch;
        struct tt_pass pass;
        TT_TRY(tt_sampler_shared(sampler, index, micro, rank->mesh.axes[TT_AXIS_DATA].rank, storage, &batch));
        TT_TRY(tt_rank_upload(rank, &batch, &pass));
        tt_status status = tt_rank_share(rank, &batch, counts, &pass);
        if (status == TT_ERR_CANCELLED) tt_rank_abandon(rank);
        TT_TRY(status);
    }
    return tt_rank_share_end(rank);
}

static bool is_requested(const struct tt_cancel *cancel)
{
    return cancel != NULL && atomic_load_explicit(&cancel->requests, memory_order_relaxed) > 0;
}

/* The ranks stop alike: a request to one of them is one to all. */
static tt_status agree_to_stop(struct tt_rank *rank, const struct tt_cancel *cancel, bool *stopped)
{
    double requests = is_requested(cancel);
    TT_TRY(tt_comm_host_sum(rank->world, &requests, 1));
    *stopped = requests > 0;
    return TT_OK;
}

static tt_status check_cancel(struct tt_rank *rank, const struct tt_cancel *cancel, int64_t done, int64_t all)
{
    if (!is_requested(cancel)) return TT_OK;
    tt_rank_abandon(rank);
    return tt_fail(TT_ERR_CANCELLED, "stopped on request after %lld of %lld batches", (long long)done,
                   (long long)all);
}

tt_status tt_evaluation_poll(struct tt_rank *rank, const struct tt_cancel *cancel, int64_t done, int64_t all,
                             bool *stopped)
{
    return stopped == NULL ? check_cancel(rank, cancel, done, all) : agree_to_stop(rank, cancel, stopped);
}

/* The divisors of the sums of all batches; an objective may read them in each batch. */
static struct tt_objective_counts count_all(const struct tt_sampler *sampler, struct tt_evaluation *result)
{
    struct tt_objective_counts counts = {0};
    for (int64_t s = 0; s < result->steps; s++) {
        struct tt_step_facts facts;
        tt_sampler_step(sampler, s, &facts);
        tt_objective_count(&counts, &facts);
        result->samples += facts.samples;
    }
    result->supervised_tokens = counts.tokens;
    result->groups = counts.groups;
    return counts;
}

tt_status tt_evaluate(struct tt_rank *rank, const struct tt_sampler *sampler, const struct tt_cancel *cancel,
                      bool *stopped, struct tt_batch_storage *storage, struct tt_by_source *by_source,
                      struct tt_evaluation *result)
{
    tt_status status = TT_OK;
    double start = tt_clock_seconds();
    int64_t steps = tt_sampler_steps_per_epoch(sampler);
    double sums[TT_SUM_COUNT];
    struct tt_comm *data = rank->mesh.axes[TT_AXIS_DATA].comm;
    *result = (struct tt_evaluation){.steps = steps};
    TT_GO(tt_rank_clear_sums(rank));
    tt_by_source_clear(by_source);
    struct tt_objective_counts counts = count_all(sampler, result);
    for (int64_t s = 0; s < steps; s++) {
        struct tt_step_facts facts;
        TT_GO(tt_evaluation_poll(rank, cancel, s, steps, stopped));
        if (stopped != NULL && *stopped) return TT_OK;
        tt_sampler_step(sampler, s, &facts);
        TT_GO(share(rank, sampler, s, facts.micro_count, &counts, storage));
        for (int64_t micro = 0; micro < facts.micro_count; micro++)
            TT_GO(run_micro(rank, sampler, s, &counts, micro, storage, by_source));
    }
    TT_GO(tt_rank_read_sums(rank, sums));
    TT_GO(tt_comm_host_sum(data, sums, TT_SUM_COUNT));
    TT_GO(tt_rank_finish_sums(rank, sums));
    TT_GO(tt_by_source_finish(by_source, data));
    tt_objective_metrics(&rank->objective, sums, &counts, NAN, result->metrics);
    result->loss = result->metrics[TT_METRIC_LOSS];
    result->samples = tt_objective_samples(&rank->objective, result->samples);
    result->seconds = tt_clock_seconds() - start;
out:
    if (status != TT_OK) tt_while("evaluating");
    return status;
}
