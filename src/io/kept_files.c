#include "io/kept_files.h"

#include <string.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/json.h"
#include "base/str.h"
#include "io/model_folder.h"

static const char config_name[] = "config.json";

struct reading {
    const char *from;
    struct tt_kept_files *kept;
};

static tt_status read_opened(int descriptor, const char *name, struct tt_kept_file *file)
{
    file->name = tt_strdup(name);
    file->data = tt_calloc(file->bytes + 1, 1);
    if (file->name == NULL || file->data == NULL) return TT_ERR_MEMORY;
    return tt_file_pread(descriptor, name, file->data, file->bytes, 0);
}

static tt_status read_one(void *context, const char *name)
{
    struct reading *reading = context;
    struct tt_kept_files *kept = reading->kept;
    struct tt_kept_file file = {0};
    int descriptor = -1;
    TT_TRY(tt_grow(&kept->files, kept->count, &kept->capacity));
    TT_TRY(
        tt_file_open_inside(reading->from, name, TT_MODEL_FOLDER_COPY_BYTES_MAX, &descriptor, &file.bytes));
    tt_status status = read_opened(descriptor, name, &file);
    tt_file_close(descriptor);
    kept->files[kept->count++] = file;
    return status;
}

tt_status tt_kept_files_read(const char *from, bool whole_model, struct tt_kept_files *kept)
{
    struct reading reading = {from, kept};
    tt_status status = TT_OK;
    *kept = (struct tt_kept_files){0};
    if (whole_model) status = read_one(&reading, config_name);
    if (status == TT_OK) status = tt_model_folder_list_tokenizer(from, whole_model, read_one, &reading);
    if (status != TT_OK) tt_kept_files_deinit(kept);
    return status;
}

tt_status tt_kept_files_change(struct tt_kept_files *kept, tt_config_change *change, const void *context)
{
    tt_status status = TT_OK;
    struct tt_json json = {0};
    struct tt_str text = {0};
    struct tt_kept_file *file = NULL;
    struct tt_json_value *root = NULL;
    for (size_t i = 0; i < kept->count; i++)
        if (strcmp(kept->files[i].name, config_name) == 0) file = &kept->files[i];
    if (file == NULL) return tt_fail(TT_ERR_INTERNAL, "there is no %s to change", config_name);
    TT_GO(tt_json_parse(file->data, file->bytes, config_name, &json));
    root = tt_json_copy(json.root);
    TT_GO(change(context, root));
    TT_GO(tt_json_write(root, 2, false, &text));
    TT_GO(tt_str_append_char(&text, '\n'));
    char *data = tt_strndup(tt_str_text(&text), text.bytes);
    if (data == NULL) TT_GO(TT_ERR_MEMORY);
    tt_free(file->data);
    file->data = data;
    file->bytes = text.bytes;
out:
    tt_json_release(root);
    tt_json_deinit(&json);
    tt_str_deinit(&text);
    return status;
}

static tt_status write_one(const struct tt_kept_file *file, const char *to)
{
    struct tt_path path;
    TT_TRY(tt_path_set(&path, to, file->name));
    if (strchr(file->name, '/') != NULL) {
        char *base = strrchr(path.text, '/');
        *base = '\0';
        TT_TRY(tt_dir_create(path.text));
        *base = '/';
    }
    return tt_file_write_atomic(path.text, file->data, file->bytes);
}

tt_status tt_kept_files_write(const struct tt_kept_files *kept, const char *to)
{
    for (size_t i = 0; i < kept->count; i++) TT_TRY(write_one(&kept->files[i], to));
    return TT_OK;
}

void tt_kept_files_deinit(struct tt_kept_files *kept)
{
    for (size_t i = 0; i < kept->count; i++) {
        tt_free(kept->files[i].name);
        tt_free(kept->files[i].data);
    }
    tt_free(kept->files);
    *kept = (struct tt_kept_files){0};
}
