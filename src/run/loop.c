/* The loop of a training on one rank: steps, log rows, evaluations, saves. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/store.h"
#include "base/log.h"
#include "engine/rank_pass.h"
#include "engine/step.h"
#include "job/eval_sets.h"
#include "run/best.h"
#include "run/checkpoints.h"
#include "run/completion.h"
#include "run/divergence.h"
#include "run/monitoring.h"
#include "run/row_times.h"
#include "run/source_fields.h"
#include "run/step_part.h"
#include "run/trace.h"
#include "run/tracker.h"

/* The training of one rank. */
struct loop {
    struct tt_run *run;
    struct tt_rank *rank;
    struct tt_generation_team *team; /* NULL: evaluations complete no rows */
    bool first;                      /* global rank 0, which reports */
    struct tt_feed feed;
    struct tt_by_source by_source; /* of the evaluation data */
    struct tt_checkpoints checkpoints;
    double train_start; /* end of loading */
    struct tt_memory memory;
    int64_t samples_before; /* samples of the earlier part of a resumed run */
    int64_t last_save_step;
    struct tt_row_times times;
    double step_seconds; /* of the last step */
    struct tt_step_part part;
    struct tt_trace trace;
    struct tt_divergence divergence; /* on global rank 0 */
};

static double epoch_of(const struct loop *loop, int64_t step)
{
    return (double)step / (double)loop->run->length.steps_per_epoch;
}

/* The time since `start` was spent besides a step. */
static void spend(struct loop *loop, enum tt_stretch stretch, double start)
{
    tt_row_times_stretch(&loop->times, stretch, start);
    tt_live_rank_seconds(loop->run->live, tt_comm_rank(loop->rank->world),
                         stretch == TT_STRETCH_SAVE ? TT_LIVE_SAVE : TT_LIVE_EVALUATE,
                         tt_clock_seconds() - start);
}

/* `amount` per second of training so far; 0 before the first step. */
static double per_second(const struct loop *loop, double amount)
{
    double seconds = loop->memory.counters.train_seconds;
    return seconds > 0 ? amount / seconds : 0.0;
}

/* FLOPs of the training so far. */
static double flops_so_far(const struct loop *loop)
{
    return tt_task_run_of(&loop->run->data.inputs)->flops(loop->rank->model, &loop->memory.counters);
}

static void log_row(struct loop *loop, bool evaluation, int64_t step, const struct tt_log_field *fields,
                    int count)
{
    struct tt_log_row row = {evaluation, step, epoch_of(loop, step), fields, count};
    tt_journal_row(loop->run->rank0.journal, &row);
    tt_trackers_poll(loop->run->rank0.trackers);
}

/* TRL's order: the loss, what the optimizer did, the other metrics of the objective. */
static void log_training(struct loop *loop, int64_t step, const struct tt_train_step_result *result)
{
    const struct tt_objective_ops *ops = loop->rank->objective.ops;
    struct tt_counters *counters = &loop->memory.counters;
    double steps = (double)counters->window_steps;
    struct tt_log_field fields[TT_OBJECTIVE_METRICS_MAX + 5];
    int count = 0;
    for (int i = 0; i < tt_objective_step_metrics(&loop->rank->objective); i++) {
        fields[count++] = (struct tt_log_field){ops->metrics[i].name, counters->window[i] / steps};
        if (i != TT_METRIC_LOSS) continue;
        fields[count++] = (struct tt_log_field){"grad_norm", result->grad_norm};
        fields[count++] = (struct tt_log_field){"learning_rate", result->learning_rate};
    }
    if (tt_rank_balances(loop->rank))
        fields[count++] = (struct tt_log_field){TT_AUX_LOSS, counters->window_aux_loss / steps};
    const struct tt_count_unit_facts *unit = &tt_count_units[ops->unit];
    fields[count++] = (struct tt_log_field){unit->count_name, (double)counters->tokens};
    fields[count++] = (struct tt_log_field){
        unit->rate_name,
        counters->window_seconds > 0 ? counters->window_tokens / counters->window_seconds : 0.0};
    struct tt_log_field times[TT_ROW_TIMES_MAX];
    int time_count = tt_row_times_take(&loop->times, loop->rank->device, flops_so_far(loop), times);
    tt_journal_times(loop->run->rank0.journal, times, time_count);
    tt_counters_clear_window(counters);
    log_row(loop, false, step, fields, count);
}

/* True if a checkpoint follows step `done` whatever an evaluation yields. As in transformers, a run with any saves also
 * saves its last step. */
static bool saves_by_steps(const struct tt_run *run, int64_t done)
{
    enum tt_interval strategy = run->job.watch->save_strategy;
    if (strategy != TT_INTERVAL_STEPS && strategy != TT_INTERVAL_EPOCH) return false;
    return tt_run_is_due(run->length.save_steps, done) || done == run->length.total_steps;
}

/* An evaluation before the first step does not count. */
static void record_patience(struct loop *loop, double metric, int64_t step)
{
    const struct tt_watch_spec *watch = loop->run->job.watch;
    if (step == 0 || watch->early_stopping_patience == 0) return;
    tt_patience_record(&loop->memory.patience, metric, tt_best_is_greater(watch),
                       watch->early_stopping_threshold);
    if (loop->first) tt_journal_patience(loop->run->rank0.journal, loop->memory.patience.waited);
}

static bool is_out_of_patience(const struct loop *loop)
{
    int64_t patience = loop->run->job.watch->early_stopping_patience;
    return patience > 0 && loop->memory.patience.waited >= patience;
}

/* The row of an evaluation, and eval_results.json. */
static tt_status log_evaluation(struct loop *loop, int64_t step, const struct tt_log_field *fields, int count,
                                const struct tt_evaluation *evaluation)
{
    const struct tt_sources *sources = tt_inputs_eval_files(&loop->run->data.inputs);
    struct tt_source_fields all;
    TT_TRY(tt_source_fields_init(&all, fields, count, sources, &loop->by_source));
    log_row(loop, true, step, all.fields, all.count);
    struct tt_log_row row = {true, step, epoch_of(loop, step), all.fields, all.count};
    struct tt_log_field samples = {"eval_samples", (double)evaluation->samples};
    tt_journal_write_results(loop->run->rank0.journal, "eval", &row, &samples);
    tt_source_fields_deinit(&all);
    return TT_OK;
}

/* Others see the loss, and the metric that the task names. */
static void show_evaluation(const struct loop *loop, const struct tt_evaluation *evaluation)
{
    const struct tt_objective_ops *ops = loop->rank->objective.ops;
    const struct tt_task_run_ops *task = tt_task_run_of(&loop->run->data.inputs);
    struct tt_live_metric metric = {task->gauge, task->gauge_help, NAN};
    for (int i = 0; i < ops->metric_count && task->gauge != NULL; i++)
        if (strcmp(ops->metrics[i].name, task->gauge) == 0) metric.value = evaluation->metrics[i];
    tt_live_evaluation(loop->run->live, evaluation->loss, &metric);
}

/* The value of metric_for_best_model: of all evaluation data, or of one set. */
static tt_status find_watched(const struct loop *loop, const struct tt_evaluation *evaluation, double *value)
{
    const struct tt_run_job *job = &loop->run->job;
    const char *of_set;
    size_t set;
    *value = evaluation->metrics[job->watch->metric - job->objective->ops->metrics];
    TT_TRY(tt_eval_sets_find(job->data, job->watch->metric_for_best_model, &set, &of_set));
    if (of_set == NULL || set >= loop->by_source.count) return TT_OK;
    const struct tt_source_figures *figures = &loop->by_source.list[set];
    *value = strcmp(of_set, "loss") == 0 ? figures->loss : figures->accuracy;
    return TT_OK;
}

static tt_status measure(struct loop *loop, int64_t step)
{
    struct tt_run *run = loop->run;
    struct tt_evaluation evaluation;
    tt_live_activity(run->live, "evaluating", true);
    const struct tt_task_evaluation how = {.inputs = &run->data.inputs,
                                           .data = &run->data.eval,
                                           .cancel = run->job.cancel,
                                           .stopped = &loop->memory.evaluation_due,
                                           .by_source = &loop->by_source,
                                           .pictures = &run->rank0.pictures,
                                           .step = step};
    TT_TRY(tt_task_run_of(&run->data.inputs)->evaluate(&how, loop->rank, &evaluation));
    if (loop->memory.evaluation_due) return TT_OK;
    loop->memory.counters.last_eval_loss = evaluation.loss;
    double metric;
    TT_TRY(find_watched(loop, &evaluation, &metric));
    record_patience(loop, metric, step);
    tt_checkpoints_record_metric(&loop->checkpoints, run->job.watch, metric, step, saves_by_steps(run, step));
    if (!loop->first) return TT_OK;
    double seconds = evaluation.seconds > 0 ? evaluation.seconds : 1e-9;
    const struct tt_objective_ops *ops = loop->rank->objective.ops;
    show_evaluation(loop, &evaluation);
    char names[TT_OBJECTIVE_METRICS_MAX][64];
    struct tt_log_field fields[TT_OBJECTIVE_METRICS_MAX + 3];
    int count = 0;
    for (int i = 0; i < ops->metric_count; i++) {
        snprintf(names[i], sizeof names[i], "eval_%s", ops->metrics[i].name);
        fields[count++] = (struct tt_log_field){names[i], evaluation.metrics[i]};
    }
    fields[count++] = (struct tt_log_field){"eval_runtime", evaluation.seconds};
    fields[count++] = (struct tt_log_field){"eval_samples_per_second", (double)evaluation.samples / seconds};
    fields[count++] = (struct tt_log_field){"eval_steps_per_second", (double)evaluation.steps / seconds};
    return log_evaluation(loop, step, fields, count, &evaluation);
}

static tt_status evaluate(struct loop *loop, int64_t step)
{
    TT_TRY(measure(loop, step));
    const struct tt_run *run = loop->run;
    const struct tt_shown_rows_to to = {&run->job, run->rank0.journal, run->data.inputs.tokenizer};
    return tt_shown_rows_run(&run->shown, &to, loop->team, step);
}

static bool is_row_due(const struct tt_run *run, int64_t step)
{
    return tt_run_is_due(run->length.logging_steps, step) ||
           (run->job.watch->logging_first_step && step == 1) ||
           (step == run->length.total_steps && run->length.logging_steps > 0);
}

/* One warning, at the first step that shows it. */
static void watch_loss(struct loop *loop, int64_t step, double loss)
{
    struct tt_divergence *seen = &loop->divergence;
    bool known = seen->step > 0;
    tt_divergence_record(seen, step, loss);
    if (known || seen->step == 0) return;
    if (seen->guesses)
        tt_warn("step %lld: the training diverges: the mean loss of the last %d steps is %.4g, worse than "
                "guessing "
                "(%.4g), after %.4g in the first step; lower learning_rate or lengthen the warm-up",
                (long long)step, TT_DIVERGENCE_STEPS, seen->mean, seen->guess, seen->first);
    else
        tt_warn("step %lld: the training diverges: the mean loss of the last %d steps is %.4g, and was %.4g; "
                "lower "
                "learning_rate or lengthen the warm-up",
                (long long)step, TT_DIVERGENCE_STEPS, seen->mean, seen->least);
}

static void report_step(struct loop *loop, int64_t step, const struct tt_train_step_result *result)
{
    struct tt_run *run = loop->run;
    double speed = per_second(loop, (double)loop->memory.counters.tokens);
    watch_loss(loop, step, result->loss);
    tt_journal_progress(run->rank0.journal, step, epoch_of(loop, step), loop->memory.counters.tokens,
                        flops_so_far(loop));
    tt_live_step(run->live, &(struct tt_live_step){.step = step,
                                                   .seconds = loop->step_seconds,
                                                   .tokens = (double)loop->memory.counters.tokens,
                                                   .flops = flops_so_far(loop),
                                                   .loss = result->loss,
                                                   .learning_rate = result->learning_rate,
                                                   .grad_norm = result->grad_norm});
    double per_step = loop->memory.counters.train_seconds / (double)loop->memory.counters.steps_done;
    loop->part.last = (struct tt_progress){
        step,
        run->length.total_steps,
        epoch_of(loop, step),
        result->loss,
        speed,
        (double)(run->length.total_steps - step) * per_step,
        tt_objective_unit(&loop->rank->objective),
    };
    if (run->job.observer != NULL && run->job.observer->on_progress != NULL)
        run->job.observer->on_progress(run->job.observer->context, &loop->part.last);
    if (is_row_due(run, step)) log_training(loop, step, result);
}

static tt_status run_step(struct loop *loop, int64_t step, struct tt_train_step_result *result)
{
    struct tt_run *run = loop->run;
    if (run->job.all->monitor.profile)
        tt_trace_step(&loop->trace, loop->rank->device, step - run->length.first_step);
    struct tt_train_step_config config = {
        .optim = run->job.optim,
        .feed = &loop->feed,
        .cancel = run->job.cancel,
        .seed = (uint64_t)run->job.run->seed,
        .label_smoothing = run->job.run->label_smoothing_factor,
        .embedding_noise = run->job.run->neftune_noise_alpha,
        .length = {run->length.total_steps, run->length.steps_per_epoch},
        .before_update = tt_checkpoints_before_update,
        .context = &loop->checkpoints,
        .save_failed = tt_saver_failed(loop->checkpoints.saver),
        .phase_sink = tt_step_part_phase,
        .phase_context = &loop->part,
    };
    char activity[40];
    snprintf(activity, sizeof activity, "step %lld", (long long)step + 1);
    tt_comm_set_activity(loop->rank->world, activity);
    tt_live_activity(run->live, "training", true);
    tt_step_part_begin(&loop->part, tt_trace_phases(&loop->trace));
    double start = tt_clock_seconds();
    TT_TRY(tt_train_step(loop->rank, &config, step, &loop->memory.watch, result));
    double seconds = tt_clock_seconds() - start;
    loop->step_seconds = seconds;
    int64_t counted = tt_step_count(&result->facts, loop->rank->objective.ops->unit);
    tt_counters_add_step(&loop->memory.counters, result, counted, seconds);
    tt_row_times_step(&loop->times, &result->phases, seconds, (double)counted);
    tt_monitoring_rank_step(run->live, loop->rank, &result->phases);
    if (step == run->length.first_step && run->rank0.summary != NULL && loop->first)
        run->rank0.summary->first_step_seconds = tt_clock_seconds() - run->start_seconds;
    return TT_OK;
}

static tt_status save(struct loop *loop, int64_t step)
{
    if (loop->last_save_step == step) return TT_OK;
    loop->last_save_step = step;
    double start = tt_clock_seconds();
    tt_live_activity(loop->run->live, "saving", false);
    TT_TRY(tt_checkpoints_save(&loop->checkpoints, loop->run, loop->rank, step));
    spend(loop, TT_STRETCH_SAVE, start);
    return TT_OK;
}

/* The evaluation after step `done`, if one is due, and the save after it. */
static tt_status evaluate_and_save(struct loop *loop, int64_t done, bool evaluates)
{
    struct tt_run *run = loop->run;
    int64_t best_before = loop->memory.best.known ? loop->memory.best.step : -1;
    double start = tt_clock_seconds();
    if (evaluates) TT_TRY(evaluate(loop, done));
    if (evaluates) spend(loop, TT_STRETCH_EVALUATE, start);
    if (loop->memory.evaluation_due) return TT_OK; /* the stop saves */
    bool improved = loop->memory.best.known && loop->memory.best.step == done && best_before != done;
    bool saves = run->job.watch->save_strategy == TT_INTERVAL_BEST ? improved : saves_by_steps(run, done);
    return saves ? save(loop, done) : TT_OK;
}

/* transformers' DefaultFlowCallback: by steps the delay is in steps, by epochs in epochs. */
static bool evaluation_is_due(const struct loop *loop, int64_t done)
{
    const struct tt_run *run = loop->run;
    bool by_epochs = run->job.watch->eval_strategy == TT_INTERVAL_EPOCH,
         last = done == run->length.total_steps;
    if (!tt_task_run_of(&run->data.inputs)->evaluates(&run->data.inputs) ||
        run->job.watch->eval_delay > (by_epochs ? epoch_of(loop, done) : (double)done))
        return false;
    return tt_run_is_due(run->length.eval_steps, done) || (last && run->length.eval_steps > 0);
}

/* Runs after step `done` (counted from 1): log, evaluate, save, in transformers' order. */
static tt_status after_step(struct loop *loop, int64_t done, const struct tt_train_step_result *result)
{
    struct tt_run *run = loop->run;
    if (loop->first)
        report_step(loop, done, result);
    else if (is_row_due(run, done))
        tt_row_times_write(&loop->times, loop->rank->device, flops_so_far(loop), done);
    return evaluate_and_save(loop, done, evaluation_is_due(loop, done));
}

/* An early stop ends the epoch, as in transformers: what happens at the end of epochs happens now. */
static tt_status stop_early(struct loop *loop, const struct tt_train_step_result *result)
{
    const struct tt_run *run = loop->run;
    int64_t done = loop->memory.counters.steps_done, waited = loop->memory.patience.waited;
    char line[300], name[100];
    snprintf(line, sizeof line,
             "early stopping after step %lld of %lld: %s has not improved in %lld evaluation%s",
             (long long)done, (long long)run->length.total_steps,
             tt_best_metric_name(&run->job, name, sizeof name), (long long)waited, waited == 1 ? "" : "s");
    if (loop->first) tt_run_report_line(&run->job, line);
    bool logs =
        run->job.watch->logging_strategy == TT_INTERVAL_EPOCH && loop->memory.counters.window_steps > 0;
    if (loop->first && logs) log_training(loop, done, result);
    return run->job.watch->save_strategy == TT_INTERVAL_EPOCH ? save(loop, done) : TT_OK;
}

static tt_status report_memory(const struct loop *loop)
{
    struct tt_str text = {0};
    tt_status status = tt_plan_compare(&loop->run->plan, loop->rank->device, &text);
    if (status == TT_OK) tt_run_report(&loop->run->job, tt_str_text(&text));
    tt_str_deinit(&text);
    return status;
}

/* Steps of the run so far, for means; at least 1. */
static double counted_steps(const struct loop *loop)
{
    int64_t steps = loop->memory.counters.steps_done;
    return (double)(steps > 0 ? steps : 1);
}

static void fill_summary(const struct loop *loop, double seconds, bool stopped)
{
    const struct tt_run *run = loop->run;
    struct tt_train_summary *summary = run->rank0.summary;
    struct tt_memory_use memory;
    tt_device_memory(loop->rank->device, &memory);
    summary->unit = tt_objective_unit(&loop->rank->objective);
    summary->steps = loop->memory.counters.steps_done;
    summary->epochs = epoch_of(loop, loop->memory.counters.steps_done);
    summary->train_loss = loop->memory.counters.loss_sum / counted_steps(loop);
    summary->last_eval_loss = loop->memory.counters.last_eval_loss;
    summary->seconds = seconds;
    summary->tokens_per_second = per_second(loop, (double)loop->memory.counters.tokens);
    summary->samples_per_second =
        per_second(loop, (double)tt_objective_samples(&loop->rank->objective, loop->memory.counters.samples));
    summary->model_tflops = per_second(loop, flops_so_far(loop)) / 1e12;
    summary->planned_bytes = run->plan.memory.total_peak;
    summary->peak_bytes = memory.total_peak;
    summary->stopped = stopped;
    summary->save_seconds = loop->checkpoints.save_seconds;
    summary->save_stall_seconds = loop->checkpoints.stall_seconds;
    snprintf(summary->output, sizeof summary->output, "%s", run->job.run->output_dir);
}

static tt_status finish(struct loop *loop, bool stopped)
{
    struct tt_run *run = loop->run;
    tt_trace_close(&loop->trace, loop->rank->device);
    double runtime = tt_clock_seconds() - loop->train_start;
    int64_t steps_now = loop->memory.counters.steps_done - run->length.first_step;
    struct tt_log_field fields[] = {
        {"train_runtime", runtime},
        {"train_samples_per_second",
         (double)tt_objective_samples(run->job.objective,
                                      loop->memory.counters.samples - loop->samples_before) /
             runtime},
        {"train_steps_per_second", (double)steps_now / runtime},
        {"train_loss", loop->memory.counters.loss_sum / counted_steps(loop)},
        {"total_flos", flops_so_far(loop)}, /* only in the log */
    };
    int count = sizeof fields / sizeof *fields;
    struct tt_log_field times[TT_ROW_TIMES_MAX];
    int time_count = tt_row_times_totals(&loop->times, loop->train_start + runtime, times);
    if (loop->first) tt_journal_times(run->rank0.journal, times, time_count);
    if (loop->first) log_row(loop, false, loop->memory.counters.steps_done, fields, count);
    tt_live_activity(run->live, "saving the result", false);
    /* The weights are saved before the last records are written. */
    TT_TRY(tt_checkpoints_finish(&loop->checkpoints, run, loop->rank, loop->memory.counters.steps_done,
                                 stopped));
    if (loop->first) {
        struct tt_log_row row = {false, loop->memory.counters.steps_done,
                                 epoch_of(loop, loop->memory.counters.steps_done), fields, count - 1};
        struct tt_log_field samples = {
            "train_samples",
            tt_task_run_of(&run->data.inputs)->samples(&run->data.inputs, run->job.objective)};
        tt_journal_write_results(run->rank0.journal, "train", &row, &samples);
        if (!stopped)
            tt_completion_write(run, loop->rank->mesh.axes[TT_AXIS_DATA].size,
                                loop->memory.counters.steps_done);
    }
    if (!loop->first || run->rank0.summary == NULL) return TT_OK;
    if (loop->divergence.diverges)
        tt_warn("the result is of a training that has diverged since step %lld: its mean loss is %.4g",
                (long long)loop->divergence.step, loop->divergence.mean);
    fill_summary(loop, runtime, stopped);
    return report_memory(loop);
}

/* The evaluation before the first step, or the one that a stop ended after the last step of the resumed run. */
static tt_status begin(struct loop *loop)
{
    const struct tt_run *run = loop->run;
    double start = tt_clock_seconds();
    bool due_still = loop->memory.evaluation_due;
    loop->memory.evaluation_due = false;
    if (!tt_task_run_of(&run->data.inputs)->evaluates(&run->data.inputs)) return TT_OK;
    if (due_still && run->length.first_step > 0) return evaluate_and_save(loop, run->length.first_step, true);
    if (!run->job.watch->eval_on_start || run->length.first_step > 0) return TT_OK;
    TT_TRY(evaluate(loop, 0));
    spend(loop, TT_STRETCH_EVALUATE, start);
    return TT_OK;
}

static tt_status stop_before_training(const struct loop *loop)
{
    (void)tt_fail(TT_ERR_CANCELLED, "stopped on request in the evaluation before the first step");
    tt_hint("training had not begun: the same command starts it again");
    return tt_comm_agree(loop->rank->world, TT_ERR_CANCELLED);
}

static tt_status train(struct loop *loop)
{
    struct tt_run *run = loop->run;
    struct tt_train_step_result result = {0};
    double start = tt_clock_seconds();
    TT_TRY(begin(loop));
    bool stopped = loop->memory.evaluation_due;
    if (stopped && run->length.first_step == 0) return stop_before_training(loop);
    for (int64_t step = run->length.first_step;
         step < run->length.total_steps && !stopped && !is_out_of_patience(loop); step++) {
        start = tt_clock_seconds();
        TT_TRY(run_step(loop, step, &result));
        double polled = tt_clock_seconds();
        TT_TRY(tt_checkpoints_poll(&loop->checkpoints, run, result.save_failed, polled - start));
        spend(loop, TT_STRETCH_SAVE, polled);
        TT_TRY(after_step(loop, step + 1, &result));
        stopped =
            loop->memory.evaluation_due || (result.stop_requested && step + 1 < run->length.total_steps);
        if (stopped) TT_TRY(save(loop, step + 1));
    }
    if (is_out_of_patience(loop) && !stopped) TT_TRY(stop_early(loop, &result));
    TT_TRY(finish(loop, stopped));
    if (!stopped) return TT_OK;
    (void)tt_fail(TT_ERR_CANCELLED, "stopped on request after step %lld of %lld; checkpoint-%lld is complete",
                  (long long)loop->memory.counters.steps_done, (long long)run->length.total_steps,
                  (long long)loop->memory.counters.steps_done);
    tt_hint("--resume_from_checkpoint true resumes from there");
    /* called by all ranks: one of them reports the error */
    return tt_comm_agree(loop->rank->world, TT_ERR_CANCELLED);
}

/* Reports the cost of a resume. */
static void report_resume(const struct loop *loop)
{
    const struct tt_run *run = loop->run;
    const struct tt_resume *resume = &run->resume;
    char line[5000], bytes[32], verified[32], loaded[32];
    struct tt_log_field fields[] = {{"bytes", (double)resume->bytes},
                                    {"verify_seconds", resume->verify_seconds},
                                    {"load_seconds", resume->load_seconds}};
    snprintf(line, sizeof line, "read %s: %s, verified in %s; model and training state loaded in %s",
             resume->folder, tt_format_bytes((double)resume->bytes, bytes, sizeof bytes),
             tt_format_seconds(resume->verify_seconds, verified, sizeof verified),
             tt_format_seconds(resume->load_seconds, loaded, sizeof loaded));
    tt_run_report_line(&run->job, line);
    tt_journal_event(run->rank0.journal, "resume", resume->step, resume->folder, fields,
                     sizeof fields / sizeof *fields);
}

/* Restores the state of a resumed run. */
static tt_status restore(struct loop *loop)
{
    struct tt_run *run = loop->run;
    TT_TRY(tt_resume_restore(&run->resume, run->job.objective, &loop->memory));
    loop->samples_before = loop->memory.counters.samples;
    if (!loop->first || run->resume.folder == NULL) return TT_OK;
    TT_TRY(tt_journal_restore(run->rank0.journal, tt_json_get(run->resume.trainer.root, "log_history"),
                              tt_json_get(run->resume.state.root, "results")));
    tt_journal_patience(run->rank0.journal, loop->memory.patience.waited);
    tt_journal_progress(run->rank0.journal, run->length.first_step, epoch_of(loop, run->length.first_step),
                        loop->memory.counters.tokens, flops_so_far(loop));
    report_resume(loop);
    return TT_OK;
}

tt_status tt_run_loop(struct tt_run *run, struct tt_rank *rank, struct tt_generation_team *team)
{
    struct loop loop = {
        .run = run,
        .rank = rank,
        .team = team,
        .first = tt_comm_rank(rank->world) == 0,
        .train_start = tt_clock_seconds(),
        .memory = {.counters = {.last_eval_loss = NAN}},
        .last_save_step = run->length.first_step > 0 ? run->length.first_step : -1,
    };
    tt_status status = tt_gradient_watch_init(rank->model, &loop.memory.watch);
    if (status == TT_OK) status = tt_checkpoints_init(&loop.checkpoints, run, rank, &loop.memory);
    if (status == TT_OK && run->data.inputs.eval != NULL)
        status = tt_by_source_init(&loop.by_source, run->data.inputs.eval, &rank->objective,
                                   tt_eval_sets_are_named(run->job.data));
    if (status == TT_OK)
        status =
            tt_task_run_of(&run->data.inputs)->feed(&run->data.inputs, &run->data.train, rank, &loop.feed);
    if (status == TT_OK) status = restore(&loop);
    if (status == TT_OK)
        tt_row_times_init(&loop.times, &rank->objective, tt_comm_rank(rank->world),
                          tt_comm_world_size(rank->world), run->job.run->output_dir, flops_so_far(&loop));
    if (status == TT_OK && run->job.all->monitor.profile) tt_row_times_profile(&loop.times, rank->device);
    loop.part = (struct tt_step_part){
        .observer = loop.first ? run->job.observer : NULL,
        .pieces = 3.0 * rank->model->block_count * (double)run->job.run->gradient_accumulation_steps,
        .next_context = &loop.trace,
        .last = {.step = run->length.first_step,
                 .max_steps = run->length.total_steps,
                 .epoch = epoch_of(&loop, run->length.first_step),
                 .seconds_left = -1,
                 .unit = tt_objective_unit(&rank->objective)},
    };
    /* of a mean cross entropy of tokens */
    if (rank->objective.ops->rows == NULL && rank->model->facts.vocab_size > 0)
        loop.divergence.guess = log((double)rank->model->facts.vocab_size);
    tt_trace_init(&loop.trace, tt_comm_rank(rank->world), run->job.run->output_dir);
    if (status == TT_OK && loop.first) tt_monitoring_start(run, loop.memory.counters.tokens);
    if (status == TT_OK) status = train(&loop);
    if (status != TT_OK) tt_store_hurry();
    tt_trace_close(&loop.trace, rank->device);
    tt_row_times_deinit(&loop.times);
    tt_checkpoints_deinit(&loop.checkpoints, run);
    tt_gradient_watch_deinit(&loop.memory.watch);
    tt_feed_deinit(&loop.feed);
    tt_by_source_deinit(&loop.by_source);
    return status;
}
