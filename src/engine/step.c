#include "engine/step.h"

#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "base/thread.h"
#include "comm/host_values.h"
#include "engine/rank_pass.h"
#include "engine/rehearsal.h"

/* Every rank's values that are summed over the ranks after the backward passes; the sums of tt_rank_read_sums first. */
enum {
    REPORT_STOP = TT_SUM_COUNT,
    REPORT_SAVE_FAILED,
    REPORT_ATTENDING_ROWS, /* engine/gradient_watch.h */
    REPORT_COUNT
};

/* Label smoothing applies to cross entropy only: other objectives read log-probabilities. */
static void set_inputs(const struct tt_train_step_config *config, int64_t step_index,
                       const struct tt_step_facts *facts, struct tt_pass_inputs *inputs)
{
    inputs->training = true;
    inputs->gradient = true;
    inputs->dropout_rng =
        tt_rng_derive_index(tt_rng_derive(tt_rng_make(config->seed), "dropout"), (uint64_t)step_index);
    inputs->loss_scale = 1.0f / (float)(facts->supervised_tokens > 0 ? facts->supervised_tokens : 1);
    inputs->label_smoothing = inputs->scales_follow ? 0.0f : (float)config->label_smoothing;
}

static struct tt_objective_counts counts_of(const struct tt_step_facts *facts)
{
    return (struct tt_objective_counts){.tokens = facts->supervised_tokens, .groups = facts->groups};
}

/* The next micro batch travels while the device works on this one. */
static tt_status upload_next(struct tt_rank *rank, struct tt_feed *feed)
{
    const struct tt_detect_batch *batch = tt_rank_takes_ahead(rank) ? tt_feed_ahead(feed) : NULL;
    return batch != NULL ? tt_rank_upload_ahead(rank, batch) : TT_OK;
}

static tt_status run_micro(struct tt_rank *rank, const struct tt_train_step_config *config,
                           int64_t step_index, const struct tt_step_facts *facts, int64_t micro,
                           struct tt_phases *phases, int64_t *attending_rows)
{
    struct tt_micro data;
    struct tt_pass pass;
    struct tt_objective_counts counts = counts_of(facts);
    tt_status status = TT_OK;
    TT_GO(tt_feed_micro(config->feed, rank->mesh.data_rank, step_index, micro, &data));
    *attending_rows += tt_gradient_attending_rows(&data.tokens);
    TT_GO(tt_rank_upload_micro(rank, &data, &pass));
    tt_phases_end(phases, TT_PHASE_DATA);
    TT_GO(tt_rank_reference(rank, &pass));
    set_inputs(config, step_index, facts, &pass.in);
    TT_GO(tt_rank_rehearse(rank, &pass));
    tt_executor_time(rank->executor, phases);
    TT_GO(tt_executor_forward(rank->executor, &pass));
    TT_GO(tt_rank_add_loss(rank, &data.tokens, &counts, &pass));
    tt_phases_end(phases, TT_PHASE_FORWARD);
    bool last = micro == facts->micro_count - 1;
    TT_GO(tt_executor_backward(rank->executor, &pass, last));
    if (!last || step_index + 1 < config->length.total_steps) TT_GO(upload_next(rank, config->feed));
    tt_phases_end(phases, TT_PHASE_DATA);
out:
    if (status == TT_ERR_CANCELLED) tt_rank_abandon(rank);
    tt_executor_end(rank->executor);
    return status;
}

/* Where the first non-finite value was found; "the loss" until a block is found. */
struct finding {
    char where[96];
};

static const struct finding nothing_found = {"the loss"};

static bool is_found(const struct finding *finding)
{
    return strcmp(finding->where, nothing_found.where) != 0;
}

/* All ranks take the finding of the first rank that has one, so that all continue with the next micro batch or none. */
static tt_status share_finding(struct tt_comm *comm, struct finding *finding)
{
    int world = tt_comm_world_size(comm);
    struct finding *all = tt_calloc((size_t)world, sizeof *all);
    if (all == NULL) return TT_ERR_MEMORY;
    tt_status status = tt_comm_host_all_gather(comm, finding, all, sizeof *finding);
    *finding = nothing_found;
    for (int r = 0; r < world && status == TT_OK && !is_found(finding); r++) *finding = all[r];
    tt_free(all);
    return status;
}

/* Runs the step's micro batches forward again to find the first block with a non-finite output. */
static tt_status explain_nonfinite(struct tt_rank *rank, const struct tt_train_step_config *config,
                                   int64_t step_index, const struct tt_step_facts *facts, double loss)
{
    struct finding finding = nothing_found;
    tt_rank_forget_ahead(rank);
    for (int64_t micro = 0; micro < facts->micro_count && !is_found(&finding); micro++) {
        struct tt_micro data;
        struct tt_pass pass;
        TT_TRY(tt_feed_micro(config->feed, rank->mesh.data_rank, step_index, micro, &data));
        TT_TRY(tt_rank_upload_micro(rank, &data, &pass));
        set_inputs(config, step_index, facts, &pass.in);
        TT_TRY(tt_executor_find_nonfinite(rank->executor, &pass, finding.where, sizeof finding.where));
        TT_TRY(share_finding(rank->world, &finding));
    }
    (void)tt_fail(TT_ERR_DATA, "the loss of step %lld is %s; it first appeared in %s",
                  (long long)step_index + 1, isnan(loss) ? "NaN" : "infinite", finding.where);
    tt_hint("lower learning_rate, add warmup_steps, or look at the data of this step; a model whose first "
            "step is not finite has broken weights");
    return tt_comm_agree(rank->world, TT_ERR_DATA); /* all ranks call this: one reports */
}

static tt_status name_nonfinite(struct tt_rank *rank, int64_t step)
{
    double *squares = tt_calloc(rank->model->param_count + 1, sizeof *squares);
    if (squares == NULL) return TT_ERR_MEMORY;
    tt_status status = tt_param_squares(rank, false, squares);
    size_t index = 0;
    while (index < rank->model->param_count && isfinite(squares[index])) index++;
    tt_free(squares);
    if (status != TT_OK) return status;
    if (index < rank->model->param_count)
        (void)tt_fail(TT_ERR_DATA, "the gradient of '%s' is not finite in step %lld",
                      rank->model->params[index]->name, (long long)step + 1);
    else
        (void)tt_fail(TT_ERR_DATA, "the gradient norm of step %lld is not finite", (long long)step + 1);
    return tt_comm_agree(rank->world, TT_ERR_DATA);
}

/* `update`: the members that are equal for all units. */
static tt_status update_unit(struct tt_rank *rank, const struct tt_optim_config *optim, int unit_index,
                             struct tt_optimizer_update update)
{
    struct tt_unit *unit = rank->units[unit_index];
    struct tt_slices slices = tt_unit_slices(unit);
    if (slices.count == 0) return TT_OK;
    update.moments = &rank->moments[unit_index];
    update.master = slices.master;
    update.grad = slices.grad;
    size_t count = tt_unit_run_count(unit);
    tt_stream_mark(rank->stream, "the optimizer's update");
    for (size_t r = 0; r < count;) {
        /* Runs with the same weight decay are updated together; the padding between them is zero and stays zero. */
        struct tt_slice_run first = tt_unit_run(unit, r), last = first;
        for (r++; r < count && tt_unit_run(unit, r).param->weight_decay == first.param->weight_decay; r++)
            last = tt_unit_run(unit, r);
        update.run = (struct tt_slices_run){first.offset, last.offset + last.count - first.offset,
                                            first.param->weight_decay};
        TT_TRY(rank->optimizer->update(rank->stream, optim, &update));
    }
    return tt_unit_masters_changed(unit);
}

static tt_status sum_reports(struct tt_rank *rank, double *report)
{
    TT_TRY(tt_comm_host_sum(rank->world, report, REPORT_COUNT));
    report[TT_SUM_SQUARES] /= rank->mesh.copies; /* every slice was counted by each rank that holds it */
    return TT_OK;
}

tt_status tt_train_step(struct tt_rank *rank, const struct tt_train_step_config *config, int64_t step,
                        struct tt_gradient_watch *watch, struct tt_train_step_result *result)
{
    double report[REPORT_COUNT] = {0};
    int64_t attending_rows = 0;
    struct tt_step_facts facts;
    struct tt_phases phases;
    tt_phases_start(&phases);
    phases.sink = config->phase_sink;
    phases.context = config->phase_context;
    TT_TRY(tt_feed_step(config->feed, step, &facts));
    for (int u = 0; u < rank->model->unit_count; u++) TT_TRY(tt_unit_zero_grad(rank->units[u]));
    TT_TRY(tt_rank_clear_sums(rank));
    for (int64_t micro = 0; micro < facts.micro_count; micro++)
        TT_TRY(run_micro(rank, config, step, &facts, micro, &phases, &attending_rows));
    TT_TRY(tt_shard_context_join(rank->shard));
    for (int u = 0; u < rank->model->unit_count; u++) {
        struct tt_slices slices = tt_unit_slices(rank->units[u]);
        TT_TRY(tt_rank_add_squares(rank, slices.grad, slices.count));
    }
    tt_phases_end(&phases, TT_PHASE_REDUCE);
    TT_TRY(tt_rank_read_sums(rank, report)); /* the only wait of the host in a step */
    tt_phases_end(&phases, TT_PHASE_DEVICE);
    if (config->cancel != NULL)
        report[REPORT_STOP] = atomic_load_explicit(&config->cancel->requests, memory_order_relaxed) > 0;
    report[REPORT_SAVE_FAILED] = config->save_failed;
    report[REPORT_ATTENDING_ROWS] = (double)attending_rows;
    TT_TRY(sum_reports(rank, report));
    tt_phases_end(&phases, TT_PHASE_RANKS);

    struct tt_objective_counts counts = counts_of(&facts);
    *result = (struct tt_train_step_result){
        .facts = facts,
        .grad_norm = sqrt(report[TT_SUM_SQUARES]),
        .learning_rate =
            config->optim->learning_rate * tt_schedule_factor(config->optim, step, config->length),
        .stop_requested = report[REPORT_STOP] > 0,
        .save_failed = report[REPORT_SAVE_FAILED] > 0,
    };
    tt_objective_metrics(&rank->objective, report, &counts, 0.0, result->metrics);
    result->loss = result->metrics[TT_METRIC_LOSS];
    if (!isfinite(result->loss)) return explain_nonfinite(rank, config, step, &facts, result->loss);
    if (!isfinite(result->grad_norm)) return name_nonfinite(rank, step);
    struct tt_gradient_chances chances = {facts.supervised_tokens, (int64_t)report[REPORT_ATTENDING_ROWS],
                                          result->loss};
    TT_TRY(tt_gradient_watch_step(watch, rank, &chances));

    /* torch.nn.utils.clip_grad_norm_: coefficient max_norm / (norm + 1e-6), at most 1. */
    double max_norm = config->optim->max_grad_norm;
    double clip = max_norm > 0.0 ? max_norm / (result->grad_norm + 1e-6) : 1.0;
    struct tt_optimizer_update update = {
        .lr = result->learning_rate,
        .grad_scale = (float)(clip < 1.0 ? clip : 1.0),
        .step = step + 1,
    };
    tt_phases_end(&phases, TT_PHASE_OPTIMIZER);
    if (config->before_update != NULL) TT_TRY(config->before_update(config->context));
    tt_phases_end(&phases, TT_PHASE_SAVE);
    for (int u = 0; u < rank->model->unit_count; u++) TT_TRY(update_unit(rank, config->optim, u, update));
    TT_TRY(tt_shard_context_publish(rank->shard));
    tt_phases_end(&phases, TT_PHASE_OPTIMIZER);
    result->phases = phases;
    return TT_OK;
}
