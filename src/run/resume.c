#include "run/resume.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/number.h"
#include "checkpoint/manifest.h"
#include "comm/host_values.h"
#include "engine/rank_config.h"
#include "io/halves.h"
#include "launch/world.h"
#include "model/adapter_config.h"
#include "model/lora_init.h"
#include "optim/schedule.h"
#include "run/run_data.h"

enum { PATH_BYTES = 4096, STATE_BYTES_MAX = 256 << 20, VERSION = 2 };

bool tt_resume_is_requested(const char *setting)
{
    static const char *const no[] = {"", "false", "False", "no", "None"};
    for (size_t i = 0; setting != NULL && i < sizeof no / sizeof *no; i++)
        if (strcmp(setting, no[i]) == 0) return false;
    return setting != NULL;
}

bool tt_resume_means_newest(const char *setting)
{
    static const char *const yes[] = {"true", "True", "yes", "last", "latest"};
    for (size_t i = 0; i < sizeof yes / sizeof *yes; i++)
        if (strcmp(setting, yes[i]) == 0) return true;
    return false;
}

static void log_skipped(void *context, const char *path, const char *reason)
{
    (void)context;
    tt_warn("%s is skipped: %s", path, reason);
}

static tt_status verify_named(const struct tt_run_job *job, const char *folder)
{
    struct tt_manifest manifest = {0};
    if (!tt_path_is_dir(folder)) {
        tt_status status = tt_fail(TT_ERR_USAGE, "resume_from_checkpoint: there is no folder '%s'", folder);
        tt_hint("true selects the newest whole checkpoint of output_dir");
        return status;
    }
    TT_TRY(tt_manifest_read(folder, &manifest));
    tt_status status = tt_manifest_verify(&manifest, folder, job->cancel);
    tt_manifest_deinit(&manifest);
    return status;
}

/* Finds the checkpoint to resume from, in the process of rank 0. */
static tt_status find(const struct tt_run_job *job, struct tt_resume *resume)
{
    const char *setting = job->run->resume_from_checkpoint, *output = job->run->output_dir;
    size_t skipped_count = 0;
    if (!tt_resume_means_newest(setting)) {
        resume->folder = tt_strdup(setting);
        if (resume->folder == NULL) return TT_ERR_MEMORY;
        return verify_named(job, setting);
    }
    const struct tt_checkpoint_search search = {
        .output_dir = output, .cancel = job->cancel, .skipped = log_skipped};
    TT_TRY(tt_checkpoint_find_newest(&search, &resume->folder, &skipped_count));
    if (resume->folder != NULL || skipped_count == 0) return TT_OK;
    tt_status status =
        tt_fail(TT_ERR_DATA, "none of the %zu checkpoints in '%s' is whole", skipped_count, output);
    tt_hint("the warnings above give the reason for each; without resume_from_checkpoint and with "
            "overwrite_output_dir the run starts from the beginning");
    return status;
}

/* The newest published checkpoint, owned. It was whole when it was written; only a resume verifies every byte. NULL:
 * none was found. */
static char *find_published(const char *output_dir)
{
    int64_t *steps = NULL;
    size_t count = 0;
    char *path = NULL;
    if (tt_checkpoint_list(output_dir, &steps, &count) != TT_OK) return NULL;
    for (size_t i = 0; i < count && path == NULL; i++) {
        struct tt_manifest manifest = {0};
        path = tt_checkpoint_path(output_dir, steps[i]);
        if (path != NULL && tt_manifest_read(path, &manifest) == TT_OK) {
            tt_manifest_deinit(&manifest);
            continue;
        }
        tt_free(path);
        path = NULL;
    }
    tt_free(steps);
    return path;
}

void tt_resume_hint(const char *output_dir, bool first)
{
    struct tt_error error;
    tt_error_copy(&error);
    char *path = find_published(output_dir);
    size_t used = strlen(error.hint), room = sizeof error.hint - used;
    const char *between = used > 0 ? "; " : "";
    if (path != NULL)
        snprintf(error.hint + used, room,
                 "%sthe newest whole checkpoint is '%s': the same command with --resume_from_checkpoint true "
                 "resumes from it",
                 between, path);
    else if (first)
        snprintf(error.hint + used, room,
                 "%sno checkpoint is complete: the same command starts from the beginning", between);
    tt_free(path);
    (void)tt_error_restore(&error);
}

static tt_status find_and_time(const struct tt_run_job *job, struct tt_resume *resume)
{
    struct tt_manifest manifest = {0};
    double start = tt_clock_seconds();
    TT_TRY(find(job, resume));
    resume->verify_seconds = tt_clock_seconds() - start;
    if (resume->folder == NULL) return TT_OK;
    TT_TRY(tt_manifest_read(resume->folder, &manifest));
    for (size_t i = 0; i < manifest.count; i++) resume->bytes += manifest.files[i].bytes;
    tt_manifest_deinit(&manifest);
    return TT_OK;
}

struct sharing {
    struct tt_resume *resume;
    int first_rank;
};

/* Sends the folder that rank 0 found to all ranks; the first rank of each process stores it. */
static tt_status share_path(void *context, const struct tt_world_rank *rank)
{
    const struct sharing *sharing = context;
    struct tt_resume *resume = sharing->resume;
    int me = tt_comm_rank(rank->comm);
    char path[PATH_BYTES] = "";
    if (me == 0 && resume->folder != NULL) snprintf(path, sizeof path, "%s", resume->folder);
    tt_status status = TT_OK;
    TT_TRY(tt_comm_host_share(rank->comm, path, sizeof path));
    if (me == sharing->first_rank && resume->folder == NULL && path[0] != '\0') {
        resume->folder = tt_strdup(path);
        if (resume->folder == NULL) status = TT_ERR_MEMORY;
    }
    return tt_comm_agree(rank->comm, status);
}

tt_status tt_resume_find(const struct tt_run_job *job, struct tt_resume *resume, struct tt_world *world)
{
    if (!tt_resume_is_requested(job->run->resume_from_checkpoint)) return TT_OK;
    TT_TRY(tt_world_agree(world, world->first_rank == 0 ? find_and_time(job, resume) : TT_OK));
    if (world->local_count == world->world_size) return TT_OK;
    struct sharing sharing = {resume, world->first_rank};
    return tt_world_run(world, share_path, &sharing);
}

static tt_status read_json(const char *folder, const char *name, struct tt_json *json)
{
    struct tt_path path;
    TT_TRY(tt_path_set(&path, folder, name));
    return tt_json_read(path.text, STATE_BYTES_MAX, json);
}

/* Sets *masters if the weights files are fp32 and hold the masters; otherwise the state holds them. */
static tt_status holds_masters(const struct tt_resume *resume, bool *masters)
{
    const char *dtype;
    TT_TRY(tt_json_string(&resume->state, resume->state.root, "weights_dtype", &dtype));
    *masters = strcmp(dtype, "float32") == 0;
    return TT_OK;
}

static tt_status open_weights(struct tt_resume *resume)
{
    bool masters;
    TT_TRY(holds_masters(resume, &masters));
    struct tt_path path;
    TT_TRY(tt_path_set(&path, resume->folder, "adapter_model.safetensors"));
    tt_status status = TT_OK;
    if (tt_path_exists(path.text))
        status = tt_safetensors_open(path.text, &resume->adapter);
    else if (masters)
        status = tt_model_folder_open(resume->folder, true, &resume->weights);
    return status;
}

tt_status tt_resume_open(struct tt_resume *resume)
{
    int64_t version;
    tt_status status = TT_OK;
    if (resume->folder == NULL) return TT_OK;
    /* fails with its own message for save_only_model */
    TT_GO(tt_state_open(resume->folder, &resume->tensors));
    TT_GO(read_json(resume->folder, "training_state.json", &resume->state));
    TT_GO(tt_json_int(&resume->state, resume->state.root, "version", &version));
    if (version != VERSION)
        TT_GO(tt_fail(TT_ERR_DATA, "'%s' is of version %lld; %d is expected", resume->state.origin,
                      (long long)version, VERSION));
    TT_GO(tt_json_int(&resume->state, resume->state.root, "step", &resume->step));
    TT_GO(read_json(resume->folder, "trainer_state.json", &resume->trainer));
    TT_GO(tt_resume_best(&resume->state, &resume->best));
    TT_GO(open_weights(resume));
out:
    if (status != TT_OK) tt_while("resuming from '%s'", resume->folder);
    return status;
}

void tt_resume_close(struct tt_resume *resume)
{
    tt_safetensors_close(resume->adapter);
    tt_model_folder_close(resume->weights);
    tt_state_close(resume->tensors);
    tt_json_deinit(&resume->state);
    tt_json_deinit(&resume->trainer);
    tt_free(resume->folder);
    tt_free(resume->best_folder);
    *resume = (struct tt_resume){0};
}

/* Appends the changes of input files that make this another run to `text`, and logs a warning about all others. */
static tt_status check_inputs(const struct tt_resume *resume, const struct tt_fingerprint *now,
                              struct tt_str *text)
{
    const struct tt_json_value *before;
    struct tt_str broken = {0}, changed = {0};
    tt_status status = TT_OK;
    TT_GO(tt_json_object(&resume->state, resume->state.root, "inputs", &before));
    TT_GO(tt_fingerprint_changes(now, before, &broken, &changed));
    if (changed.bytes > 0)
        tt_warn("since '%s' was saved, input files have changed: %s", resume->folder, tt_str_text(&changed));
    if (broken.bytes > 0)
        TT_GO(tt_str_printf(text, "%s%s", text->bytes > 0 ? "; " : "", tt_str_text(&broken)));
out:
    tt_str_deinit(&broken);
    tt_str_deinit(&changed);
    return status;
}

/* Other accumulation steps often keep the number of samples of a step on another number of ranks. */
static void hint_changed(const struct tt_run_spec *run, const struct tt_json_value *before,
                         const struct tt_world *world)
{
    int64_t was = tt_json_integer(tt_json_get(before, TT_RESUME_SAMPLES));
    int64_t pass = tt_world_data_size(world) * run->per_device_train_batch_size;
    if (was > 0 && was % pass == 0 && was / pass != run->gradient_accumulation_steps)
        tt_hint("with ranks %d --gradient_accumulation_steps %lld makes %lld samples a step as before; "
                "--resume_changed resumes anyway",
                world->world_size, (long long)(was / pass), (long long)was);
    else
        tt_hint("restore the settings, or use --resume_changed to resume anyway");
}

static tt_status check_tuning(const struct tt_run_job *job, const struct tt_inputs *inputs,
                              const struct tt_resume *resume)
{
    const struct tt_json_value *before = tt_json_get(resume->state.root, "tuning");
    struct tt_str text = {0};
    if (tt_resume_codes_differ(inputs, before))
        tt_warn("'%s' is of a version that multiplied numbers by the reciprocal of their scale to code them "
                "in FP8; they "
                "are divided by it now, as in compressed-tensors: some codes differ by rounding",
                resume->folder);
    if (!tt_json_is_object(before)) return TT_OK; /* an earlier version wrote it */
    struct tt_json_value *now = tt_resume_tuning(job, inputs);
    if (now == NULL) return tt_fail(TT_ERR_MEMORY, "out of memory for the settings of devices");
    tt_status status = tt_resume_changes(before, now, NULL, &text);
    tt_json_release(now);
    if (status == TT_OK && text.bytes > 0)
        tt_warn("since '%s' was saved, devices compute in another way, and results may round otherwise: %s",
                resume->folder, tt_str_text(&text));
    tt_str_deinit(&text);
    return status;
}

/* A run with more steps than it was planned for, and nothing else changed by them: the steps of a warm-up that is a
 * share of all follow. */
struct longer {
    int64_t before; /* steps in all; 0: the run is not longer */
    struct tt_schedule_length old, now;
    const char *names[3]; /* of the identity, which need not be equal; NULL after the last */
};

static struct longer find_longer(const struct tt_optim_config *optim, const struct tt_run_length *length,
                                 const struct tt_json_value *before)
{
    int64_t steps = tt_json_integer(tt_json_get(before, TT_RESUME_STEPS));
    int64_t warmup = tt_json_integer(tt_json_get(before, TT_RESUME_WARMUP));
    struct longer longer = {.old = {steps, length->steps_per_epoch},
                            .now = {length->total_steps, length->steps_per_epoch}};
    if (steps <= 0 || length->total_steps <= steps) return longer;
    longer.before = steps;
    longer.names[0] = TT_RESUME_STEPS;
    if (tt_schedule_warmup_steps(optim, longer.old) == warmup) longer.names[1] = TT_RESUME_WARMUP;
    return longer;
}

/* One line: the schedule is that of the new length, as in transformers. */
static void report_longer(const struct tt_run_job *job, int64_t done, const struct longer *longer)
{
    const struct tt_optim_config *optim = job->optim;
    double peak = optim->learning_rate, next = peak * tt_schedule_factor(optim, done, longer->now);
    double last = peak * tt_schedule_factor(optim, done > 0 ? done - 1 : 0, longer->old);
    char line[400];
    if (longer->before == 0) return;
    tt_snprintf(
        line, sizeof line,
        "training longer: %lld steps instead of %lld. The learning rate follows the schedule of the new "
        "length: step %lld had %.4g, step %lld has %.4g",
        (long long)longer->now.total_steps, (long long)longer->before, (long long)done, last,
        (long long)done + 1, next);
    tt_run_report_line(job, line);
}

static tt_status check_identity(const struct tt_run_job *job, const struct tt_run_data *data,
                                const struct tt_run_length *length, const struct tt_resume *resume,
                                const struct tt_world *world)
{
    const struct tt_json_value *before;
    struct tt_str text = {0};
    TT_TRY(tt_json_object(&resume->state, resume->state.root, "identity", &before));
    struct tt_json_value *now = tt_resume_identity(job, &data->inputs, length, tt_world_data_size(world));
    if (now == NULL) return tt_fail(TT_ERR_MEMORY, "out of memory for the settings to compare");
    const struct longer longer = find_longer(job->optim, length, before);
    tt_status status = tt_resume_changes(before, now, longer.names, &text);
    tt_json_release(now);
    if (status == TT_OK) status = check_inputs(resume, &data->fingerprint, &text);
    if (status == TT_OK && text.bytes > 0 && job->run->resume_changed) {
        tt_warn("resuming with changed settings: %s", tt_str_text(&text));
    } else if (status == TT_OK && text.bytes > 0) {
        status = tt_fail(TT_ERR_USAGE, "this is not the run that '%s' belongs to: %s", resume->folder,
                         tt_str_text(&text));
        hint_changed(job->run, before, world);
    }
    if (status == TT_OK) report_longer(job, resume->step, &longer);
    tt_str_deinit(&text);
    return status;
}

/* A checkpoint of a run over what is left of the base has its adapter beside the first values. */
static tt_status show_halves(struct tt_resume *resume, struct tt_run_data *data)
{
    struct tt_path path;
    if (!tt_lora_changes_base(&data->inputs.model_options.lora)) return TT_OK;
    TT_TRY(tt_path_set(&path, resume->folder, "adapter_model.safetensors"));
    TT_TRY(tt_safetensors_open(path.text, &data->first_values));
    TT_TRY(tt_halves_show(TT_HALF_FIRST, &data->first_values));
    data->inputs.source.first =
        (struct tt_first_adapter){.file = data->first_values, .changes_base = true, .negated = true};
    return tt_halves_show(TT_HALF_TRAINED, &resume->adapter);
}

tt_status tt_resume_prepare(const struct tt_run_job *job, struct tt_resume *resume,
                            const struct tt_world *world, struct tt_run_data *data,
                            struct tt_run_length *length)
{
    if (resume->folder == NULL) return TT_OK;
    if (world->first_rank == 0) TT_TRY(check_identity(job, data, length, resume, world));
    if (world->first_rank == 0) TT_TRY(check_tuning(job, &data->inputs, resume));
    if (resume->adapter != NULL) TT_TRY(show_halves(resume, data));
    data->begin = data->inputs.source;
    if (resume->adapter != NULL) {
        TT_TRY(
            tt_adapter_join(&data->inputs.model_facts, &data->inputs.model_options.lora, &resume->adapter));
        data->inputs.source.adapter = resume->adapter;
    }
    if (resume->weights != NULL) {
        TT_TRY(tt_model_folder_join(resume->weights, &data->inputs.model_facts.sources));
        data->inputs.source.folder = resume->weights;
    }
    if (resume->step > length->total_steps)
        return tt_fail(TT_ERR_USAGE, "'%s' is beyond the end of this run: it has %lld steps", resume->folder,
                       (long long)length->total_steps);
    length->first_step = resume->step;
    const struct tt_task_run_ops *task = tt_task_run_of(&data->inputs);
    if (task->go_on == NULL) return TT_OK;
    return task->go_on(&data->train, &resume->state, tt_json_get(resume->state.root, "data_position"),
                       resume->step);
}

tt_status tt_resume_check_model(const struct tt_resume *resume, const struct tt_optimizer *optimizer,
                                const struct tt_model *model)
{
    bool masters;
    if (resume->folder == NULL) return TT_OK;
    TT_TRY(holds_masters(resume, &masters));
    if ((model->adapter_param_count > 0) != (resume->adapter != NULL))
        return tt_fail(TT_ERR_DATA, "'%s' holds %s", resume->folder,
                       resume->adapter != NULL ? "an adapter, and the run trains every weight"
                                               : "no adapter, and the run trains one");
    return tt_state_check(resume->tensors, model, optimizer, !masters);
}

tt_status tt_resume_describe(const struct tt_resume *resume, const struct tt_run_job *job,
                             const struct tt_run_length *length, int world_size, struct tt_str *text)
{
    int64_t ranks = 0;
    if (resume->folder == NULL) {
        if (!tt_resume_is_requested(job->run->resume_from_checkpoint)) return TT_OK;
        return tt_str_printf(text, "no checkpoint in '%s' yet: the run starts from the beginning",
                             job->run->output_dir);
    }
    TT_TRY(tt_json_int(&resume->state, resume->state.root, "world_size", &ranks));
    TT_TRY(tt_str_printf(
        text,
        "resuming from %s: step %lld of %lld is done (epoch %.2f). Every byte of it was verified; "
        "weights, optimizer, schedule, data position and log continue as if the run had never stopped",
        resume->folder, (long long)resume->step, (long long)length->total_steps,
        (double)resume->step / (double)length->steps_per_epoch));
    if (ranks != world_size)
        TT_TRY(tt_str_printf(text,
                             ". It was saved by %lld rank%s and resumes with %d: the same data in the same "
                             "order, sums in another order",
                             (long long)ranks, ranks == 1 ? "" : "s", world_size));
    return TT_OK;
}

tt_status tt_resume_load(const struct tt_resume *resume, const struct tt_cancel *cancel, struct tt_rank *rank)
{
    if (resume->folder == NULL) return TT_OK;
    struct tt_state_target target = {
        .model = rank->model,
        .units = rank->units,
        .optimizer = rank->optimizer,
        .moments = rank->moments,
        .stream = rank->stream,
        .moments_in_host = rank->moments_in_host,
        .cancel = cancel,
    };
    tt_status status = tt_state_load(resume->tensors, &target);
    if (status == TT_OK) status = tt_stream_synchronize(rank->stream);
    return tt_comm_agree(rank->world, status);
}
