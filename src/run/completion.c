#include "run/completion.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/log.h"
#include "base/number.h"
#include "comm/host_values.h"
#include "engine/rank_config.h"
#include "job/compared.h"
#include "launch/launch.h"
#include "run/run_plan.h"

enum { BYTES_MAX = 64 << 20, VERSION = 1 };

/* ---- The settings that are compared ---- */

tt_status tt_completion_prepare(struct tt_run *run)
{
    const char *resume = run->job.run->resume_from_checkpoint;
    TT_TRY(tt_job_compared(TT_JOB_TRAIN, run->job.all, TT_CHANGES_PLACE, &run->compared));
    /* A given checkpoint is where the run begins. */
    if (tt_resume_is_requested(resume) && !tt_resume_means_newest(resume))
        return tt_str_printf(&run->compared, "resume_from_checkpoint: %s\n", resume);
    return TT_OK;
}

/* The name and the ": " behind it at the start of a line; 0: it goes on with the value of the line before. */
static size_t name_bytes(const char *line)
{
    size_t bytes = strspn(line, "abcdefghijklmnopqrstuvwxyz0123456789_");
    return bytes > 0 && line[bytes] == ':' ? bytes + 1 : 0;
}

static const char *next_line(const char *line)
{
    line += strcspn(line, "\n");
    return *line == '\n' ? line + 1 : line;
}

/* The line of `text` that begins with these bytes, or NULL. */
static const char *find_line(const char *text, const char *start, size_t bytes)
{
    for (; *text != '\0'; text = next_line(text))
        if (strncmp(text, start, bytes) == 0) return text;
    return NULL;
}

static bool has_setting(const struct tt_settings *settings, const char *line, size_t bytes, char name[64])
{
    tt_snprintf(name, 64, "%.*s", (int)(bytes - 1), line);
    return settings != NULL && tt_settings_has(settings, name);
}

/* A setting that only this version has is as before where it is the default. */
static bool is_new_default(const struct tt_settings *settings, const char *line, size_t bytes)
{
    char name[64];
    return has_setting(settings, line, bytes, name) && tt_settings_has_default(settings, name);
}

/* A setting that this version has not any more. */
static bool is_gone(const struct tt_settings *settings, const char *now, const char *line, size_t bytes)
{
    char name[64];
    bool knows = settings != NULL; /* without them every setting may be one of today */
    return bytes > 0 && knows && find_line(now, line, bytes) == NULL &&
           !has_setting(settings, line, bytes, name);
}

/* Lines that versions until November 2026 wrote in another form. */
static const struct {
    const char *before, *now;
} other_forms[] = {{"init_lora_weights: false\n", "init_lora_weights: true\n"}};

/* Whether `text` has the line, or the other form of it. */
static bool has_form(const char *text, const char *line, bool of_now)
{
    size_t bytes = strcspn(line, "\n") + 1;
    if (find_line(text, line, bytes) != NULL) return true;
    for (size_t i = 0; i < sizeof other_forms / sizeof *other_forms; i++) {
        const char *own = of_now ? other_forms[i].now : other_forms[i].before,
                   *other = of_now ? other_forms[i].before : other_forms[i].now;
        if (strncmp(line, own, strlen(own)) == 0 && find_line(text, other, strlen(other)) != NULL)
            return true;
    }
    return false;
}

/* Whether these are the settings of the run, as this version or an earlier one wrote them. */
static bool are_same(const struct tt_settings *settings, const char *now, const char *before)
{
    for (const char *line = now; *line != '\0'; line = next_line(line)) {
        size_t bytes = name_bytes(line);
        if (has_form(before, line, true)) continue;
        if (bytes == 0 || find_line(before, line, bytes) != NULL || !is_new_default(settings, line, bytes))
            return false;
    }
    for (const char *line = before; *line != '\0'; line = next_line(line)) {
        size_t bytes = name_bytes(line);
        if (!is_gone(settings, now, line, bytes) && !has_form(now, line, false)) return false;
    }
    return true;
}

/* ---- Reading ---- */

static tt_status check_weights(void *context, const char *name)
{
    bool *found = context;
    *found |= tt_ends_with(name, ".safetensors");
    return TT_OK;
}

/* The strict reader accepts the weights, all of them: truncated ones are no result. */
static tt_status open_result(const char *folder)
{
    struct tt_safetensors *adapter = NULL;
    struct tt_model_folder *model = NULL;
    struct tt_path path;
    bool found = false;
    TT_TRY(tt_dir_list(folder, check_weights, &found));
    if (!found) return tt_fail(TT_ERR_DATA, "'%s' has no weights", folder);
    TT_TRY(tt_path_set(&path, folder, "adapter_model.safetensors"));
    bool adapts = tt_path_exists(path.text);
    tt_status status =
        adapts ? tt_safetensors_open(path.text, &adapter) : tt_model_folder_open(folder, true, &model);
    tt_safetensors_close(adapter);
    tt_model_folder_close(model);
    return status;
}

/* Fails unless the folder has a complete run of these settings. */
static tt_status read_completion(const struct tt_run *run, struct tt_json *json)
{
    const char *folder = run->job.run->output_dir, *settings;
    int64_t version, steps;
    struct tt_path path;
    TT_TRY(tt_path_set(&path, folder, TT_COMPLETION_NAME));
    TT_TRY(tt_json_read(path.text, BYTES_MAX, json));
    TT_TRY(tt_json_int(json, json->root, "version", &version));
    TT_TRY(tt_json_int(json, json->root, "steps", &steps));
    TT_TRY(tt_json_string(json, json->root, "settings", &settings));
    if (version != VERSION || !are_same(run->job.settings, tt_str_text(&run->compared), settings))
        return tt_fail(TT_ERR_DATA, "'%s' is of another run", path.text);
    return open_result(folder);
}

static bool is_there(const struct tt_run_spec *run)
{
    struct tt_path path;
    bool overwrites = run->overwrite_output_dir && !tt_resume_is_requested(run->resume_from_checkpoint);
    return !overwrites && tt_path_set(&path, run->output_dir, TT_COMPLETION_NAME) == TT_OK &&
           tt_path_exists(path.text);
}

/* ---- Comparing ---- */

/* The parts of a run that is compared, as it would begin. */
struct probe {
    struct tt_run_job job;
    struct tt_run_spec found;
    struct tt_run_data data;
    struct tt_run_length length;
};

static tt_status compare(struct probe *probe, const struct tt_world *world, const struct tt_json *json)
{
    const char *date;
    const struct tt_json_value *identity, *inputs;
    struct tt_str settings = {0}, broken = {0}, changed = {0};
    struct tt_json_value *now = NULL;
    tt_status status = TT_OK;
    TT_GO(tt_json_string(json, json->root, "date", &date));
    TT_GO(tt_json_object(json, json->root, "identity", &identity));
    TT_GO(tt_json_object(json, json->root, "inputs", &inputs));
    tt_snprintf(probe->data.date, sizeof probe->data.date, "%s", date);
    TT_GO(tt_run_data_open(&probe->job, world, NULL, &probe->data));
    probe->data.identity = identity;
    (void)tt_run_plan_batch_of(&probe->job, &probe->found, identity, tt_world_data_size(world));
    TT_GO(tt_run_data_order(&probe->job, tt_world_data_size(world), &probe->data, &probe->length));
    now = tt_resume_identity(&probe->job, &probe->data.inputs, &probe->length, tt_world_data_size(world));
    if (now == NULL) TT_GO(tt_fail(TT_ERR_MEMORY, "out of memory for the settings to compare"));
    TT_GO(tt_resume_changes(identity, now, NULL, &settings));
    TT_GO(tt_fingerprint_changes(&probe->data.fingerprint, inputs, &broken, &changed));
    if (settings.bytes > 0 || broken.bytes > 0 || changed.bytes > 0)
        status = tt_fail(TT_ERR_DATA, "the inputs are not those of the complete run");
out:
    tt_json_release(now);
    tt_str_deinit(&settings);
    tt_str_deinit(&broken);
    tt_str_deinit(&changed);
    return status;
}

/* Runs in the process of rank 0. */
static int64_t find_steps(const struct tt_run *run, const struct tt_world *world)
{
    struct tt_json json = {0};
    struct probe probe = {.job = tt_run_job_of(run->job.all, NULL, run->job.cancel)};
    int64_t steps = 0;
    if (!is_there(run->job.run)) return 0;
    tt_status status = read_completion(run, &json);
    if (status == TT_OK) status = compare(&probe, world, &json);
    if (status == TT_OK) status = tt_json_int(&json, json.root, "steps", &steps);
    tt_run_data_close(&probe.data);
    tt_json_deinit(&json);
    tt_error_clear();
    return status == TT_OK ? steps : 0;
}

struct sharing {
    int64_t steps;
    int first_rank;
};

static tt_status share(void *context, const struct tt_world_rank *rank)
{
    struct sharing *sharing = context;
    int64_t steps = sharing->steps;
    TT_TRY(tt_comm_host_share(rank->comm, &steps, sizeof steps));
    if (tt_comm_rank(rank->comm) == sharing->first_rank) sharing->steps = steps;
    return TT_OK;
}

tt_status tt_completion_find(struct tt_run *run, struct tt_world *world, bool *complete)
{
    struct sharing sharing = {.first_rank = world->first_rank};
    if (world->first_rank == 0) sharing.steps = find_steps(run, world);
    if (world->local_count < world->world_size) TT_TRY(tt_world_run(world, share, &sharing));
    *complete = sharing.steps > 0;
    run->length.total_steps = sharing.steps;
    if (!*complete || world->first_rank > 0) return TT_OK;
    TT_TRY(tt_output_dir_clear(&run->rank0.output)); /* it may have been killed amid its last record */
    struct tt_str line = {0};
    tt_status status = tt_str_printf(
        &line, "'%s' holds the result of this run, which is complete: %lld step%s. There is nothing to do",
        run->job.run->output_dir, (long long)sharing.steps, sharing.steps == 1 ? "" : "s");
    if (status == TT_OK) tt_run_report_line(&run->job, tt_str_text(&line));
    tt_str_deinit(&line);
    if (run->rank0.summary == NULL) return status;
    *run->rank0.summary =
        (struct tt_train_summary){.steps = sharing.steps, .was_complete = true, .last_eval_loss = NAN};
    snprintf(run->rank0.summary->output, sizeof run->rank0.summary->output, "%s", run->job.run->output_dir);
    return status;
}

bool tt_completion_explains(const struct tt_run *run, tt_status status)
{
    struct tt_launch launch;
    struct tt_json json = {0};
    struct tt_error error;
    const char *name = NULL;
    if (status != TT_ERR_COMM) return false;
    tt_error_copy(&error);
    bool same = tt_launch_detect(&run->job.all->launch, &launch) == TT_OK && launch.run[0] != '\0' &&
                is_there(run->job.run) && read_completion(run, &json) == TT_OK &&
                tt_json_opt_string(&json, json.root, "run", &name) == TT_OK && name != NULL &&
                strcmp(name, launch.run) == 0;
    tt_json_deinit(&json);
    if (!same) {
        (void)!tt_error_restore(&error);
        return false;
    }
    tt_error_clear();
    tt_notice(
        "the other processes did not come (%s), but '%s' holds the result of this run, which is complete: "
        "there is nothing to do",
        error.message, run->job.run->output_dir);
    return true;
}

/* ---- Writing ---- */

tt_status tt_completion_remove(const char *output_dir)
{
    struct tt_path path;
    TT_TRY(tt_path_set(&path, output_dir, TT_COMPLETION_NAME));
    int failed = tt_file_remove(path.text);
    if (failed == 0 || failed == ENOENT) return TT_OK;
    return tt_fail_errno(failed, "cannot remove '%s'", path.text);
}

static tt_status make_text(const struct tt_run *run, int data_size, int64_t steps, struct tt_str *text)
{
    struct tt_json_value *root =
        tt_json_pack("{s:s, s:i, s:I, s:s, s:s}", "format", "trimtab-completion", "version", VERSION, "steps",
                     steps, "date", run->data.date, "settings", tt_str_text(&run->compared));
    tt_json_set(root, "identity", tt_resume_identity(&run->job, &run->data.inputs, &run->length, data_size));
    tt_json_set(root, "inputs", tt_fingerprint_json(&run->data.fingerprint));
    if (run->name[0] != '\0') tt_json_set(root, "run", tt_json_new_string(run->name));
    tt_status status = tt_json_write(root, 2, true, text);
    if (status == TT_OK) status = tt_str_append_char(text, '\n');
    tt_json_release(root);
    return status;
}

void tt_completion_write(const struct tt_run *run, int data_size, int64_t steps)
{
    struct tt_path path;
    struct tt_str text = {0};
    tt_status status = make_text(run, data_size, steps, &text);
    if (status == TT_OK) status = tt_path_set(&path, run->job.run->output_dir, TT_COMPLETION_NAME);
    if (status == TT_OK) status = tt_file_write_atomic(path.text, tt_str_text(&text), text.bytes);
    tt_str_deinit(&text);
    if (status == TT_OK) return;
    tt_warn("%s; the result in '%s' is complete without %s", tt_error_last()->message,
            run->job.run->output_dir, TT_COMPLETION_NAME);
    tt_error_clear();
}
