#include "engine/step.h"

#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "base/thread.h"
#include "comm/host_values.h"
#include "engine/rank_pass.h"
#include "engine/whole.h"

/* Every rank's values that are summed over the ranks after the backward passes; the sums of tt_rank_read_sums first. */
enum {
    REPORT_ATTENDING_ROWS = TT_SUM_COUNT, /* engine/gradient_watch.h */
    REPORT_STOP,
    REPORT_SAVE_FAILED,
    REPORT_COUNT
};

/* One step while it runs. */
struct step {
    struct tt_rank *rank;
    const struct tt_train_step_config *config;
    int64_t index; /* from 0 */
    struct tt_step_facts facts;
    struct tt_objective_counts counts;
    struct tt_phases phases;
    int64_t attending_rows; /* of this rank */
};

/* ---- Forward and backward ---- */

/* Label smoothing applies to cross entropy only: other objectives read log-probabilities. */
static void set_inputs(const struct step *step, struct tt_pass_inputs *inputs)
{
    struct tt_rng dropout = tt_rng_derive(tt_rng_make(step->config->seed), "dropout");
    int64_t supervised = step->facts.supervised;
    inputs->training = true;
    inputs->gradient = true;
    inputs->dropout_rng = tt_rng_derive_index(dropout, (uint64_t)step->index);
    inputs->loss_scale = 1.0f / (float)(supervised > 0 ? supervised : 1);
    inputs->label_smoothing = inputs->scales_follow ? 0.0f : (float)step->config->label_smoothing;
    inputs->embedding_noise = (float)step->config->embedding_noise;
}

/* The next micro batch travels while the device works on this one. */
static tt_status upload_next(struct tt_rank *rank, struct tt_feed *feed)
{
    struct tt_micro next;
    bool made = tt_rank_takes_ahead(rank) && tt_feed_ahead(feed, &next);
    return made ? tt_rank_upload_ahead(rank, &next) : TT_OK;
}

static tt_status run_micro(struct step *step, int64_t micro)
{
    struct tt_rank *rank = step->rank;
    struct tt_feed *feed = step->config->feed;
    struct tt_micro data;
    struct tt_pass pass;
    tt_status status = TT_OK;
    TT_GO(tt_feed_micro(feed, step->index, micro, &data));
    step->attending_rows += tt_gradient_attending_rows(&data.tokens);
    TT_GO(tt_rank_upload_micro(rank, &data, &pass));
    tt_phases_end(&step->phases, TT_PHASE_DATA);
    TT_GO(tt_rank_reference(rank, &pass));
    set_inputs(step, &pass.in);
    TT_GO(tt_rank_balance_begin(rank, &pass));
    TT_GO(tt_rank_prepare(rank, &pass));
    tt_executor_time(rank->executor, &step->phases);
    TT_GO(tt_executor_forward(rank->executor, &pass));
    TT_GO(tt_rank_add_loss(rank, &data.tokens, &step->counts, &pass));
    TT_GO(tt_rank_balance_end(rank, &pass, step->facts.micro_count));
    tt_phases_end(&step->phases, TT_PHASE_FORWARD);
    bool last = micro == step->facts.micro_count - 1;
    TT_GO(tt_executor_backward(rank->executor, &pass, last));
    if (!last || step->index + 1 < step->config->length.total_steps) TT_GO(upload_next(rank, feed));
    tt_phases_end(&step->phases, TT_PHASE_DATA);
out:
    if (status == TT_ERR_CANCELLED) tt_rank_abandon(rank);
    tt_executor_end(rank->executor);
    return status;
}

/* The micro batches run once before those of the gradients. */
static tt_status share_values(struct step *step)
{
    struct tt_rank *rank = step->rank;
    for (int64_t micro = 0; micro < step->facts.micro_count; micro++) {
        struct tt_micro data;
        struct tt_pass pass;
        TT_TRY(tt_feed_shared(step->config->feed, step->index, micro, &data));
        TT_TRY(tt_rank_upload_micro(rank, &data, &pass));
        tt_phases_end(&step->phases, TT_PHASE_DATA);
        tt_status status = tt_rank_share(rank, &data.tokens, &step->counts, &pass);
        if (status == TT_ERR_CANCELLED) tt_rank_abandon(rank);
        TT_TRY(status);
        tt_phases_end(&step->phases, TT_PHASE_FORWARD);
    }
    return tt_rank_share_end(rank);
}

/* Runs all micro batches: the gradient slices then have the sums over the ranks, the device the sums of the step. */
static tt_status make_gradients(struct step *step)
{
    struct tt_rank *rank = step->rank;
    for (int u = 0; u < rank->model->unit_count; u++) TT_TRY(tt_unit_zero_grad(rank->units[u]));
    TT_TRY(tt_rank_clear_sums(rank));
    if (tt_rank_share_begin(rank)) TT_TRY(share_values(step));
    for (int64_t micro = 0; micro < step->facts.micro_count; micro++) TT_TRY(run_micro(step, micro));
    TT_TRY(tt_shard_context_join(rank->shard));
    for (int u = 0; u < rank->model->unit_count; u++) {
        struct tt_slices slices = tt_unit_slices(rank->units[u]);
        TT_TRY(tt_rank_add_squares(rank, slices.grad, slices.count));
    }
    tt_phases_end(&step->phases, TT_PHASE_REDUCE);
    return TT_OK;
}

/* A request to one rank is one to all, also to those that train on the same samples. */
static tt_status sum_requests(struct tt_rank *rank, double *report)
{
    bool shared = rank->mesh.axes[TT_AXIS_DATA].size < tt_comm_world_size(rank->world);
    return shared ? tt_comm_host_sum(rank->world, report + REPORT_STOP, REPORT_COUNT - REPORT_STOP) : TT_OK;
}

/* Reads the sums of this rank and adds those of all others. */
static tt_status sum_reports(struct step *step, double report[REPORT_COUNT])
{
    struct tt_rank *rank = step->rank;
    const struct tt_cancel *cancel = step->config->cancel;
    TT_TRY(tt_rank_read_sums(rank, report)); /* the only wait of the host in a step */
    tt_phases_end(&step->phases, TT_PHASE_DEVICE);
    report[REPORT_STOP] = cancel != NULL && atomic_load_explicit(&cancel->requests, memory_order_relaxed) > 0;
    report[REPORT_SAVE_FAILED] = step->config->save_failed;
    report[REPORT_ATTENDING_ROWS] = (double)step->attending_rows;
    TT_TRY(tt_comm_host_sum(rank->mesh.axes[TT_AXIS_DATA].comm, report, REPORT_COUNT));
    TT_TRY(sum_requests(rank, report));
    report[TT_SUM_SQUARES] /= rank->mesh.copies; /* every slice was counted by each rank that holds it */
    tt_phases_end(&step->phases, TT_PHASE_RANKS);
    return TT_OK;
}

/* ---- Values that are not finite ---- */

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
static tt_status explain_nonfinite(struct step *step, double loss)
{
    struct tt_rank *rank = step->rank;
    struct finding finding = nothing_found;
    tt_rank_forget_ahead(rank);
    for (int64_t micro = 0; micro < step->facts.micro_count && !is_found(&finding); micro++) {
        struct tt_micro data;
        struct tt_pass pass;
        TT_TRY(tt_feed_micro(step->config->feed, step->index, micro, &data));
        TT_TRY(tt_rank_upload_micro(rank, &data, &pass));
        set_inputs(step, &pass.in);
        TT_TRY(tt_executor_find_nonfinite(rank->executor, &pass, finding.where, sizeof finding.where));
        TT_TRY(share_finding(rank->world, &finding));
    }
    (void)tt_fail(TT_ERR_DATA, "the loss of step %lld is %s; it first appeared in %s",
                  (long long)step->index + 1, isnan(loss) ? "NaN" : "infinite", finding.where);
    tt_hint("lower learning_rate, add warmup_steps, or look at the data of this step; a model whose first "
            "step is not finite has broken weights");
    return tt_comm_agree(rank->world, TT_ERR_DATA); /* all ranks call this: one reports */
}

static tt_status name_nonfinite(const struct step *step)
{
    struct tt_rank *rank = step->rank;
    double *squares = tt_calloc(rank->model->param_count + 1, sizeof *squares);
    if (squares == NULL) return TT_ERR_MEMORY;
    tt_status status = tt_param_squares(rank, false, squares);
    size_t index = 0;
    while (index < rank->model->param_count && isfinite(squares[index])) index++;
    tt_free(squares);
    if (status != TT_OK) return status;
    if (index < rank->model->param_count)
        (void)tt_fail(TT_ERR_DATA, "the gradient of '%s' is not finite in step %lld",
                      rank->model->params[index]->name, (long long)step->index + 1);
    else
        (void)tt_fail(TT_ERR_DATA, "the gradient norm of step %lld is not finite",
                      (long long)step->index + 1);
    return tt_comm_agree(rank->world, TT_ERR_DATA);
}

/* ---- The update ---- */

/* `update`: the members that are equal for all units. */
static tt_status update_unit(struct tt_rank *rank, const struct tt_optim_config *optim, int u,
                             struct tt_moments_step update)
{
    struct tt_slices slices = tt_unit_slices(rank->units[u]);
    if (slices.count == 0) return TT_OK;
    update.master = slices.master;
    update.grad = slices.grad;
    tt_stream_mark(rank->stream, "the optimizer's update");
    TT_TRY(tt_moments_update(rank->stream, rank->optimizer, optim, &rank->moments[u], &update));
    return tt_unit_masters_changed(rank->units[u]);
}

/* torch.nn.utils.clip_grad_norm_: coefficient max_norm / (norm + 1e-6), at most 1. */
static float clip_factor(double max_norm, double norm)
{
    double factor = max_norm > 0.0 ? max_norm / (norm + 1e-6) : 1.0;
    return (float)(factor < 1.0 ? factor : 1.0);
}

static tt_status update_units(struct step *step, const struct tt_train_step_result *result)
{
    const struct tt_train_step_config *config = step->config;
    struct tt_rank *rank = step->rank;
    struct tt_moments_step update = {
        .lr = result->learning_rate,
        .grad_scale = clip_factor(config->optim->max_grad_norm, result->grad_norm),
        .step = step->index + 1,
    };
    tt_phases_end(&step->phases, TT_PHASE_OPTIMIZER);
    if (config->before_update != NULL) TT_TRY(config->before_update(config->context));
    tt_phases_end(&step->phases, TT_PHASE_SAVE);
    TT_TRY(tt_whole_update(rank, config->optim, update));
    for (int u = 0; u < rank->model->unit_count; u++) TT_TRY(update_unit(rank, config->optim, u, update));
    TT_TRY(tt_shard_context_publish(rank->shard));
    tt_phases_end(&step->phases, TT_PHASE_OPTIMIZER);
    return TT_OK;
}

/* ---- The step ---- */

static void start_step(struct tt_rank *rank, const struct tt_train_step_config *config, int64_t index,
                       struct step *step)
{
    *step = (struct step){.rank = rank, .config = config, .index = index};
    tt_phases_start(&step->phases);
    step->phases.sink = config->phase_sink;
    step->phases.context = config->phase_context;
}

static void fill_result(const struct step *step, const double report[REPORT_COUNT],
                        struct tt_train_step_result *result)
{
    const struct tt_train_step_config *config = step->config;
    *result = (struct tt_train_step_result){
        .facts = step->facts,
        .aux_loss = report[TT_SUM_OF_BALANCE],
        .grad_norm = sqrt(report[TT_SUM_SQUARES]),
        .learning_rate =
            config->optim->learning_rate * tt_schedule_factor(config->optim, step->index, config->length),
        .stop_requested = report[REPORT_STOP] > 0,
        .save_failed = report[REPORT_SAVE_FAILED] > 0,
    };
    tt_objective_metrics(&step->rank->objective, report, &step->counts, 0.0, result->metrics);
    result->loss = result->metrics[TT_METRIC_LOSS];
}

tt_status tt_train_step(struct tt_rank *rank, const struct tt_train_step_config *config, int64_t index,
                        struct tt_gradient_watch *watch, struct tt_train_step_result *result)
{
    double report[REPORT_COUNT] = {0};
    struct step step;
    start_step(rank, config, index, &step);
    TT_TRY(tt_feed_step(config->feed, index, &step.facts));
    tt_objective_count(&step.counts, &step.facts);
    TT_TRY(make_gradients(&step));
    TT_TRY(sum_reports(&step, report));
    fill_result(&step, report, result);
    if (!isfinite(result->loss)) return explain_nonfinite(&step, result->loss);
    if (!isfinite(result->grad_norm)) return name_nonfinite(&step);
    const struct tt_gradient_chances chances = {.supervised_rows = step.facts.supervised,
                                                .attending_rows = (int64_t)report[REPORT_ATTENDING_ROWS],
                                                .loss = result->loss};
    TT_TRY(tt_gradient_watch_step(watch, rank, &chances));
    TT_TRY(update_units(&step, result));
    result->phases = step.phases;
    return TT_OK;
}
