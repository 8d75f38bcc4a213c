#include "checkpoint/manifest.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/json.h"

enum { MANIFEST_BYTES_MAX = 64 << 20, VERSION = 1 };

static const char format_name[] = "trimtab-checkpoint", folder_prefix[] = "checkpoint-";

void tt_manifest_deinit(struct tt_manifest *manifest)
{
    for (size_t i = 0; i < manifest->count; i++) tt_free(manifest->files[i].name);
    tt_free(manifest->files);
    *manifest = (struct tt_manifest){0};
}

const struct tt_manifest_file *tt_manifest_find(const struct tt_manifest *manifest, const char *name)
{
    for (size_t i = 0; i < manifest->count; i++)
        if (strcmp(manifest->files[i].name, name) == 0) return &manifest->files[i];
    return NULL;
}

tt_status tt_manifest_add(struct tt_manifest *manifest, const char *name, uint64_t bytes, uint64_t crc64)
{
    char *copy = tt_strdup(name);
    if (copy == NULL) return TT_ERR_MEMORY;
    if (tt_grow(&manifest->files, manifest->count, &manifest->capacity) != 0) {
        tt_free(copy);
        return TT_ERR_MEMORY;
    }
    manifest->files[manifest->count++] = (struct tt_manifest_file){copy, bytes, crc64};
    return TT_OK;
}

void tt_manifest_forget(struct tt_manifest *manifest, const char *name)
{
    size_t kept = 0;
    for (size_t i = 0; i < manifest->count; i++) {
        if (strcmp(manifest->files[i].name, name) == 0)
            tt_free(manifest->files[i].name);
        else
            manifest->files[kept++] = manifest->files[i];
    }
    manifest->count = kept;
}

struct rest {
    struct tt_manifest *manifest;
    const char *folder, *below; /* below: "" or "additional_chat_templates/" */
};

static tt_status add_rest_of(struct rest *rest);

static tt_status add_entry(void *context, const char *entry)
{
    const struct rest *rest = context;
    tt_status status = TT_OK;
    struct tt_str name = {0}, below = {0};
    char *path = NULL;
    TT_GO(tt_str_printf(&name, "%s%s", rest->below, entry));
    path = tt_path_join(rest->folder, tt_str_text(&name));
    if (path == NULL) TT_GO(TT_ERR_MEMORY);
    if (tt_path_is_dir(path)) {
        struct rest inside = {rest->manifest, rest->folder, NULL};
        TT_GO(tt_str_printf(&below, "%s/", tt_str_text(&name)));
        inside.below = tt_str_text(&below);
        TT_GO(add_rest_of(&inside));
    } else if (strcmp(tt_str_text(&name), TT_MANIFEST_NAME) != 0 &&
               tt_manifest_find(rest->manifest, tt_str_text(&name)) == NULL) {
        TT_GO(tt_manifest_add_file(rest->manifest, rest->folder, tt_str_text(&name)));
    }
out:
    tt_free(path);
    tt_str_deinit(&below);
    tt_str_deinit(&name);
    return status;
}

static tt_status add_rest_of(struct rest *rest)
{
    char *path = tt_path_join(rest->folder, rest->below); /* not on the stack: folders may be deep */
    if (path == NULL) return TT_ERR_MEMORY;
    tt_status status = tt_dir_list(path, add_entry, rest);
    tt_free(path);
    return status;
}

tt_status tt_manifest_add_rest(struct tt_manifest *manifest, const char *folder)
{
    struct rest rest = {manifest, folder, ""};
    return add_rest_of(&rest);
}

static struct tt_json_value *manifest_object(const struct tt_manifest *manifest)
{
    struct tt_json_value *files = tt_json_new_object();
    for (size_t i = 0; i < manifest->count; i++) {
        char sum[20];
        snprintf(sum, sizeof sum, "%016llx", (unsigned long long)manifest->files[i].crc64);
        tt_json_set(files, manifest->files[i].name,
                    tt_json_pack("{s:I, s:s}", "bytes", (int64_t)manifest->files[i].bytes, "crc64", sum));
    }
    return tt_json_pack("{s:s, s:i, s:I, s:o}", "format", format_name, "version", VERSION, "step",
                        (int64_t)manifest->step, "files", files);
}

tt_status tt_manifest_write(const struct tt_manifest *manifest, const char *folder)
{
    struct tt_json_value *object = manifest_object(manifest);
    tt_status status = tt_json_write_file(object, 2, true, folder, TT_MANIFEST_NAME);
    tt_json_release(object);
    return status;
}

/* True for a name below the folder that cannot lead out of it. */
static bool is_inside(const char *name)
{
    if (name[0] == '\0' || name[0] == '/') return false;
    for (const char *at = name; at != NULL; at = strchr(at, '/')) {
        if (*at == '/') at++;
        size_t bytes = strcspn(at, "/");
        if (bytes == 0 || (bytes == 1 && at[0] == '.') || (bytes == 2 && at[0] == '.' && at[1] == '.'))
            return false;
    }
    return true;
}

static tt_status read_file_row(const struct tt_json *json, const char *name, const struct tt_json_value *row,
                               struct tt_manifest *manifest)
{
    int64_t bytes;
    const char *sum;
    char *end;
    if (!is_inside(name) || !tt_json_is_object(row))
        return tt_fail(TT_ERR_DATA, "'%s' lists '%s', which is not a file of the folder", json->origin, name);
    TT_TRY(tt_json_int(json, row, "bytes", &bytes));
    TT_TRY(tt_json_string(json, row, "crc64", &sum));
    unsigned long long value = strtoull(sum, &end, 16);
    if (bytes < 0 || strlen(sum) != 16 || *end != '\0')
        return tt_fail(TT_ERR_DATA, "'%s' has no size or no sum for '%s'", json->origin, name);
    return tt_manifest_add(manifest, name, (uint64_t)bytes, value);
}

static int compare_files(const void *a, const void *b)
{
    return strcmp(((const struct tt_manifest_file *)a)->name, ((const struct tt_manifest_file *)b)->name);
}

static tt_status read_manifest(const struct tt_json *json, struct tt_manifest *manifest)
{
    const char *format;
    const struct tt_json_value *files;
    int64_t version;
    TT_TRY(tt_json_string(json, json->root, "format", &format));
    TT_TRY(tt_json_int(json, json->root, "version", &version));
    if (strcmp(format, format_name) != 0 || version != VERSION)
        return tt_fail(TT_ERR_DATA, "'%s' is of format '%s' version %lld; %s version %d is expected",
                       json->origin, format, (long long)version, format_name, VERSION);
    TT_TRY(tt_json_int(json, json->root, "step", &manifest->step));
    TT_TRY(tt_json_object(json, json->root, "files", &files));
    const char *name;
    const struct tt_json_value *row;
    for (size_t member = 0; tt_json_next_member(files, &member, &name, &row);)
        TT_TRY(read_file_row(json, name, row, manifest));
    if (manifest->count > 1) qsort(manifest->files, manifest->count, sizeof *manifest->files, compare_files);
    return TT_OK;
}

tt_status tt_manifest_read(const char *folder, struct tt_manifest *manifest)
{
    tt_status status = TT_OK;
    struct tt_manifest made = {0};
    struct tt_json json = {0};
    struct tt_path path;
    TT_GO(tt_path_set(&path, folder, TT_MANIFEST_NAME));
    if (!tt_path_exists(folder)) TT_GO(tt_fail(TT_ERR_DATA, "the folder '%s' does not exist", folder));
    if (!tt_path_exists(path.text))
        TT_GO(tt_fail(TT_ERR_DATA, "'%s' has no %s: it is not a complete checkpoint of trimtab", folder,
                      TT_MANIFEST_NAME));
    TT_GO(tt_json_read(path.text, MANIFEST_BYTES_MAX, &json));
    TT_GO(read_manifest(&json, &made));
    *manifest = made;
    made = (struct tt_manifest){0};
out:
    tt_manifest_deinit(&made);
    tt_json_deinit(&json);
    return status;
}

static tt_status check_size(const struct tt_manifest_file *file, const char *folder)
{
    struct tt_file_facts info;
    struct tt_path path;
    TT_TRY(tt_path_set(&path, folder, file->name));
    tt_status status = TT_OK;
    if (tt_file_facts(path.text, &info) != 0 || !info.is_regular)
        status = tt_fail(TT_ERR_DATA, "'%s' is missing", path.text);
    else if (info.bytes != file->bytes)
        status = tt_fail(TT_ERR_DATA, "'%s' has %llu bytes, and %llu when it was saved", path.text,
                         (unsigned long long)info.bytes, (unsigned long long)file->bytes);
    return status;
}

tt_status tt_manifest_check_sizes(const struct tt_manifest *manifest, const char *folder)
{
    for (size_t i = 0; i < manifest->count; i++) TT_TRY(check_size(&manifest->files[i], folder));
    return TT_OK;
}

struct found_steps {
    const char *output_dir;
    int64_t *steps; /* owned */
    size_t count, capacity;
};

static tt_status record_step(void *context, const char *name)
{
    struct found_steps *found = context;
    char *end;
    const size_t prefix = strlen(folder_prefix);
    if (strncmp(name, folder_prefix, prefix) != 0 || name[prefix] < '0' || name[prefix] > '9') return TT_OK;
    long long step = strtoll(name + prefix, &end, 10);
    if (*end != '\0') return TT_OK;
    struct tt_path path;
    TT_TRY(tt_path_set(&path, found->output_dir, name));
    if (!tt_path_is_dir(path.text)) return TT_OK;
    TT_TRY(tt_grow(&found->steps, found->count, &found->capacity));
    found->steps[found->count++] = step;
    return TT_OK;
}

static int compare_newest_first(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return x > y ? -1 : x < y;
}

tt_status tt_checkpoint_list(const char *output_dir, int64_t **steps, size_t *count)
{
    struct found_steps found = {.output_dir = output_dir};
    *steps = NULL;
    *count = 0;
    if (!tt_path_is_dir(output_dir)) return TT_OK;
    tt_status status = tt_dir_list(output_dir, record_step, &found);
    if (status != TT_OK) {
        tt_free(found.steps);
        return status;
    }
    if (found.count > 1) qsort(found.steps, found.count, sizeof *found.steps, compare_newest_first);
    *steps = found.steps;
    *count = found.count;
    return TT_OK;
}

char *tt_checkpoint_path(const char *output_dir, int64_t step)
{
    char name[48];
    snprintf(name, sizeof name, "%s%lld", folder_prefix, (long long)step);
    return tt_path_join(output_dir, name);
}

static tt_status verify_folder(const char *path, const struct tt_cancel *cancel)
{
    struct tt_manifest manifest = {0};
    TT_TRY(tt_manifest_read(path, &manifest));
    tt_status status = tt_manifest_verify(&manifest, path, cancel);
    tt_manifest_deinit(&manifest);
    return status;
}

tt_status tt_checkpoint_find_newest(const struct tt_checkpoint_search *search, char **path,
                                    size_t *passed_over)
{
    tt_status status = TT_OK;
    int64_t *steps = NULL;
    size_t count = 0, passed = 0;
    char *found = NULL;
    TT_GO(tt_checkpoint_list(search->output_dir, &steps, &count));
    for (size_t i = 0; i < count && found == NULL; i++) {
        char *candidate = tt_checkpoint_path(search->output_dir, steps[i]);
        if (candidate == NULL) TT_GO(TT_ERR_MEMORY);
        tt_status verified = verify_folder(candidate, search->cancel);
        if (verified == TT_OK) {
            found = candidate;
            continue;
        }
        bool broken = verified == TT_ERR_DATA || verified == TT_ERR_IO;
        if (broken && search->skipped != NULL)
            search->skipped(search->context, candidate, tt_error_last()->message);
        tt_free(candidate);
        if (!broken) TT_GO(verified);
        passed++;
    }
    *path = found;
    *passed_over = passed;
out:
    tt_free(steps);
    return status;
}
