#include "io/output_folder.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/store.h"

static tt_status see_entry(void *context, const char *name)
{
    if (strcmp(name, TT_OUTPUT_LOCK_NAME) != 0) *(bool *)context = true;
    return TT_OK;
}

/* TT_OK when `folder` does not exist, is empty, or may be replaced. */
static tt_status check_replaceable(const char *folder, bool overwrite)
{
    bool filled = false, is_dir = tt_path_is_dir(folder);
    if (!tt_path_exists(folder)) return tt_store_failure();
    if (is_dir) TT_TRY(tt_dir_list(folder, see_entry, &filled));
    if (is_dir && (!filled || overwrite)) return TT_OK;
    tt_status status =
        tt_fail(TT_ERR_USAGE, "output_dir '%s' %s", folder, is_dir ? "is not empty" : "is a file");
    if (is_dir) tt_hint("choose another, or replace it with --overwrite_output_dir");
    return status;
}

bool tt_output_folder_is(const char *folder, const char *other)
{
    struct tt_path a, b;
    return tt_path_real(folder, &a) == 0 && tt_path_real(other, &b) == 0 && strcmp(a.text, b.text) == 0;
}

tt_status tt_output_lock(const char *path, const char *what, struct tt_lock **out)
{
    struct tt_str file = {0};
    const char *name = tt_path_basename(path);
    tt_status status = tt_str_printf(&file, "%.*s.%s%s", (int)(name - path), path, name, TT_OUTPUT_LOCK_NAME);
    if (status == TT_OK) status = tt_lock_take(tt_str_text(&file), what, out);
    tt_str_deinit(&file);
    return status;
}

static tt_status lock_both(struct tt_output_folder *folder, bool overwrite)
{
    tt_status status = TT_OK;
    const char *path = tt_str_text(&folder->path);
    struct tt_str what = {0};
    struct tt_path inside;
    char *parent = tt_strndup(path, (size_t)(tt_path_basename(path) - path));
    if (parent == NULL) TT_GO(TT_ERR_MEMORY);
    TT_GO(tt_path_set(&inside, path, TT_OUTPUT_LOCK_NAME));
    if (parent[0] != '\0') TT_GO(tt_dir_create(parent));
    TT_GO(tt_str_printf(&what, "output_dir '%s'", path));
    TT_GO(tt_output_lock(path, tt_str_text(&what), &folder->beside));
    TT_GO(check_replaceable(path, overwrite));
    if (tt_path_is_dir(path)) TT_GO(tt_lock_take(inside.text, tt_str_text(&what), &folder->inside));
out:
    tt_str_deinit(&what);
    tt_free(parent);
    return status;
}

tt_status tt_output_folder_open(const char *path, const char *ending, bool overwrite,
                                struct tt_output_folder *out)
{
    tt_status status = TT_OK;
    struct tt_output_folder folder = {0};
    size_t bytes = strlen(path);
    while (bytes > 1 && path[bytes - 1] == '/') bytes--;
    if (bytes == 0) return tt_fail(TT_ERR_USAGE, "output_dir is an empty text");
    TT_GO(tt_str_append(&folder.path, path, bytes));
    TT_GO(lock_both(&folder, overwrite));
    TT_GO(tt_str_printf(&folder.temporary, "%s%s", tt_str_text(&folder.path), ending));
    TT_GO(tt_dir_remove(tt_str_text(&folder.temporary)));
    TT_GO(tt_dir_create(tt_str_text(&folder.temporary)));
    *out = folder;
    folder = (struct tt_output_folder){0};
out:
    tt_output_folder_close(&folder);
    return status;
}

tt_status tt_output_folder_commit(struct tt_output_folder *folder)
{
    TT_TRY(tt_dir_commit(tt_str_text(&folder->temporary), tt_str_text(&folder->path)));
    tt_str_clear(&folder->temporary);
    return TT_OK;
}

void tt_output_folder_close(struct tt_output_folder *folder)
{
    struct tt_error error;
    tt_error_copy(&error);
    if (folder->temporary.bytes > 0) (void)!tt_dir_remove(tt_str_text(&folder->temporary));
    tt_lock_release(folder->inside);
    tt_lock_release(folder->beside);
    (void)tt_error_restore(&error);
    tt_str_deinit(&folder->path);
    tt_str_deinit(&folder->temporary);
    *folder = (struct tt_output_folder){0};
}
