/* Folders of objects as wholes: their names, removing and publishing them. */
#include <string.h>

#include "base/alloc.h"
#include "base/file.h"
#include "store/s3_folder_impl.h"

tt_status s3_add_name(void *context, const char *name)
{
    struct s3_names *names = context;
    char *copy = tt_strdup(name);
    if (copy == NULL || tt_grow(&names->names, names->count, &names->capacity) != TT_OK) {
        tt_free(copy);
        return TT_ERR_MEMORY;
    }
    names->names[names->count++] = copy;
    return TT_OK;
}

bool s3_has_name(const struct s3_names *names, const char *name)
{
    for (size_t i = 0; i < names->count; i++)
        if (strcmp(names->names[i], name) == 0) return true;
    return false;
}

void s3_names_deinit(struct s3_names *names)
{
    for (size_t i = 0; i < names->count; i++) tt_free(names->names[i]);
    tt_free(names->names);
    *names = (struct s3_names){0};
}

static bool is_last(const char *name)
{
    return strcmp(name, "manifest.json") == 0;
}

tt_status s3_remove_tree(struct tt_s3 *s3, const char *path, const struct s3_names *kept)
{
    tt_status status = TT_OK;
    struct s3_names names = {0};
    struct tt_path whole;
    TT_GO(tt_s3_list_tree(s3, path, s3_add_name, &names));
    for (int pass = 0; pass < 2; pass++)
        for (size_t i = 0; i < names.count; i++) {
            if (is_last(names.names[i]) != (pass == 0)) continue;
            if (kept != NULL && pass == 1 && s3_has_name(kept, names.names[i])) continue;
            TT_GO(tt_path_set(&whole, path, names.names[i]));
            TT_GO(tt_s3_delete(s3, whole.text));
        }
out:
    s3_names_deinit(&names);
    return status;
}

tt_status s3_put_local(struct tt_s3 *s3, const char *local, const char *path)
{
    int descriptor = -1;
    uint64_t bytes = 0;
    TT_TRY(tt_file_open_read(local, &descriptor, &bytes));
    tt_status status = tt_s3_put_file(s3, path, descriptor, bytes);
    tt_file_close(descriptor);
    return status;
}

struct walk {
    const char *folder, *below; /* below: of the folder, "" or "a/" */
    struct s3_names *files;
};

static tt_status walk_entry(void *context, const char *name)
{
    const struct walk *walk = context;
    struct tt_str relative = {0};
    struct tt_path path;
    tt_status status = tt_str_printf(&relative, "%s%s", walk->below, name);
    if (status == TT_OK) status = tt_path_set(&path, walk->folder, tt_str_text(&relative));
    if (status == TT_OK && tt_path_is_dir(path.text)) {
        struct walk inside = {walk->folder, NULL, walk->files};
        status = tt_str_append_char(&relative, '/');
        inside.below = tt_str_text(&relative);
        if (status == TT_OK) status = tt_dir_list(path.text, walk_entry, &inside);
    } else if (status == TT_OK) {
        status = s3_add_name(walk->files, tt_str_text(&relative));
    }
    tt_str_deinit(&relative);
    return status;
}

static tt_status put_files(struct tt_s3 *s3, const char *local, const char *final,
                           const struct s3_names *files, bool last)
{
    struct tt_path from, to;
    for (size_t i = 0; i < files->count; i++) {
        if (is_last(files->names[i]) != last) continue;
        TT_TRY(tt_path_set(&from, local, files->names[i]));
        TT_TRY(tt_path_set(&to, final, files->names[i]));
        TT_TRY(s3_put_local(s3, from.text, to.text));
    }
    return TT_OK;
}

tt_status s3_commit(struct tt_s3 *s3, const char *local, const char *final)
{
    tt_status status = TT_OK;
    struct s3_names files = {0};
    struct walk walk = {local, "", &files};
    TT_GO(tt_dir_list(local, walk_entry, &walk));
    TT_GO(s3_remove_tree(s3, final, &files));
    TT_GO(put_files(s3, local, final, &files, false));
    TT_GO(put_files(s3, local, final, &files, true));
    TT_GO(tt_dir_remove(local));
out:
    s3_names_deinit(&files);
    return status;
}
