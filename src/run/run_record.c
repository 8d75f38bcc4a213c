#include "run/run_record.h"

#include <string.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "run/row_times.h"

static const char file_name[] = "run.json";
enum { EARLIER_BYTES_MAX = 16 << 20 };

static struct tt_json_value *memory_object(const struct tt_plan *plan)
{
    struct tt_json_value *object = tt_json_new_object();
    for (int p = 0; p < TT_PURPOSE_COUNT; p++)
        if (plan->memory.peak[p] > 0)
            tt_json_set(object, tt_row_times_purpose((enum tt_purpose)p),
                        tt_json_new_integer((int64_t)plan->memory.peak[p]));
    return object;
}

static struct tt_json_value *begin_object(const struct tt_run *run, const struct tt_world *world,
                                          const char *config)
{
    char recompute[96];
    const char *named = tt_task_run_of(&run->data.inputs)->weights(&run->data.inputs, run->job.model);
    const struct tt_plan *plan = &run->plan;
    struct tt_json_value *object =
        tt_json_pack("{s:i, s:s, s:s, s:s, s:f, s:I}", "format", 1, "program", "trimtab " TT_VERSION, "state",
                     "running", "model", named != NULL ? named : "random weights", "begun",
                     tt_clock_unix_seconds(), "restarts", run->rank0.restarts);
    struct tt_json_value *ranks = tt_json_pack(
        "{s:i, s:i, s:s, s:s, s:i, s:s}", "count", world->world_size, "machines", world->machine_count,
        "device", plan->device, "strategy", tt_shard_strategy_name(run->rank_config.strategy), "threads",
        world->threads_per_rank, "recompute", tt_plan_recompute_text(plan, recompute, sizeof recompute));
    struct tt_json_value *steps = tt_json_pack("{s:I, s:I, s:I}", "first", run->length.first_step, "total",
                                               run->length.total_steps, "epoch", run->length.steps_per_epoch);
    struct tt_json_value *parameters =
        tt_json_pack("{s:I, s:I}", "trainable", plan->trainable_count, "all", plan->param_count);
    struct tt_json_value *planned =
        tt_json_pack("{s:I, s:I, s:o}", "device_bytes", (int64_t)plan->memory.total_peak, "limit_bytes",
                     (int64_t)plan->limit_bytes, "bytes", memory_object(plan));
    const char *name = run->job.watch->run_name;
    tt_json_set(object, "ranks", ranks);
    tt_json_set(object, "steps", steps);
    tt_json_set(object, "parameters", parameters);
    tt_json_set(object, "plan", planned);
    if (name != NULL) tt_json_set(object, "name", tt_json_new_string(name));
    tt_json_set(object, "config", tt_json_new_string(config));
    return tt_json_finish(object);
}

/* A run that was asked to resume follows the one whose record is in the folder, also when that one died before its
 * first checkpoint. A record that cannot be read counts as none. */
static int64_t count_restarts(const struct tt_run *run)
{
    struct tt_path path;
    struct tt_json earlier = {0};
    int64_t restarts = run->resume.folder != NULL ? 1 : 0, before = 0;
    if (!tt_resume_is_requested(run->job.run->resume_from_checkpoint)) return 0;
    tt_status status = tt_path_set(&path, run->job.run->output_dir, file_name);
    if (status == TT_OK && tt_path_exists(path.text)) {
        status = tt_json_read(path.text, EARLIER_BYTES_MAX, &earlier);
        if (status == TT_OK) status = tt_json_opt_int(&earlier, earlier.root, "restarts", &before);
        if (status == TT_OK && before >= 0 && before < INT32_MAX) restarts = before + 1;
        tt_json_deinit(&earlier);
    }
    tt_error_clear();
    return restarts;
}

bool tt_run_record_interrupted(const char *output_dir)
{
    struct tt_path path;
    struct tt_json earlier = {0};
    const char *state = NULL;
    tt_status status = tt_path_set(&path, output_dir, file_name);
    if (status == TT_OK && !tt_path_exists(path.text)) return false;
    if (status == TT_OK) status = tt_json_read(path.text, EARLIER_BYTES_MAX, &earlier);
    if (status == TT_OK) status = tt_json_opt_string(&earlier, earlier.root, "state", &state);
    bool interrupted =
        status == TT_OK && state != NULL && (strcmp(state, "running") == 0 || strcmp(state, "failed") == 0);
    tt_json_deinit(&earlier);
    tt_error_clear();
    return interrupted;
}

static void write_record(struct tt_run *run)
{
    tt_status status = tt_json_write_file(run->rank0.record, 2, false, run->job.run->output_dir, file_name);
    if (status == TT_OK) return;
    tt_warn("%s; training continues without %s", tt_error_last()->message, file_name);
    tt_error_clear();
}

void tt_run_record_begin(struct tt_run *run, const struct tt_world *world)
{
    struct tt_str config = {0};
    run->rank0.restarts = count_restarts(run);
    tt_status status = run->job.settings != NULL ? tt_settings_write_yaml(run->job.settings, &config) : TT_OK;
    if (status == TT_OK) run->rank0.record = begin_object(run, world, tt_str_text(&config));
    tt_str_deinit(&config);
    write_record(run);
}

void tt_run_record_end(struct tt_run *run, tt_status status)
{
    struct tt_error error;
    char text[TT_ERROR_TEXT_BYTES];
    if (run->rank0.record == NULL) return;
    tt_error_copy(&error);
    tt_error_format(&error, text, sizeof text);
    const char *state = status == TT_OK ? "ended" : status == TT_ERR_CANCELLED ? "stopped" : "failed";
    tt_json_set(run->rank0.record, "state", tt_json_new_string(state));
    tt_json_set(run->rank0.record, "ended", tt_json_new_real(tt_clock_unix_seconds()));
    if (status != TT_OK) tt_json_set(run->rank0.record, "error", tt_json_new_string(text));
    write_record(run);
    tt_json_release(run->rank0.record);
    run->rank0.record = NULL;
    if (status != TT_OK) (void)tt_error_restore(&error);
}
