#include "checkpoint/publish.h"

#include <stdatomic.h>
#include <string.h>

#include "base/alloc.h"
#include "base/crc64.h"
#include "base/file.h"
#include "base/str.h"
#include "base/integer.h"
#include "base/log.h"
#include "base/thread.h"
#include "checkpoint/plain_adapter.h"
#include "io/pth.h"
#include "model/adapter_config.h"

/* Saves up to this size are verified by reading them back; of larger saves only sizes and headers are checked. */
#define READ_BACK_BYTES_MAX ((uint64_t)1 << 30)

enum { TURNING_THREADS_MAX = 8 };

static tt_status write_text(const char *folder, const char *name, const struct tt_str *text)
{
    struct tt_path path;
    TT_TRY(tt_path_set(&path, folder, name));
    return tt_file_write_atomic(path.text, tt_str_text(text), text->bytes);
}

/* Sums what was to be written, not what the disk has. Only checkpoints have a manifest. */
static tt_status note(const struct tt_publication *request, const char *name, const char *data, size_t bytes)
{
    if (request->job->merge) return TT_OK;
    return tt_manifest_add(request->manifest, name, bytes, tt_crc64(0, data, bytes));
}

static tt_status write_noted(const struct tt_publication *request, const char *name,
                             const struct tt_str *text)
{
    TT_TRY(write_text(request->temporary, name, text));
    return note(request, name, tt_str_text(text), text->bytes);
}

/* Templates may replace some of them, which are then summed as they are on disk. */
static tt_status write_kept(const struct tt_publication *request)
{
    const struct tt_kept_files *kept = request->kept;
    TT_TRY(tt_kept_files_write(kept, request->temporary));
    for (size_t i = 0; i < kept->count && request->template_count == 0; i++)
        TT_TRY(note(request, kept->files[i].name, kept->files[i].data, kept->files[i].bytes));
    return TT_OK;
}

static bool replaces_templates(const struct tt_publication *request)
{
    for (size_t i = 0; i < request->template_count; i++)
        if (tt_ends_with(request->templates[i].name, ".jinja")) return true;
    return false;
}

static tt_status leave_out(const struct tt_publication *request, const char *name)
{
    struct tt_path path;
    TT_TRY(tt_path_set(&path, request->temporary, name));
    return tt_path_exists(path.text) ? tt_file_remove(path.text) : TT_OK;
}

/* Chat templates of the settings or of an adapter, and a tokenizer with new tokens, replace those of the model
 * folder. */
static tt_status write_templates(const struct tt_publication *request)
{
    struct tt_path additional;
    if (request->template_count == 0) return TT_OK;
    TT_TRY(tt_path_set(&additional, request->temporary, "additional_chat_templates"));
    if (replaces_templates(request)) TT_TRY(tt_dir_remove(additional.text));
    for (size_t i = 0; i < request->template_count; i++) {
        const struct tt_save_template *template = &request->templates[i];
        if (template->text == NULL) {
            TT_TRY(leave_out(request, template->name));
            continue;
        }
        struct tt_str text = {0};
        if (strchr(template->name, '/') != NULL) TT_TRY(tt_dir_create(additional.text));
        tt_status status = tt_str_append_text(&text, template->text);
        if (status == TT_OK) status = write_text(request->temporary, template->name, &text);
        tt_str_deinit(&text);
        if (status != TT_OK) return status;
    }
    return TT_OK;
}

struct weights_reader {
    const struct tt_safetensors *file;
    const struct tt_safetensors_entry *entries;
};

static tt_status read_weights(void *context, size_t index, int64_t first, int64_t count, void *to)
{
    const struct weights_reader *reader = context;
    const struct tt_safetensors_entry *entry = &reader->entries[index];
    return tt_safetensors_read(reader->file, entry, first, count, to, entry->dtype);
}

/* The weights once more, as a file of torch.save. */
static tt_status write_torch_file(const struct tt_publication *request)
{
    struct tt_path from, to;
    struct tt_safetensors *file = NULL;
    struct tt_safetensors_entry *entries = NULL;
    tt_status status = TT_OK;
    if (request->weights->file_count != 1)
        return tt_fail(TT_ERR_UNSUPPORTED, "weights in %zu files are not written for torch",
                       request->weights->file_count);
    TT_GO(tt_path_set(&from, request->temporary, request->weights->files[0].name));
    TT_GO(tt_path_set(&to, request->temporary, request->torch_name));
    TT_GO(tt_safetensors_open(from.text, &file));
    size_t count = tt_safetensors_count(file);
    entries = tt_calloc(count + 1, sizeof *entries);
    if (entries == NULL) TT_GO(TT_ERR_MEMORY);
    for (size_t i = 0; i < count; i++) entries[i] = *tt_safetensors_entry(file, i);
    struct weights_reader reader = {file, entries};
    TT_GO(tt_pth_write(to.text, entries, count, read_weights, &reader));
out:
    tt_free(entries);
    tt_safetensors_close(file);
    return status;
}

static tt_status copy_tensor(const struct tt_publication *request, const struct tt_safetensors_entry *entry,
                             int descriptor, const char *path, char *bytes, size_t most)
{
    const struct tt_safetensors_entry *from = tt_model_folder_find_stored(request->base, entry->name);
    if (from == NULL) return tt_fail(TT_ERR_INTERNAL, "the model folder has no '%s'", entry->name);
    int64_t size = (int64_t)tt_dtype_bytes(from->dtype), step = (int64_t)most / size;
    int64_t count = (int64_t)from->bytes / size;
    for (int64_t done = 0; done < count; done += step) {
        int64_t piece = tt_smaller(step, count - done);
        TT_TRY(tt_model_folder_read(request->base, from, done, piece, bytes, from->dtype));
        TT_TRY(tt_file_pwrite(descriptor, path, bytes, (size_t)(piece * size),
                              entry->offset + (uint64_t)(done * size)));
    }
    return TT_OK;
}

/* The transposed tensors, which threads take one after the other: one thread writes the pieces of a tensor. */
struct turning {
    const struct tt_safetensors *turned; /* the parameters that the ranks wrote whole */
    const struct tt_weights_file *file;
    int descriptor;
    const char *path;
    atomic_size_t next; /* entry */
    atomic_bool failed;
};

/* Elements of the parameters in their places in a transposed tensor. */
static tt_status turn_piece(const struct turning *turning, const struct tt_weights_piece *piece,
                            struct tt_source_output *to, char *bytes, size_t most)
{
    const struct tt_safetensors *turned = turning->turned;
    const struct tt_safetensors_entry *from = tt_safetensors_find(turned, piece->param->name);
    if (from == NULL)
        return tt_fail(TT_ERR_INTERNAL, "'%s' has no '%s'", tt_safetensors_path(turned), piece->param->name);
    to->width = tt_dtype_bytes(from->dtype);
    to->offset = turning->file->entries[piece->entry].offset;
    int64_t count = piece->piece.rows * piece->piece.columns, columns = piece->piece.columns;
    int64_t step = (int64_t)(most / to->width);
    if (step > columns) step -= step % columns; /* whole rows */
    for (int64_t done = 0; done < count; done += step) {
        int64_t some = tt_smaller(step, count - done);
        TT_TRY(tt_safetensors_read(turned, from, piece->piece.first + done, some, bytes, from->dtype));
        TT_TRY(tt_source_piece_write(&piece->piece, to, done, some, bytes));
    }
    return TT_OK;
}

static tt_status turn_some(void *argument)
{
    enum { STEP_BYTES = 8 << 20 };
    struct turning *turning = argument;
    struct tt_source_output to = {.descriptor = turning->descriptor, .path = turning->path};
    char *bytes = tt_alloc_aligned(STEP_BYTES);
    tt_status status = bytes != NULL ? TT_OK : TT_ERR_MEMORY;
    for (size_t e; status == TT_OK && !atomic_load(&turning->failed) &&
                   (e = atomic_fetch_add(&turning->next, 1)) < turning->file->count;)
        for (size_t p = 0; p < turning->file->piece_count && status == TT_OK; p++)
            if (turning->file->pieces[p].entry == e)
                status = turn_piece(turning, &turning->file->pieces[p], &to, bytes, STEP_BYTES);
    if (status != TT_OK) atomic_store(&turning->failed, true);
    tt_free(bytes);
    return status;
}

static tt_status turn_tensors(const struct tt_publication *request, const struct tt_weights_file *file,
                              int descriptor, const char *path)
{
    struct tt_path from;
    struct tt_safetensors *turned = NULL;
    if (request->weights->turned.count == 0) return TT_OK;
    TT_TRY(tt_path_set(&from, request->temporary, request->weights->turned.name));
    TT_TRY(tt_safetensors_open(from.text, &turned));
    struct turning turning = {.turned = turned, .file = file, .descriptor = descriptor, .path = path};
    int threads = tt_cpu_count() < TURNING_THREADS_MAX ? tt_cpu_count() : TURNING_THREADS_MAX;
    if ((size_t)threads > file->count) threads = (int)file->count;
    tt_status status = tt_threads_run("transpose", threads, turn_some, &turning);
    tt_safetensors_close(turned);
    TT_TRY(status);
    tt_manifest_forget(request->manifest, request->weights->turned.name);
    return tt_dir_remove(from.text);
}

/* The file of the tensors that no rank can write alone, those of parts beside the text model and transposed ones. */
static tt_status write_first_file(const struct tt_publication *request)
{
    enum { PIECE = 8 << 20 };
    const struct tt_weights_file *file = &request->weights->files[request->weights->file_count - 1];
    struct tt_path path;
    int descriptor = -1;
    tt_status status = TT_OK;
    TT_TRY(tt_path_set(&path, request->temporary, file->name));
    char *bytes = tt_alloc_aligned(PIECE);
    if (bytes == NULL) return TT_ERR_MEMORY;
    TT_GO(tt_file_create(path.text, file->bytes, &descriptor));
    TT_GO(tt_file_pwrite(descriptor, path.text, file->header.data, file->header.bytes, 0));
    TT_GO(turn_tensors(request, file, descriptor, path.text));
    struct tt_name_index pieces = {0};
    for (size_t p = 0; p < file->piece_count && status == TT_OK; p++)
        status = tt_name_index_add(&pieces, file->entries[file->pieces[p].entry].name, p);
    for (size_t i = 0; i < file->count && status == TT_OK; i++) {
        size_t piece;
        if (!tt_name_index_find(&pieces, file->entries[i].name, &piece))
            status = copy_tensor(request, &file->entries[i], descriptor, path.text, bytes, PIECE);
    }
    tt_name_index_deinit(&pieces);
    TT_GO(status);
    int written = descriptor;
    descriptor = -1;
    TT_GO(tt_file_sync_close(written, path.text));
out:
    tt_file_close(descriptor);
    tt_free(bytes);
    return status;
}

/* The manifest's sum of what the ranks wrote is forgotten: it is of another file. */
static tt_status write_plain_adapter(const struct tt_publication *request)
{
    const char *name = request->weights->files[0].name;
    TT_TRY(tt_plain_adapter_write(request->temporary, name, request->first));
    tt_manifest_forget(request->manifest, name);
    return TT_OK;
}

/* Writes all files but the weights and the state. */
static tt_status write_small_files(const struct tt_publication *request)
{
    const struct tt_weights_layout *layout = request->weights;
    tt_status status = TT_OK;
    struct tt_str text = {0};
    if (layout->of_first) TT_GO(write_first_file(request));
    if (request->first != NULL) TT_GO(write_plain_adapter(request));
    if (layout->adapter) {
        TT_GO(tt_adapter_config_write(request->model, request->base_name, &text));
        TT_GO(write_noted(request, "adapter_config.json", &text));
    } else if (layout->file_count > 1) {
        TT_GO(tt_weights_layout_index(layout, &text));
        TT_GO(write_noted(request, "model.safetensors.index.json", &text));
    }
    TT_GO(write_kept(request));
    TT_GO(write_templates(request));
    if (request->torch_name != NULL) TT_GO(write_torch_file(request));
out:
    tt_str_deinit(&text);
    return status;
}

/* The texts are a part of a checkpoint. Beside a result they are records, and a result is complete without them. */
static tt_status write_texts(const struct tt_publication *request, const char *folder, bool must)
{
    for (int i = 0; i < TT_SAVE_TEXTS_MAX; i++) {
        const struct tt_save_text *text = &request->job->texts[i];
        if (text->text.bytes == 0) continue;
        tt_status status = must ? write_noted(request, text->name, &text->text)
                                : write_text(folder, text->name, &text->text);
        if (status != TT_OK && must) return status;
        if (status != TT_OK)
            tt_warn("%s; the result in '%s' is complete without %s", tt_error_last()->message, folder,
                    text->name);
    }
    return TT_OK;
}

/* Checks the files on disk: the strict reader must accept each file and find the expected number of tensors. */
static tt_status verify_file(const struct tt_publication *publication, const char *name)
{
    const struct tt_weights_layout *weights = publication->weights;
    struct tt_safetensors *reader = NULL;
    struct tt_path path;
    TT_TRY(tt_path_set(&path, publication->temporary, name));
    tt_status status = tt_safetensors_open(path.text, &reader);
    for (size_t f = 0; f < weights->file_count && status == TT_OK; f++)
        if (strcmp(weights->files[f].name, name) == 0 &&
            tt_safetensors_count(reader) != weights->files[f].count)
            status = tt_fail(TT_ERR_IO, "'%s' holds %zu tensors after saving %zu", path.text,
                             tt_safetensors_count(reader), weights->files[f].count);
    tt_safetensors_close(reader);
    return status;
}

static tt_status verify_files(const struct tt_publication *publication)
{
    for (size_t i = 0; i < publication->manifest->count; i++)
        if (tt_ends_with(publication->manifest->files[i].name, ".safetensors"))
            TT_TRY(verify_file(publication, publication->manifest->files[i].name));
    return TT_OK;
}

struct move {
    const char *from, *to;
};

static tt_status publish_entry(void *context, const char *name)
{
    const struct move *move = context;
    struct tt_path from, to;
    TT_TRY(tt_path_set(&from, move->from, name));
    TT_TRY(tt_path_set(&to, move->to, name));
    return tt_path_is_dir(from.text) ? tt_dir_commit(from.text, to.text) : tt_file_rename(from.text, to.text);
}

/* Publishes into a folder with other content (checkpoints, logs): each file replaces the file of its name. */
static tt_status publish_into(const char *temporary, const char *folder)
{
    struct move move = {temporary, folder};
    TT_TRY(tt_dir_create(folder));
    TT_TRY(tt_dir_list(temporary, publish_entry, &move));
    TT_TRY(tt_dir_sync(folder));
    return tt_dir_remove(temporary);
}

static tt_status complete_manifest(const struct tt_publication *publication)
{
    struct tt_manifest *manifest = publication->manifest;
    uint64_t bytes = 0;
    TT_TRY(tt_manifest_add_rest(manifest, publication->temporary));
    TT_TRY(tt_manifest_write(manifest, publication->temporary));
    for (size_t i = 0; i < manifest->count; i++) bytes += manifest->files[i].bytes;
    if (bytes > READ_BACK_BYTES_MAX) return tt_manifest_check_sizes(manifest, publication->temporary);
    return tt_manifest_verify(manifest, publication->temporary, NULL);
}

tt_status tt_publish(const struct tt_publication *publication)
{
    TT_TRY(write_small_files(publication));
    TT_TRY(verify_files(publication));
    if (publication->job->merge) {
        TT_TRY(publish_into(publication->temporary, publication->job->folder));
        return write_texts(publication, publication->job->folder, false);
    }
    TT_TRY(write_texts(publication, publication->temporary, true));
    TT_TRY(complete_manifest(publication));
    return tt_dir_commit(publication->temporary, publication->job->folder);
}
