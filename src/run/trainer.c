#include "run/trainer.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/store.h"
#include "base/log.h"
#include "base/number.h"
#include "comm/host_values.h"
#include "doctor/doctor.h"
#include "engine/rank_config.h"
#include "infer/generation_rank.h"
#include "launch/devices.h"
#include "optim/schedule.h"
#include "run/best.h"
#include "run/completion.h"
#include "run/disk_space.h"
#include "run/first_adapter.h"
#include "run/monitoring.h"
#include "run/hub_names.h"
#include "run/hub_push.h"
#include "run/model_card.h"
#include "run/open_world.h"
#include "run/rank0_files.h"
#include "run/run.h"
#include "run/run_plan.h"
#include "run/run_record.h"
#include "run/tracker.h"

/* A training in this process. */
struct training {
    struct tt_run run;
    const struct tt_train_observer *observer; /* of rank 0's process */
    struct tt_world world;
    struct tt_rank0_files files;
    struct tt_monitoring monitoring;
    bool is_done;     /* nothing follows: another start has done it */
    tt_status status; /* of what has been opened so far */
};

/* ---- The ranks meet ---- */

static tt_status open_monitoring(struct training *training)
{
    return tt_monitoring_open(training->run.job.all, &training->monitoring);
}

static void close_monitoring(struct training *training)
{
    tt_monitoring_close(&training->monitoring);
}

static tt_status prepare_completion(struct training *training)
{
    return tt_completion_prepare(&training->run);
}

static void drop_compared(struct training *training)
{
    tt_str_deinit(&training->run.compared);
}

static tt_status open_world(struct training *training)
{
    struct tt_run *run = &training->run;
    tt_status status = tt_run_open_world(TT_JOB_TRAIN, run->job.all, run->job.cancel, &training->world);
    if (tt_completion_explains(run, status)) {
        training->is_done = true;
        return TT_OK;
    }
    if (status != TT_OK) return status;
    memcpy(run->name, training->world.run, sizeof run->name);
    run->job.observer = training->world.first_rank == 0 ? training->observer : NULL;
    return TT_OK;
}

static void close_world(struct training *training)
{
    tt_world_close(&training->world);
}

static tt_status attach_monitoring(struct training *training)
{
    training->run.live = training->monitoring.live;
    return tt_monitoring_attach(&training->monitoring, &training->run.job, &training->world);
}

static tt_status preflight(struct training *training)
{
    const struct tt_job_spec *job = training->run.job.all;
    return job->launch.preflight == TT_PREFLIGHT_QUICK ? tt_doctor_preflight(job, &training->world) : TT_OK;
}

static tt_status claim_output(struct training *training)
{
    struct tt_run *run = &training->run;
    const struct tt_world *world = &training->world;
    if (world->first_rank > 0) return TT_OK;
    return tt_output_dir_claim(run->job.run, run->job.model, world->restarts, &run->rank0.output);
}

static void release_output(struct training *training)
{
    tt_output_dir_release(&training->run.rank0.output, training->status != TT_OK);
}

static tt_status open_files(struct training *training)
{
    TT_TRY(tt_run_fetch_names(training->run.job.all, &training->world));
    return tt_rank0_files_open(training->run.job.all, &training->world, &training->files);
}

static void close_files(struct training *training)
{
    tt_rank0_files_close(&training->files);
}

/* Rank 0 logs the result, and the failed rank reports an error. This adds one last line to the logs of all others. */
static void report_end(struct training *training)
{
    const tt_status status = training->status;
    const struct tt_run *run = &training->run;
    const struct tt_world *world = &training->world;
    if (status == TT_OK && world->first_rank > 0)
        tt_notice("rank %d of %d: training is complete, %lld steps", world->first_rank, world->world_size,
                  (long long)run->length.total_steps);
    if (status == TT_ERR_PEER || status == TT_ERR_COMM || status == TT_ERR_DEVICE)
        tt_resume_hint(run->job.run->output_dir, world->first_rank == 0);
}

/* ---- Its inputs ---- */

/* A complete run may have ended before its result was on the hub. */
static tt_status push_complete(struct tt_run *run)
{
    struct tt_hub_push *push = NULL;
    tt_status status = tt_hub_push_open(&run->job, &push);
    if (status == TT_OK) status = tt_hub_push_result(push, run->rank0.summary);
    tt_hub_push_close(push);
    return status;
}

static tt_status find_completion(struct training *training)
{
    struct tt_run *run = &training->run;
    tt_status status = tt_completion_find(run, &training->world, &training->is_done);
    if (status == TT_OK && training->is_done && training->world.first_rank == 0) status = push_complete(run);
    training->status = status;
    if (training->is_done) report_end(training);
    return status;
}

static tt_status find_checkpoint(struct training *training)
{
    return tt_resume_find(&training->run.job, &training->run.resume, &training->world);
}

static void close_checkpoint(struct training *training)
{
    tt_resume_close(&training->run.resume);
}

static tt_status share_date(void *context, const struct tt_world_rank *rank)
{
    struct training *training = context;
    char date[TT_CHAT_DATE_BYTES];
    memcpy(date, training->run.data.date, sizeof date);
    TT_TRY(tt_comm_host_share(rank->comm, date, sizeof date));
    if (tt_comm_rank(rank->comm) == training->world.first_rank)
        memcpy(training->run.data.date, date, sizeof date);
    return TT_OK;
}

/* All processes have the date of rank 0's clock. */
static tt_status agree_on_date(struct training *training)
{
    struct tt_world *world = &training->world;
    tt_chat_now(training->run.data.date);
    return world->local_count == world->world_size ? TT_OK : tt_world_run(world, share_date, training);
}

/* A resumed run has the date that it began with, so that its prompts stay what they were. */
static tt_status resolve_date(const struct tt_run_job *job, const struct tt_resume *resume,
                              char date[TT_CHAT_DATE_BYTES])
{
    const char *given = job->data->date;
    if (given == NULL && resume->folder != NULL)
        TT_TRY(tt_json_opt_string(&resume->state, resume->state.root, "date", &given));
    if (given == NULL) return TT_OK;
    if (strlen(given) >= TT_CHAT_DATE_BYTES)
        return tt_fail(TT_ERR_USAGE, "date '%.64s' is not YYYY-MM-DD or YYYY-MM-DD HH:MM:SS", given);
    tt_snprintf(date, TT_CHAT_DATE_BYTES, "%s", given);
    return TT_OK;
}

static tt_status open_inputs(struct training *training)
{
    struct tt_run *run = &training->run;
    const struct tt_run_spec *spec = run->job.run;
    TT_TRY(tt_schedule_check(run->job.optim));
    TT_TRY(tt_resume_open(&run->resume));
    /* A run that was killed amid its end, without a checkpoint, begins again over a part of its result. */
    bool goes_on = run->resume.folder != NULL || (tt_resume_is_requested(spec->resume_from_checkpoint) &&
                                                  tt_run_record_interrupted(spec->output_dir));
    if (training->world.first_rank == 0) TT_TRY(tt_output_dir_check(&run->rank0.output, spec, goes_on));
    TT_TRY(resolve_date(&run->job, &run->resume, run->data.date));
    if (run->resume.folder != NULL)
        TT_TRY(tt_json_object(&run->resume.state, run->resume.state.root, "identity", &run->data.identity));
    return tt_run_data_open(&run->job, &training->world, run->resume.folder, &run->data);
}

static void close_inputs(struct training *training)
{
    tt_run_data_close(&training->run.data);
}

static tt_status compare_inputs(struct training *training)
{
    return tt_fingerprint_compare(&training->run.data.fingerprint, &training->world);
}

static tt_status find_best(struct training *training)
{
    return tt_best_find(&training->run.job, &training->run.resume, &training->world);
}

static tt_status settle_inputs(struct training *training)
{
    return tt_world_settle_inputs(&training->world, &training->run.data.inputs);
}

/* ---- Its plan and its records ---- */

static tt_status open_plan(struct training *training)
{
    return tt_run_plan_open(&training->run, &training->run.job.all->shard, &training->world);
}

static void drop_rows(struct training *training)
{
    tt_shown_rows_deinit(&training->run.shown);
}

static tt_status find_batch(struct training *training)
{
    return tt_run_plan_find_batch(&training->run, &training->world);
}

static tt_status order(struct training *training)
{
    struct tt_run *run = &training->run;
    TT_TRY(tt_run_data_order(&run->job, tt_world_data_size(&training->world), &run->data, &run->length));
    tt_run_length_resolve(&run->length, run->job.watch);
    return tt_resume_prepare(&run->job, &run->resume, &training->world, &run->data, &run->length);
}

/* Reports the lines of a description, which ended with `status`, and clears them. */
static tt_status report_text(const struct tt_run_job *job, tt_status status, struct tt_str *text)
{
    if (text->bytes > 0) tt_run_report(job, tt_str_text(text));
    tt_str_clear(text);
    return status;
}

static tt_status report_model(const struct tt_run *run, const struct tt_model *model,
                              const struct tt_world *world)
{
    const struct tt_run_job *job = &run->job;
    const struct tt_device_config *device = &run->rank_config.device;
    char line[512], recompute[96];
    struct tt_str text = {0};
    tt_status status = TT_OK;
    tt_run_report(job, tt_model_format_counts(model, line, sizeof line));
    TT_GO(report_text(job, tt_model_describe_adapted(model, &text), &text));
    TT_GO(report_text(job, tt_quantization_describe(model, &text), &text));
    if (strcmp(device->kind, "cuda") == 0)
        TT_GO(report_text(job, tt_devices_describe(device->index, world->local_count, &text), &text));
    TT_GO(report_text(job, tt_plan_format(&run->plan, &text), &text));
    snprintf(line, sizeof line, "%lld step%s, %lld an epoch, on %d rank%s (%s, %s) of %d thread%s, %s, %s",
             (long long)run->length.total_steps, run->length.total_steps == 1 ? "" : "s",
             (long long)run->length.steps_per_epoch, world->world_size, world->world_size == 1 ? "" : "s",
             tt_comm_kind(world->ranks[0].comm), tt_shard_strategy_name(run->rank_config.strategy),
             world->threads_per_rank, world->threads_per_rank == 1 ? "" : "s",
             tt_dtype_torch_name(run->data.inputs.model_options.compute_dtype),
             tt_plan_recompute_text(&run->plan, recompute, sizeof recompute));
    tt_run_report(job, line);
    TT_GO(tt_resume_describe(&run->resume, job, &run->length, world->world_size, &text));
    if (text.bytes > 0) tt_run_report_line(job, tt_str_text(&text));
out:
    tt_str_deinit(&text);
    return status;
}

/* All checks that are possible before a byte of weights is read. */
static tt_status check_before_start(struct training *training)
{
    struct tt_run *run = &training->run;
    const struct tt_inputs *inputs = &run->data.inputs;
    const struct tt_world *world = &training->world;
    tt_status status = TT_OK;
    struct tt_model *model = NULL;
    TT_GO(tt_model_create(&inputs->model_facts, &inputs->model_options, &model));
    TT_GO(tt_inputs_check_model(inputs, model));
    TT_GO(tt_first_adapter_check(run, model));
    TT_GO(tt_resume_check_model(&run->resume, run->rank_config.optimizer, model));
    if (world->first_rank == 0) TT_GO(tt_disk_space_check(run, model));
    TT_GO(tt_run_plan_make(run, world, true));
    TT_GO(tt_task_run_of(inputs)->report(&run->job, inputs));
    TT_GO(report_model(run, model, world));
    TT_GO(tt_plan_check_here(&run->plan, tt_world_ranks_here(world)));
    status = tt_store_failure();
out:
    tt_model_destroy(model);
    return status;
}

/* Value of TrainerState.eval_steps for a run that does not evaluate by steps. */
enum { STATED_EVAL_STEPS = 500 };

/* transformers' TrainerState.compute_steps: the number in trainer_state.json, also for a strategy by epochs. */
static int64_t stated_steps(double every, int64_t total)
{
    return tt_run_to_steps(every < 1.0 ? ceil((double)total * every) : every);
}

static tt_status open_journal(const struct tt_run_job *job, const struct tt_run_length *length,
                              struct tt_journal **journal)
{
    const struct tt_watch_spec *watch = job->watch;
    int64_t total = length->total_steps;
    struct tt_journal_facts facts = {
        .max_steps = total,
        .train_batch_size = job->run->per_device_train_batch_size,
        .num_train_epochs = (double)total / (double)length->steps_per_epoch,
        .logging_steps = stated_steps(watch->logging_steps, total),
        .eval_steps = watch->eval_steps > 0 ? stated_steps(watch->eval_steps, total) : STATED_EVAL_STEPS,
        .save_steps = stated_steps(watch->save_steps, total),
    };
    return tt_journal_open(job->run->output_dir, watch, &facts, job->observer, journal);
}

static tt_status open_shown(struct tt_run *run)
{
    const struct tt_inputs *inputs = &run->data.inputs;
    const struct tt_shown_pictures_config pictures = {inputs, run->job.run->output_dir, run->rank0.journal,
                                                      run->length.first_step};
    TT_TRY(tt_shown_rows_open(run->job.run->output_dir, run->length.first_step, &run->shown));
    const struct tt_task_run_ops *task = tt_task_run_of(inputs);
    return task->show != NULL ? task->show(&pictures, &run->rank0.pictures) : TT_OK;
}

/* No run depends on them. */
static void open_trackers(struct tt_run *run)
{
    const struct tt_run_job *job = &run->job;
    struct tt_run_rank0 *rank0 = &run->rank0;
    const struct tt_trackers_files files = {rank0->journal, run->shown.file};
    struct tt_tracker_config config;
    if ((job->watch->report_to & TT_REPORT_NONE) != 0) return;
    if (tt_tracker_config_init(job, &run->data.inputs, &config) != TT_OK) {
        tt_warn("%s; training continues without trackers", tt_error_last()->message);
        tt_error_clear();
        return;
    }
    tt_tracker_config_show(&config, rank0->journal);
    rank0->trackers = tt_trackers_open(job, &config, &files);
    tt_tracker_config_deinit(&config);
}

/* Checks, and opens the records: the first byte that a run writes is among them. */
static tt_status open_records(struct training *training)
{
    struct tt_run *run = &training->run;
    TT_TRY(order(training));
    TT_TRY(check_before_start(training));
    if (training->world.first_rank > 0) return TT_OK;
    TT_TRY(tt_completion_remove(run->job.run->output_dir));
    TT_TRY(open_journal(&run->job, &run->length, &run->rank0.journal));
    TT_TRY(open_shown(run));
    tt_run_record_begin(run, &training->world);
    open_trackers(run);
    return TT_OK;
}

static void close_records(struct training *training)
{
    struct tt_run *run = &training->run;
    tt_run_record_end(run, training->status);
    tt_journal_close(run->rank0.journal);
    tt_shown_pictures_deinit(&run->rank0.pictures);
}

static void close_trackers(struct training *training)
{
    tt_trackers_close(training->run.rank0.trackers, training->status == TT_ERR_CANCELLED);
}

static tt_status open_push(struct training *training)
{
    struct tt_run *run = &training->run;
    if (training->world.first_rank > 0 || !run->job.watch->push_to_hub) return TT_OK;
    TT_TRY(tt_model_card_remove(&run->job));
    return tt_hub_push_open(&run->job, &run->rank0.push);
}

static tt_status make_first_values(struct training *training)
{
    return tt_first_adapter_make(&training->run, &training->world);
}

/* The result is complete without it, so only a run that has not failed fails here. */
static void close_push(struct training *training)
{
    struct tt_run_rank0 *rank0 = &training->run.rank0;
    if (training->status == TT_OK) training->status = tt_hub_push_result(rank0->push, rank0->summary);
    tt_hub_push_close(rank0->push);
}

/* Columns for what the reference of the objective says of the rows, where it is computed before the first step. */
static tt_status open_reference(struct training *training)
{
    struct tt_run *run = &training->run;
    const struct tt_reference_config config = {
        .job = &run->job,
        .inputs = &run->data.inputs,
        .fingerprint = &run->data.fingerprint,
        .device = run->rank_config.device.kind,
        .reads = training->world.first_rank == 0,
    };
    run->first_rank = training->world.first_rank;
    return tt_run_reference_open(&config, &run->data.reference);
}

/* ---- The training ---- */

/* Loads the values that the run begins or goes on with. A reference that is still to be computed is that of the values
 * at the begin. */
static tt_status load(struct tt_run *run, const struct tt_world_rank *place, struct tt_rank *rank)
{
    struct tt_run_reference *reference = &run->data.reference;
    struct tt_load_source source = run->data.inputs.source, begin = run->data.begin;
    bool leads = tt_comm_rank(place->comm) == run->first_rank, resumes = run->resume.folder != NULL, missing;
    source.cancel = begin.cancel = run->job.cancel;
    TT_TRY(tt_run_reference_share(reference, rank->world, leads, &missing));
    if (!missing) return resumes ? tt_rank_load_again(rank, &begin, &source) : tt_rank_load(rank, &source);
    TT_TRY(tt_rank_load(rank, resumes ? &begin : &source));
    TT_TRY(tt_run_reference_compute(reference, &run->job, rank, leads));
    return resumes ? tt_rank_load_values(rank, &source) : TT_OK;
}

static tt_status rank_main(void *context, const struct tt_world_rank *place)
{
    struct tt_run *run = context;
    struct tt_rank rank = {0};
    struct tt_generation_team *team = NULL;
    struct tt_rank_config config = tt_rank_config_of(&run->rank_config, place, &run->plan);
    tt_comm_set_activity(place->comm, "loading the model");
    tt_status status = tt_rank_init(&config, &rank);
    status = tt_comm_agree(place->comm, status);
    double start = tt_clock_seconds();
    if (status == TT_OK) status = load(run, place, &rank);
    if (status == TT_OK) status = tt_resume_load(&run->resume, run->job.cancel, &rank);
    if (tt_comm_rank(place->comm) == 0) run->resume.load_seconds = tt_clock_seconds() - start;
    if (status == TT_OK && run->shown.prompts.count > 0)
        status = tt_generation_team_attach(&rank, &run->data.inputs, &run->shown.limits, &team);
    if (status == TT_OK) {
        tt_device_freeze(rank.device, true);
        status = tt_run_loop(run, &rank, team);
    }
    tt_world_rank_failed(rank.world != NULL ? rank.world : place->comm, status);
    if (status != TT_OK) tt_store_hurry();
    tt_generation_team_destroy(team);
    tt_rank_deinit(&rank);
    return status;
}

static tt_status train(struct training *training)
{
    tt_status status = tt_world_run(&training->world, rank_main, &training->run);
    if (status != TT_OK) tt_rank0_files_detach(&training->files);
    return status;
}

/* ---- From its begin to its end ---- */

/* A part of a training. Those that were begun are closed in the opposite order. */
struct stage {
    tt_status (*open)(struct training *training); /* NULL: a later stage opens it */
    void (*close)(struct training *training);     /* NULL: nothing is to be closed */
    /* Each process opens alone: one that fails must still call the collective in which the others agree. */
    bool alone;
};

static const struct stage stages[] = {
    {.close = close_trackers}, /* last: they follow the files of the others */
    {.open = open_monitoring, .close = close_monitoring},
    {.open = prepare_completion, .close = drop_compared},
    {.open = open_world, .close = close_world},
    {.open = attach_monitoring, .close = close_monitoring, .alone = true},
    {.open = preflight},
    {.open = claim_output, .close = release_output, .alone = true},
    {.open = open_files, .close = close_files},
    {.open = find_completion},
    {.open = find_checkpoint, .close = close_checkpoint},
    {.open = agree_on_date},
    {.open = open_inputs, .close = close_inputs, .alone = true},
    {.open = compare_inputs},
    {.open = find_best},
    {.open = settle_inputs},
    {.open = open_plan, .close = drop_rows, .alone = true},
    {.open = find_batch},
    {.open = open_records, .close = close_records, .alone = true},
    {.open = open_push, .close = close_push, .alone = true},
    {.open = make_first_values},
    {.open = open_reference, .alone = true},
    {.open = train, .close = report_end},
};
enum { STAGES = sizeof stages / sizeof *stages };

static tt_status open_stage(const struct stage *stage, struct training *training)
{
    if (stage->open == NULL) return TT_OK;
    tt_status status = stage->open(training);
    return stage->alone ? tt_world_agree(&training->world, status) : status;
}

tt_status tt_trainer_run(const struct tt_job_spec *job, const struct tt_settings *settings,
                         const struct tt_train_observer *observer, struct tt_cancel *cancel,
                         struct tt_train_summary *summary)
{
    struct training training = {.run = {.job = tt_run_job_of(job, settings, cancel),
                                        .start_seconds = tt_clock_seconds(),
                                        .rank0.summary = summary},
                                .observer = observer};
    int begun = 0;
    *summary = (struct tt_train_summary){.last_eval_loss = NAN};
    while (begun < STAGES && training.status == TT_OK && !training.is_done)
        training.status = open_stage(&stages[begun++], &training);
    if (training.status != TT_OK) tt_rank0_files_detach(&training.files);
    while (begun > 0)
        if (stages[--begun].close != NULL) stages[begun].close(&training);
    return training.status;
}
