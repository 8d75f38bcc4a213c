#include "run/output_dir.h"

#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/store.h"
#include "base/str.h"
#include "io/output_folder.h"

/* True for the folder of a save of a killed run, which still has its temporary name (checkpoint/save.h). */
static bool is_unfinished_save(const char *name)
{
    bool of_checkpoint = tt_starts_with(name, "checkpoint-") && tt_ends_with(name, ".saving");
    return of_checkpoint || strcmp(name, ".saving") == 0;
}

static tt_status find_result(void *context, const char *name)
{
    bool *found = context;
    *found |= strcmp(name, "adapter_config.json") == 0 || strcmp(name, "config.json") == 0 ||
              (strncmp(name, "checkpoint-", 11) == 0 && !is_unfinished_save(name));
    return TT_OK;
}

/* base/file.h writes "name.tmp-..." before "name". */
static bool is_unfinished_file(const char *name)
{
    return strstr(name, ".json.tmp-") != NULL || strstr(name, ".yaml.tmp-") != NULL ||
           strncmp(name, ".write-probe", 12) == 0;
}

/* tt_dir_commit briefly renames, on file systems that cannot exchange two folders, "checkpoint-4" to
 * "checkpoint-4.old-123". Returns the length of the original name; 0 for any other name. */
static size_t original_name_bytes(const char *name)
{
    static const char start[] = "checkpoint-", mark[] = ".old-", digits[] = "0123456789";
    if (strncmp(name, start, sizeof start - 1) != 0) return 0;
    size_t bytes = sizeof start - 1, number = strspn(name + bytes, digits);
    bytes += number;
    if (number == 0 || strncmp(name + bytes, mark, sizeof mark - 1) != 0) return 0;
    const char *process = name + bytes + sizeof mark - 1;
    number = strspn(process, digits);
    return number > 0 && process[number] == '\0' ? bytes : 0;
}

static tt_status restore_original(const char *folder, const char *path, const char *name)
{
    struct tt_str whole = {0};
    tt_status status = tt_str_printf(&whole, "%s/%.*s", folder, (int)original_name_bytes(name), name);
    if (status == TT_OK)
        status = tt_path_exists(whole.data) ? tt_dir_remove(path) : tt_file_rename(path, whole.data);
    tt_str_deinit(&whole);
    return status;
}

static tt_status remove_unfinished(void *context, const char *name)
{
    bool aside = original_name_bytes(name) > 0;
    if (!is_unfinished_save(name) && !is_unfinished_file(name) && !aside) return TT_OK;
    struct tt_path path;
    TT_TRY(tt_path_set(&path, context, name));
    return aside ? restore_original(context, path.text, name) : tt_dir_remove(path.text);
}

/* The error of a lock that another start of the same run may have. */
static tt_status fail_start(tt_status status)
{
    struct tt_error error;
    if (status != TT_ERR_USAGE) return status;
    tt_error_copy(&error);
    error.status = TT_ERR_COMM;
    return tt_error_restore(&error);
}

static tt_status lock(struct tt_output_dir *output)
{
    struct tt_str what = {0};
    struct tt_path path;
    TT_TRY(tt_path_set(&path, output->path, TT_OUTPUT_LOCK_NAME));
    tt_status status = tt_str_printf(&what, "output_dir '%s'", output->path);
    if (status == TT_OK)
        status = tt_lock_take_where(path.text, tt_str_text(&what), output->unlocked, &output->lock);
    tt_str_deinit(&what);
    return output->restarts ? fail_start(status) : status;
}

/* The topmost missing folder of `path`; owned; NULL if all exist. */
static tt_status find_missing(const char *path, char **missing)
{
    char *copy = tt_strdup(path);
    if (copy == NULL) return TT_ERR_MEMORY;
    for (char *at = copy + (copy[0] != '\0');; at++) {
        bool end = *at == '\0';
        if (!end && *at != '/') continue;
        *at = '\0';
        if (!tt_path_exists(copy)) {
            *missing = copy;
            return TT_OK;
        }
        if (end) break;
        *at = '/';
    }
    tt_free(copy);
    return TT_OK;
}

tt_status tt_output_dir_claim(const struct tt_run_spec *run, const struct tt_model_spec *model, bool restarts,
                              struct tt_output_dir *out)
{
    out->restarts = restarts;
    out->unlocked = run->unlocked_store;
    if (model->init == TT_INIT_MODEL && tt_output_folder_is(run->output_dir, model->model_name_or_path)) {
        (void)tt_fail(TT_ERR_USAGE, "output_dir '%s' is the folder of the base model", run->output_dir);
        tt_hint("choose another --output_dir: a run never changes its base model");
        return TT_ERR_USAGE;
    }
    out->path = run->output_dir;
    TT_TRY(find_missing(out->path, &out->created));
    TT_TRY(tt_dir_create(out->path));
    return lock(out);
}

/* A lock file that a killed run left can be opened where no file can be created any more. */
static tt_status check_writable(const struct tt_output_dir *output)
{
    struct tt_path path;
    int descriptor = -1;
    TT_TRY(tt_path_set(&path, output->path, ".write-probe"));
    tt_status status = tt_file_create(path.text, 0, &descriptor);
    tt_file_close(descriptor);
    if (status == TT_OK) status = tt_dir_remove(path.text);
    if (status != TT_OK) tt_hint("output_dir must be writable until the run ends: choose another");
    return status;
}

tt_status tt_output_dir_check(struct tt_output_dir *output, const struct tt_run_spec *run, bool resumes)
{
    bool result = false;
    TT_TRY(tt_dir_list(output->path, find_result, &result));
    if (result && !run->overwrite_output_dir && !resumes) {
        (void)tt_fail(TT_ERR_USAGE, "output_dir '%s' already holds the result of a run", output->path);
        tt_hint(
            "choose another --output_dir, set --overwrite_output_dir, or resume from its checkpoints with "
            "--resume_from_checkpoint true");
        return TT_ERR_USAGE;
    }
    output->checked = true;
    TT_TRY(tt_output_dir_clear(output));
    return check_writable(output);
}

tt_status tt_output_dir_clear(struct tt_output_dir *output)
{
    return tt_dir_list(output->path, remove_unfinished, (void *)(uintptr_t)output->path);
}

tt_status tt_output_dir_hold(struct tt_output_dir *output)
{
    if (tt_lock_is_held(output->lock)) return TT_OK;
    if (!tt_store_can(output->path, TT_STORE_CAN_RENAME)) { /* nobody removes an object by accident */
        tt_status status =
            tt_fail(TT_ERR_USAGE, "output_dir '%s' was taken over by another run", output->path);
        tt_hint("this run did not renew its lock in time: it was stopped, or its store could not be reached");
        return output->restarts ? fail_start(status) : status;
    }
    tt_lock_release(output->lock);
    output->lock = NULL;
    TT_TRY(tt_dir_create(output->path));
    return lock(output);
}

/* Removes the folders that the run created, if they are empty. */
static void remove_created(struct tt_output_dir *output)
{
    char *path = tt_strdup(output->path);
    if (path == NULL) return;
    size_t bytes = strlen(path), least = strlen(output->created);
    while (bytes >= least) {
        while (bytes > least && path[bytes - 1] == '/') bytes--;
        path[bytes] = '\0';
        if (!tt_dir_remove_empty(path)) break;
        while (bytes > 0 && path[bytes - 1] != '/') bytes--;
    }
    tt_free(path);
}

void tt_output_dir_release(struct tt_output_dir *output, bool failed)
{
    struct tt_error error;
    if (output->path == NULL) return;
    tt_error_copy(&error);
    if (failed && output->checked && output->lock != NULL)
        (void)!tt_dir_list(output->path, remove_unfinished, (void *)(uintptr_t)output->path);
    tt_lock_release(output->lock);
    if (failed && output->created != NULL) remove_created(output);
    (void)tt_error_restore(&error);
    tt_free(output->created);
    *output = (struct tt_output_dir){0};
}
