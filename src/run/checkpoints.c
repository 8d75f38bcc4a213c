#include "run/checkpoints.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/number.h"
#include "base/store.h"
#include "checkpoint/manifest.h"
#include "comm/host_values.h"
#include "run/best.h"
#include "run/hub_push.h"
#include "run/resume_text.h"

enum { PATH_BYTES = 4096 };
/* Wait for the parts of other ranks when the run has failed. */
static const double patience_seconds = 5.0;

static tt_status checkpoint_path(const char *output_dir, int64_t step, char path[PATH_BYTES])
{
    int length = snprintf(path, PATH_BYTES, "%s/checkpoint-%lld", output_dir, (long long)step);
    if (length >= PATH_BYTES) return tt_fail(TT_ERR_USAGE, "output_dir is too long a path");
    return TT_OK;
}

void tt_checkpoints_record_metric(struct tt_checkpoints *checkpoints, const struct tt_watch_spec *watch,
                                  double metric, int64_t step, bool saved)
{
    bool by_best = watch->save_strategy == TT_INTERVAL_BEST;
    bool tracked = watch->load_best_model_at_end || watch->metric_for_best_model != NULL || by_best ||
                   watch->early_stopping_patience > 0;
    if (step == 0 || !tracked || isnan(metric)) return;
    if (watch->load_best_model_at_end && !saved && !by_best) return;
    bool greater = tt_best_is_greater(watch);
    struct tt_best *best = &checkpoints->memory->best;
    bool better = greater ? metric > best->metric : metric < best->metric;
    if (best->known && !better) return;
    *best = (struct tt_best){.known = true, .metric = metric, .step = step};
}

/* All ranks write into the same folder: checks that all of them see a file that rank 0 creates. */
static tt_status check_shared(const char *output_dir, const struct tt_rank *rank)
{
    char path[PATH_BYTES];
    int64_t key = (int64_t)(tt_clock_unix_seconds() * 1e6);
    int me = tt_comm_rank(rank->world);
    tt_status status = TT_OK;
    TT_TRY(tt_comm_host_share(rank->world, &key, sizeof key));
    snprintf(path, sizeof path, "%s/.write-probe-%lld", output_dir, (long long)key);
    TT_TRY(tt_comm_agree(rank->world, me == 0 ? tt_file_write_atomic(path, "", 0) : TT_OK));
    if (!tt_path_exists(path)) {
        status = tt_fail(TT_ERR_USAGE, "output_dir '%s' is not the same folder on rank %d as on rank 0",
                         output_dir, me);
        tt_hint("every rank writes its part of a checkpoint there: it must be the same path in all "
                "processes, and on storage that "
                "they share where they meet by MPI (docs/sharding.md)");
    }
    status = tt_comm_agree(rank->world, status);
    if (me == 0) (void)tt_file_remove(path);
    return status;
}

tt_status tt_checkpoints_init(struct tt_checkpoints *checkpoints, struct tt_run *run, struct tt_rank *rank,
                              struct tt_memory *memory)
{
    bool first = tt_comm_rank(rank->world) == 0;
    struct tt_saver_config config = {
        .model = rank->model,
        .units = rank->units,
        .stream = rank->stream,
        .snapshot = &rank->snapshot,
        .comm = rank->world,
        .writes = rank->mesh.first_copy,
        .sharded = run->job.watch->state_dict_type == TT_STATE_DICT_SHARDED,
        .part = rank->mesh.part,
        .parts = rank->mesh.part_count,
        .dtype = tt_run_save_dtype(run->job.watch->save_dtype, rank->model),
        .stop = run->job.cancel,
        .base = run->data.inputs.folder,
        .first = run->data.inputs.source.first,
        .base_name = run->job.model->model_name_or_path,
    };
    if (!config.first.changes_base) config.first.file = NULL;
    *checkpoints = (struct tt_checkpoints){.memory = memory, .first = first};
    tt_task_run_of(&run->data.inputs)->saves(&run->data.inputs, checkpoints->task_files, &config);
    if (run->rank_config.across_processes) TT_TRY(check_shared(run->job.run->output_dir, rank));
    return tt_saver_create(&config, &checkpoints->saver);
}

/* Runs on rank 0. Reports the cost of a save to the observer and the journal, and records that of the longest save. */
static void report_save(struct tt_checkpoints *checkpoints, struct tt_run *run,
                        const struct tt_save_report *report)
{
    char line[sizeof report->folder + 200], bytes[32], took[32], stall[32];
    double prepared = checkpoints->save.prepare_seconds, stood_still = prepared + report->stall_seconds;
    double seconds = prepared + report->seconds;
    if (seconds > checkpoints->save_seconds) checkpoints->save_seconds = seconds;
    if (stood_still > checkpoints->stall_seconds) checkpoints->stall_seconds = stood_still;
    /* The time of removing older checkpoints afterwards does not count. */
    if (checkpoints->save.durable > 0) seconds = checkpoints->save.durable - checkpoints->save.begun;
    snprintf(line, sizeof line, "saved %s: %s, durable after %s; training paused for %s", report->folder,
             tt_format_bytes((double)report->bytes, bytes, sizeof bytes),
             tt_format_seconds(seconds, took, sizeof took),
             tt_format_seconds(stood_still, stall, sizeof stall));
    tt_run_report_line(&run->job, line);
    struct tt_log_field fields[] = {
        {"bytes", (double)report->bytes}, {"seconds", seconds}, {"stall_seconds", stood_still}};
    tt_journal_event(run->rank0.journal, "save", checkpoints->save.step, report->folder, fields,
                     sizeof fields / sizeof *fields);
    tt_live_save(run->live, checkpoints->save.step, seconds);
    tt_hub_push_saved(run->rank0.push, report->folder, checkpoints->save.step);
    if (run->job.observer != NULL && run->job.observer->on_save != NULL)
        run->job.observer->on_save(run->job.observer->context, report->folder, seconds);
}

void tt_checkpoints_deinit(struct tt_checkpoints *checkpoints, struct tt_run *run)
{
    struct tt_save_report report;
    struct tt_error error;
    tt_error_copy(&error);
    if (checkpoints->saver != NULL && tt_saver_complete(checkpoints->saver, patience_seconds, &report) &&
        checkpoints->first)
        report_save(checkpoints, run, &report);
    (void)tt_error_restore(&error);
    tt_saver_destroy(checkpoints->saver);
    checkpoints->saver = NULL;
}

/* A save has failed on all ranks: returns `status` to end the run, or TT_OK to continue. */
static tt_status handle_failure(const struct tt_checkpoints *checkpoints, const struct tt_watch_spec *watch,
                                tt_status status)
{
    struct tt_error error;
    tt_error_copy(&error);
    tt_status kind = status == TT_ERR_PEER ? error.cause : status;
    /* DATA: the folder was removed or is not writable */
    bool is_disk_error = kind == TT_ERR_IO || kind == TT_ERR_DATA;
    if (!is_disk_error || watch->on_save_error != TT_SAVE_ERROR_CONTINUE) return status;
    if (checkpoints->first) {
        tt_warn("a checkpoint could not be written: %s; training continues, older checkpoints are unchanged",
                error.message);
    }
    return TT_OK;
}

/* Reports once the numbers that a grace period depends on. */
static void report_grace(struct tt_checkpoints *checkpoints, const struct tt_run_job *job)
{
    char line[300], takes[32], stall[32], step[32], stop[32];
    double step_seconds = checkpoints->step_seconds;
    double save = checkpoints->save_seconds, needed = 2.0 * save + step_seconds;
    double grace = (double)job->watch->grace_seconds;
    if (checkpoints->grace_reported || step_seconds <= 0) return;
    checkpoints->grace_reported = true;
    snprintf(
        line, sizeof line,
        "a save takes %s and pauses training for %s; a step takes %s. A stop (SIGTERM) takes about %s: a "
        "grace period must be longer",
        tt_format_seconds(save, takes, sizeof takes),
        tt_format_seconds(checkpoints->stall_seconds, stall, sizeof stall),
        tt_format_seconds(step_seconds, step, sizeof step), tt_format_seconds(needed, stop, sizeof stop));
    tt_run_report_line(job, line);
    if (grace > 0 && needed > grace)
        tt_warn("a stop takes about %s, but grace_seconds are %lld: a stop may end before its checkpoint is "
                "written",
                stop, (long long)job->watch->grace_seconds);
}

/* Finishes the save in progress, if any. `must`: a failure ends the run in any case. */
static tt_status finish_save(struct tt_checkpoints *checkpoints, struct tt_run *run, bool must)
{
    struct tt_save_report report;
    bool reported = false;
    tt_status status = tt_saver_finish(checkpoints->saver, &report, &reported);
    if (reported) report_save(checkpoints, run, &report);
    if (reported && !must) report_grace(checkpoints, &run->job); /* slow ones end here */
    if (status == TT_OK || must || reported) return status;
    return handle_failure(checkpoints, run->job.watch, status);
}

tt_status tt_checkpoints_before_update(void *context)
{
    struct tt_checkpoints *checkpoints = context;
    return tt_saver_wait_copies(checkpoints->saver);
}

tt_status tt_checkpoints_poll(struct tt_checkpoints *checkpoints, struct tt_run *run, bool failed,
                              double step_seconds)
{
    struct tt_save_report report;
    checkpoints->step_seconds = step_seconds;
    if (failed) return finish_save(checkpoints, run, false);
    if (!tt_saver_collect(checkpoints->saver, &report) || !checkpoints->first) return TT_OK;
    report_save(checkpoints, run, &report);
    report_grace(checkpoints, &run->job);
    return TT_OK;
}

static tt_status make_texts(const struct tt_run *run, struct tt_save_job *job)
{
    job->texts[0].name = "trainer_state.json";
    job->texts[1].name = "trimtab_config.yaml";
    TT_TRY(tt_journal_state_text(run->rank0.journal, &job->texts[0].text));
    if (run->job.settings == NULL) return TT_OK;
    return tt_settings_write_yaml(run->job.settings, &job->texts[1].text);
}

static void drop_texts(struct tt_save_job *job)
{
    for (int i = 0; i < TT_SAVE_TEXTS_MAX; i++) tt_str_deinit(&job->texts[i].text);
}

/* A kill during the removal must not leave a part of a checkpoint under its name: the folder is first renamed to that
 * of an unfinished save, which the next run removes. */
static tt_status remove_checkpoint(const char *path)
{
    char aside[PATH_BYTES + 8];
    if (!tt_store_can(path, TT_STORE_CAN_RENAME)) return tt_dir_remove(path); /* the manifest first */
    snprintf(aside, sizeof aside, "%s.saving", path);
    TT_TRY(tt_dir_remove(aside));
    TT_TRY(tt_file_rename(path, aside));
    return tt_dir_remove(aside);
}

/* A run that began anew in the folder of an earlier one (overwrite_output_dir) removes the checkpoints of that run
 * once, when it has one of its own or its result: a resume would take the newest, which need not be this run's.
 * `newest`: this run's only checkpoint; -1: it has none. */
static tt_status remove_replaced(struct tt_checkpoints *checkpoints, const struct tt_run *run, int64_t newest)
{
    if (checkpoints->keep.replaced || run->resume.folder != NULL) return TT_OK;
    tt_status status = TT_OK;
    int64_t *steps = NULL;
    size_t count = 0;
    TT_GO(tt_checkpoint_list(run->job.run->output_dir, &steps, &count));
    for (size_t i = 0; i < count; i++) {
        char path[PATH_BYTES];
        if (steps[i] == newest) continue;
        TT_GO(checkpoint_path(run->job.run->output_dir, steps[i], path));
        TT_GO(remove_checkpoint(path));
    }
    checkpoints->keep.replaced = true;
out:
    tt_free(steps);
    return status;
}

/* Removes checkpoints beyond the limit: first those of later steps than the newest, which an earlier run left, then the
 * oldest. The best and the newest are kept. Called in the thread of the save. */
static tt_status remove_old(void *context)
{
    const struct tt_checkpoints *checkpoints = context;
    const struct tt_run *run = checkpoints->keep.run;
    int64_t limit = run->job.watch->save_total_limit, newest = checkpoints->keep.newest;
    if (limit <= 0) return TT_OK;
    tt_status status = TT_OK;
    int64_t *steps = NULL;
    size_t count = 0;
    TT_GO(tt_checkpoint_list(run->job.run->output_dir, &steps, &count));
    int64_t excess = (int64_t)count - limit;
    for (size_t i = 0; i < 2 * count && excess > 0; i++) {
        char path[PATH_BYTES];
        int64_t step = steps[count - 1 - i % count];
        bool left_over = step > newest;
        bool is_best = checkpoints->keep.best.known && step == checkpoints->keep.best.step;
        if (left_over != (i < count) || step == newest || is_best) continue;
        TT_GO(checkpoint_path(run->job.run->output_dir, step, path));
        if (!tt_hub_push_defers(run->rank0.push, path, remove_checkpoint)) TT_GO(remove_checkpoint(path));
        excess--;
    }
out:
    tt_free(steps);
    return status;
}

/* Passes the best checkpoint to the journal, for trainer_state.json. `saved`: step of the save that begins, or -1. */
static tt_status report_best(const struct tt_checkpoints *checkpoints, struct tt_run *run, int64_t saved)
{
    const struct tt_best *best = &checkpoints->memory->best;
    char path[PATH_BYTES];
    if (!best->known) return TT_OK;
    TT_TRY(tt_best_path(run->job.run->output_dir, best, path));
    bool exists = best->step == saved || tt_path_exists(path);
    return tt_journal_best(run->rank0.journal, best->step, best->metric, exists ? path : NULL);
}

/* Called in the thread of the save when the new checkpoint is published. */
static tt_status on_published(void *context)
{
    struct tt_checkpoints *checkpoints = context;
    checkpoints->save.durable = tt_clock_seconds();
    TT_TRY(remove_replaced(checkpoints, checkpoints->keep.run, checkpoints->keep.newest));
    return remove_old(checkpoints);
}

static void record_begin(struct tt_checkpoints *checkpoints, int64_t step)
{
    checkpoints->save.step = step;
    checkpoints->save.begun = tt_clock_seconds();
    checkpoints->save.durable = 0;
    checkpoints->save.prepare_seconds = 0;
}

static tt_status make_job(struct tt_checkpoints *checkpoints, struct tt_run *run, const struct tt_rank *rank,
                          int64_t step, struct tt_save_job *job)
{
    TT_TRY(report_best(checkpoints, run, step));
    TT_TRY(make_texts(run, job));
    job->texts[2].name = "training_state.json";
    if (!job->state) return TT_OK;
    return tt_resume_text(run, rank, step, checkpoints->memory, &job->texts[2].text);
}

tt_status tt_checkpoints_save(struct tt_checkpoints *checkpoints, struct tt_run *run, struct tt_rank *rank,
                              int64_t step)
{
    char path[PATH_BYTES];
    bool first = tt_comm_rank(rank->world) == 0;
    struct tt_save_job job = {.folder = path, .step = step, .state = !run->job.watch->save_only_model};
    TT_TRY(finish_save(checkpoints, run, false));
    TT_TRY(checkpoint_path(run->job.run->output_dir, step, path));
    tt_status status = TT_OK;
    if (first) {
        checkpoints->keep.run = run;
        checkpoints->keep.best = checkpoints->memory->best;
        checkpoints->keep.newest = step;
        job.published = on_published;
        job.context = checkpoints;
        record_begin(checkpoints, step);
        status = tt_output_dir_hold(&run->rank0.output);
        if (status == TT_OK) status = make_job(checkpoints, run, rank, step, &job);
        checkpoints->save.prepare_seconds = tt_clock_seconds() - checkpoints->save.begun;
    }
    if (status == TT_OK)
        status = tt_saver_begin(checkpoints->saver, &job);
    else
        drop_texts(&job);
    return status;
}

/* Enforces the limit in a resumed run that makes no save: the earlier part may have been killed between its last save
 * and the removal of an old checkpoint. */
static tt_status keep_limit(struct tt_checkpoints *checkpoints, const struct tt_run *run)
{
    int64_t *steps = NULL;
    size_t count = 0;
    if (run->resume.folder == NULL || checkpoints->keep.run != NULL) return TT_OK;
    TT_TRY(tt_checkpoint_list(run->job.run->output_dir, &steps, &count));
    checkpoints->keep.run = run;
    checkpoints->keep.best = checkpoints->memory->best;
    checkpoints->keep.newest = count > 0 ? steps[0] : 0;
    tt_free(steps);
    return remove_old(checkpoints);
}

tt_status tt_checkpoints_finish(struct tt_checkpoints *checkpoints, struct tt_run *run, struct tt_rank *rank,
                                int64_t step, bool stopped)
{
    bool first = tt_comm_rank(rank->world) == 0;
    struct tt_save_job job = {.folder = run->job.run->output_dir, .merge = true};
    TT_TRY(finish_save(checkpoints, run, stopped));
    TT_TRY(tt_best_restore(&run->job, &run->data.inputs.source, rank, &checkpoints->memory->best));
    tt_status status = first ? report_best(checkpoints, run, -1) : TT_OK;
    record_begin(checkpoints, step);
    if (status == TT_OK && first) status = tt_output_dir_hold(&run->rank0.output);
    if (status == TT_OK && first) status = keep_limit(checkpoints, run);
    if (status == TT_OK && first) status = make_texts(run, &job);
    if (status == TT_OK)
        status = tt_saver_begin(checkpoints->saver, &job);
    else
        drop_texts(&job);
    if (status == TT_OK) status = finish_save(checkpoints, run, true);
    if (status == TT_OK && first) status = remove_replaced(checkpoints, run, -1);
    return status;
}
