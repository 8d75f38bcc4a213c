#include "run/trainer.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/file_remote.h"
#include "base/log.h"
#include "base/number.h"
#include "comm/host_values.h"
#include "engine/rank_config.h"
#include "infer/generation_rank.h"
#include "launch/devices.h"
#include "launch/world.h"
#include "optim/schedule.h"
#include "run/checkpoints.h"
#include "run/completion.h"
#include "run/data_order.h"
#include "run/disk_space.h"
#include "doctor/doctor.h"
#include "run/monitoring.h"
#include "run/open_world.h"
#include "run/output_dir.h"
#include "run/rank0_files.h"
#include "run/run.h"
#include "run/run_plan.h"
#include "run/run_record.h"
#include "run/tracker.h"

/* An interval in steps: a share of all steps if `every` is below 1; 0: never. */
static int64_t resolve_interval(enum tt_interval strategy, double every, int64_t per_epoch, int64_t total)
{
    if (strategy == TT_INTERVAL_EPOCH) return per_epoch;
    if (strategy != TT_INTERVAL_STEPS || every <= 0.0) return 0;
    return tt_run_to_steps(every < 1.0 ? ceil((double)total * every) : every);
}

static void resolve_intervals(struct tt_run *run)
{
    const struct tt_watch_spec *watch = run->watch;
    int64_t per_epoch = run->steps_per_epoch, total = run->total_steps;
    run->logging_steps = resolve_interval(watch->logging_strategy, watch->logging_steps, per_epoch, total);
    run->eval_steps = resolve_interval(watch->eval_strategy, watch->eval_steps, per_epoch, total);
    run->save_steps = resolve_interval(watch->save_strategy, watch->save_steps, per_epoch, total);
}

static tt_status report_model(const struct tt_run *run, const struct tt_model *model,
                              const struct tt_world *world)
{
    char line[512], recompute[96];
    tt_run_report(run, tt_model_format_counts(model, line, sizeof line));
    struct tt_str text = {0};
    tt_status status = tt_model_describe_adapted(model, &text);
    if (text.bytes > 0) tt_run_report(run, tt_str_text(&text));
    tt_str_clear(&text);
    if (status == TT_OK) status = tt_quantization_describe(model, &text);
    if (text.bytes > 0) tt_run_report(run, tt_str_text(&text));
    tt_str_clear(&text);
    if (status == TT_OK && strcmp(run->rank_config.device.kind, "cuda") == 0) {
        status = tt_devices_describe(run->rank_config.device.index, world->local_count, &text);
        if (status == TT_OK) tt_run_report(run, tt_str_text(&text));
        tt_str_clear(&text);
    }
    if (status == TT_OK) status = tt_plan_format(&run->plan, &text);
    if (status == TT_OK) tt_run_report(run, tt_str_text(&text));
    tt_str_deinit(&text);
    snprintf(line, sizeof line, "%lld step%s, %lld an epoch, on %d rank%s (%s, %s) of %d thread%s, %s, %s",
             (long long)run->total_steps, run->total_steps == 1 ? "" : "s", (long long)run->steps_per_epoch,
             world->world_size, world->world_size == 1 ? "" : "s", tt_comm_kind(world->ranks[0].comm),
             tt_shard_strategy_name(run->rank_config.strategy), world->threads_per_rank,
             world->threads_per_rank == 1 ? "" : "s",
             tt_dtype_torch_name(run->inputs.model_options.compute_dtype),
             tt_plan_recompute_text(&run->plan, recompute, sizeof recompute));
    tt_run_report(run, line);
    struct tt_str resume = {0};
    if (status == TT_OK) status = tt_resume_describe(run, world, &resume);
    if (resume.bytes > 0) tt_run_report_line(run, tt_str_text(&resume));
    tt_str_deinit(&resume);
    return status;
}

/* All checks that are possible before a byte of weights is read. */
static tt_status check_before_start(struct tt_run *run, const struct tt_world *world)
{
    tt_status status = TT_OK;
    struct tt_model *model = NULL;
    TT_GO(tt_model_create(&run->inputs.model_facts, &run->inputs.model_options, &model));
    TT_GO(tt_inputs_check_model(&run->inputs, model));
    TT_GO(tt_resume_check_model(run, model));
    if (world->first_rank == 0) TT_GO(tt_disk_space_check(run, model));
    TT_GO(tt_run_plan_make(run, world, true));
    TT_GO(tt_task_run_of(&run->inputs)->report(run));
    TT_GO(report_model(run, model, world));
    TT_GO(tt_plan_check_here(&run->plan, tt_world_ranks_here(world)));
out:
    tt_model_destroy(model);
    return status;
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
    struct tt_load_source source = run->inputs.source;
    source.cancel = run->cancel;
    double start = tt_clock_seconds();
    if (status == TT_OK) status = tt_rank_load(&rank, &source);
    if (status == TT_OK) status = tt_resume_load(run, &rank);
    if (tt_comm_rank(place->comm) == 0) run->resume.load_seconds = tt_clock_seconds() - start;
    if (status == TT_OK && run->shown.prompts.count > 0)
        status = tt_generation_team_attach(&rank, &run->inputs, &run->shown.limits, &team);
    if (status == TT_OK) {
        tt_device_freeze(rank.device, true);
        status = tt_run_loop(run, &rank, team);
    }
    tt_world_rank_failed(rank.world != NULL ? rank.world : place->comm, status);
    if (status != TT_OK) tt_remote_hurry();
    tt_generation_team_destroy(team);
    tt_rank_deinit(&rank);
    return status;
}

/* Value of TrainerState.eval_steps for a run that does not evaluate by steps. */
enum { STATED_EVAL_STEPS = 500 };

/* transformers' TrainerState.compute_steps: the number in trainer_state.json, also for a strategy by epochs. */
static int64_t stated_steps(double every, int64_t total)
{
    return tt_run_to_steps(every < 1.0 ? ceil((double)total * every) : every);
}

static tt_status open_journal(struct tt_run *run)
{
    const struct tt_watch_spec *watch = run->watch;
    struct tt_journal_facts facts = {
        .max_steps = run->total_steps,
        .train_batch_size = run->spec->per_device_train_batch_size,
        .num_train_epochs = (double)run->total_steps / (double)run->steps_per_epoch,
        .logging_steps = stated_steps(watch->logging_steps, run->total_steps),
        .eval_steps =
            watch->eval_steps > 0 ? stated_steps(watch->eval_steps, run->total_steps) : STATED_EVAL_STEPS,
        .save_steps = stated_steps(watch->save_steps, run->total_steps),
    };
    return tt_journal_open(run->spec->output_dir, watch, &facts, run->observer, &run->journal);
}

struct dating {
    struct tt_run *run;
    int first_rank;
};

static tt_status share_date(void *context, const struct tt_world_rank *rank)
{
    const struct dating *dating = context;
    char date[TT_CHAT_DATE_BYTES];
    memcpy(date, dating->run->date, sizeof date);
    TT_TRY(tt_comm_host_share(rank->comm, date, sizeof date));
    if (tt_comm_rank(rank->comm) == dating->first_rank) memcpy(dating->run->date, date, sizeof date);
    return TT_OK;
}

/* All processes have the date of rank 0's clock. */
static tt_status agree_on_date(struct tt_run *run, struct tt_world *world)
{
    struct dating dating = {run, world->first_rank};
    tt_chat_now(run->date);
    return world->local_count == world->world_size ? TT_OK : tt_world_run(world, share_date, &dating);
}

/* A resumed run has the date that it began with, so that its prompts stay what they were. */
static tt_status resolve_date(struct tt_run *run)
{
    const char *given = run->data->date;
    if (given == NULL && run->resume.folder != NULL)
        TT_TRY(tt_json_opt_string(&run->resume.state, run->resume.state.root, "date", &given));
    if (given == NULL) return TT_OK;
    if (strlen(given) >= sizeof run->date)
        return tt_fail(TT_ERR_USAGE, "date '%.64s' is not YYYY-MM-DD or YYYY-MM-DD HH:MM:SS", given);
    tt_snprintf(run->date, sizeof run->date, "%s", given);
    return TT_OK;
}

/* A file that takes a moment is named before it is read. */
static void announce_rows(const struct tt_run *run, const char *path)
{
    enum { LARGE_BYTES = 32 << 20 };
    char line[400], size[32];
    struct stat info;
    if (path == NULL || stat(path, &info) != 0 || !S_ISREG(info.st_mode) || info.st_size < LARGE_BYTES)
        return;
    tt_snprintf(line, sizeof line, "reading '%.300s' (%s)", path,
                tt_format_bytes((double)info.st_size, size, sizeof size));
    tt_run_report_line(run, line);
}

tt_status tt_run_open_inputs(struct tt_run *run, const struct tt_job_spec *job, const struct tt_world *world)
{
    struct tt_inputs_config inputs = tt_inputs_config_of(job, TT_INPUTS_TRAIN);
    struct tt_data_config data = *inputs.data;
    data.date = run->date;
    inputs.data = &data;
    inputs.share = tt_world_share(world);
    announce_rows(run, data.dataset_name);
    TT_TRY(tt_inputs_open(&inputs, &run->inputs));
    return tt_fingerprint_compute(job->launch.verify_inputs, tt_str_text(&world->settings), &run->inputs,
                                  run->resume.folder, run->cancel, &run->fingerprint);
}

void tt_run_close_inputs(struct tt_run *run)
{
    tt_run_close_data(run);
    tt_inputs_close(&run->inputs);
    tt_fingerprint_deinit(&run->fingerprint);
}

static tt_status open_inputs(struct tt_run *run, const struct tt_job_spec *job, const struct tt_world *world)
{
    TT_TRY(tt_schedule_check(run->optim));
    TT_TRY(tt_resume_open(run));
    /* A run that was killed amid its end, without a checkpoint, begins again over a part of its result. */
    bool goes_on = run->resume.folder != NULL || (tt_resume_is_requested(run->spec->resume_from_checkpoint) &&
                                                  tt_run_record_interrupted(run));
    if (world->first_rank == 0) TT_TRY(tt_output_dir_check(&run->output, run->spec, goes_on));
    TT_TRY(resolve_date(run));
    return tt_run_open_inputs(run, job, world);
}

/* No run depends on them. */
static void open_trackers(struct tt_run *run)
{
    struct tt_tracker_config config;
    if ((run->watch->report_to & TT_REPORT_NONE) != 0) return;
    if (tt_tracker_config_init(run, &config) != TT_OK) {
        tt_warn("%s; training continues without trackers", tt_error_last()->message);
        tt_error_clear();
        return;
    }
    tt_tracker_config_show(&config, run->journal);
    run->trackers = tt_trackers_open(run, &config);
    tt_tracker_config_deinit(&config);
}

static tt_status prepare(struct tt_run *run, const struct tt_world *world)
{
    TT_TRY(tt_run_order_data(run, world->world_size));
    resolve_intervals(run);
    TT_TRY(tt_resume_prepare(run, world));
    TT_TRY(check_before_start(run, world));
    if (world->first_rank > 0) return TT_OK;
    TT_TRY(tt_completion_remove(run));
    TT_TRY(open_journal(run));
    TT_TRY(tt_shown_rows_open(run->spec->output_dir, run->first_step, &run->shown));
    const struct tt_task_run_ops *task = tt_task_run_of(&run->inputs);
    if (task->show != NULL) TT_TRY(task->show(run));
    tt_run_record_begin(run, world);
    open_trackers(run);
    return TT_OK;
}

/* Rank 0 logs the result, and the failed rank reports an error. This adds one last line to the logs of all others. */
static void report_end(const struct tt_run *run, const struct tt_world *world, tt_status status)
{
    if (status == TT_OK && world->first_rank > 0)
        tt_notice("rank %d of %d: training is complete, %lld steps", world->first_rank, world->world_size,
                  (long long)run->total_steps);
    if (status == TT_ERR_PEER || status == TT_ERR_COMM || status == TT_ERR_DEVICE)
        tt_resume_hint(run->spec->output_dir, world->first_rank == 0);
}

tt_status tt_trainer_run(const struct tt_job_spec *job, const struct tt_settings *settings,
                         const struct tt_train_observer *observer, struct tt_cancel *cancel,
                         struct tt_train_summary *summary)
{
    tt_status status = TT_OK;
    struct tt_world world = {0};
    struct tt_rank0_files files = {0};
    struct tt_monitoring monitoring = {0};
    bool complete = false; /* before it began */
    struct tt_run run = {
        .job = job,
        .objective = &job->objective,
        .model = &job->model,
        .data = &job->data,
        .optim = &job->optim,
        .spec = &job->run,
        .watch = &job->watch,
        .tuning = &job->device.tuning,
        .settings = settings,
        .profiles = job->monitor.profile,
        .cancel = cancel,
        .start_seconds = tt_clock_seconds(),
        .summary = summary,
    };
    *summary = (struct tt_train_summary){.last_eval_loss = NAN};
    TT_GO(tt_monitoring_open(job, &monitoring));
    TT_GO(tt_completion_prepare(&run, job));
    status = tt_run_open_world(TT_JOB_TRAIN, job, cancel, &world);
    if (tt_completion_explains(&run, job, status)) status = TT_OK, complete = true;
    if (status != TT_OK || complete) goto out;
    memcpy(run.name, world.run, sizeof run.name);
    run.observer = world.first_rank == 0 ? observer : NULL;
    TT_GO(tt_world_agree(&world, tt_monitoring_attach(&monitoring, &run, &world)));
    if (job->launch.preflight == TT_PREFLIGHT_QUICK) TT_GO(tt_doctor_preflight(job, &world));
    /* A process that fails here must still call the collective in which the others agree. */
    if (world.first_rank == 0) status = tt_output_dir_claim(run.spec, run.model, world.restarts, &run.output);
    TT_GO(tt_world_agree(&world, status));
    TT_GO(tt_rank0_files_open(job, &world, &files));
    TT_GO(tt_completion_find(&run, job, &world, &complete));
    if (complete) goto ended;
    TT_GO(tt_resume_find(&run, &world));
    TT_GO(agree_on_date(&run, &world));
    TT_GO(tt_world_agree(&world, open_inputs(&run, job, &world)));
    TT_GO(tt_fingerprint_compare(&run.fingerprint, &world));
    TT_GO(tt_best_find(&run, &world));
    TT_GO(tt_world_settle_inputs(&world, &run.inputs));
    TT_GO(tt_world_agree(&world, tt_run_plan_open(&run, &job->shard, &world)));
    TT_GO(tt_run_plan_find_batch(&run, &world));
    TT_GO(tt_world_agree(&world, prepare(&run, &world)));
    status = tt_world_run(&world, rank_main, &run);
    if (status != TT_OK) tt_rank0_files_detach(&files);
ended:
    report_end(&run, &world, status);
out:
    if (status != TT_OK) tt_rank0_files_detach(&files);
    tt_run_record_end(&run, status);
    tt_journal_close(run.journal);
    tt_output_dir_release(&run.output, status != TT_OK);
    tt_resume_close(&run.resume);
    tt_shown_rows_deinit(&run.shown);
    tt_shown_pictures_deinit(&run.pictures);
    tt_run_close_inputs(&run);
    tt_str_deinit(&run.compared);
    tt_rank0_files_close(&files);
    tt_monitoring_close(&monitoring);
    tt_world_close(&world);
    tt_trackers_close(run.trackers, status == TT_ERR_CANCELLED);
    return status;
}
