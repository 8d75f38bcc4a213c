#include "checkpoint/save.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/file.h"
#include "checkpoint/layout.h"
#include "io/model_folder.h"
#include "model/adapter_config.h"

/* Elements that pass through host memory at a time. */
enum { STAGING_COUNT = 256 * 1024 };

static const uint64_t default_shard_bytes = 50ull * 1000 * 1000 * 1000;

static const struct tt_safetensors_entry *find_entry(const struct tt_weights_layout *layout,
                                                     const tt_param *param, size_t *file)
{
    for (*file = 0; *file < layout->file_count; (*file)++)
        for (size_t i = 0; i < layout->files[*file].count; i++)
            if (layout->files[*file].params[i] == param) return &layout->files[*file].entries[i];
    return NULL;
}

static tt_status write_piece(const struct tt_piece *piece, const struct tt_safetensors_entry *entry,
                             int descriptor, const char *path, struct tt_stream *stream, float *staging)
{
    size_t from_bytes = tt_dtype_bytes(piece->dtype), to_bytes = tt_dtype_bytes(entry->dtype);
    float *converted = staging + STAGING_COUNT;
    for (int64_t done = 0; done < piece->count; done += STAGING_COUNT) {
        int64_t count = piece->count - done < STAGING_COUNT ? piece->count - done : STAGING_COUNT;
        TT_TRY(tt_copy_to_host(stream, staging, (char *)piece->data + (size_t)done * from_bytes,
                               (size_t)count * from_bytes));
        TT_TRY(tt_stream_synchronize(stream));
        if (!tt_dtype_convert(converted, entry->dtype, staging, piece->dtype, (size_t)count))
            return tt_fail(TT_ERR_INTERNAL, "'%s' cannot be saved as %s", piece->param->name,
                           entry->dtype_name);
        TT_TRY(tt_file_pwrite(descriptor, path, converted, (size_t)count * to_bytes,
                              entry->offset + (uint64_t)(piece->first + done) * to_bytes));
    }
    return TT_OK;
}

/* This rank's share of one file. */
static tt_status write_slices(const struct tt_save_request *request, const struct tt_weights_layout *layout,
                              size_t file, const char *folder)
{
    tt_status status = TT_OK;
    int descriptor = -1;
    char *path = tt_path_join(folder, layout->files[file].name);
    float *staging = tt_alloc_aligned(2 * STAGING_COUNT * sizeof *staging);
    if (path == NULL || staging == NULL) TT_GO(TT_ERR_MEMORY);
    TT_GO(tt_file_open_write(path, &descriptor));
    for (int u = 0; u < request->model->unit_count; u++) {
        for (size_t p = 0; p < tt_unit_piece_count(request->units[u]); p++) {
            struct tt_piece piece = tt_unit_piece(request->units[u], p);
            size_t in_file;
            const struct tt_safetensors_entry *entry = find_entry(layout, piece.param, &in_file);
            if (entry == NULL || in_file != file) continue;
            TT_GO(write_piece(&piece, entry, descriptor, path, request->stream, staging));
        }
    }
    TT_GO(tt_file_sync_close(descriptor, path));
    descriptor = -1;
out:
    tt_file_close(descriptor);
    tt_free(staging);
    tt_free(path);
    return status;
}

/* Rank 0, before anyone writes: the folder and files of full length with their headers. */
static tt_status create_files(const struct tt_weights_layout *layout, const char *folder)
{
    TT_TRY(tt_dir_remove(folder));
    TT_TRY(tt_dir_create(folder));
    for (size_t f = 0; f < layout->file_count; f++) {
        int descriptor = -1;
        char *path = tt_path_join(folder, layout->files[f].name);
        if (path == NULL) return TT_ERR_MEMORY;
        tt_status status = tt_file_create(path, layout->files[f].bytes, &descriptor);
        if (status == TT_OK)
            status = tt_file_pwrite(descriptor, path, layout->files[f].header.data,
                                    layout->files[f].header.bytes, 0);
        if (status == TT_OK)
            status = tt_file_sync_close(descriptor, path);
        else
            tt_file_close(descriptor);
        tt_free(path);
        if (status != TT_OK) return status;
    }
    return TT_OK;
}

static tt_status write_text(const char *folder, const char *name, const struct tt_str *text)
{
    char *path = tt_path_join(folder, name);
    if (path == NULL) return TT_ERR_MEMORY;
    tt_status status = tt_file_write_atomic(path, tt_str_text(text), text->bytes);
    tt_free(path);
    return status;
}

static tt_status copy_file(const char *from_folder, const char *to_folder, const char *name)
{
    tt_status status = TT_OK;
    char *from = tt_path_join(from_folder, name), *to = tt_path_join(to_folder, name);
    if (from == NULL || to == NULL) TT_GO(TT_ERR_MEMORY);
    TT_GO(tt_file_copy(from, to));
out:
    tt_free(from);
    tt_free(to);
    return status;
}

/* Rank 0, after everyone has written: the small files. */
static tt_status write_small_files(const struct tt_save_request *request,
                                   const struct tt_weights_layout *layout, const char *folder)
{
    tt_status status = TT_OK;
    struct tt_str text = {0};
    if (layout->adapter) {
        TT_GO(tt_adapter_config_write(request->model, request->base_folder, &text));
        TT_GO(write_text(folder, "adapter_config.json", &text));
    } else {
        TT_GO(copy_file(request->base_folder, folder, "config.json"));
        if (layout->file_count > 1) {
            TT_GO(tt_weights_layout_index(layout, &text));
            TT_GO(write_text(folder, "model.safetensors.index.json", &text));
        }
    }
    TT_GO(tt_model_folder_copy_tokenizer(request->base_folder, folder, !layout->adapter));
    if (request->extras != NULL) TT_GO(request->extras(request->extras_context, folder));
out:
    tt_str_deinit(&text);
    return status;
}

/* What lies on disk is whole: the strict reader takes each file, and finds as many tensors as were meant. */
static tt_status verify_files(const struct tt_weights_layout *layout, const char *folder)
{
    for (size_t f = 0; f < layout->file_count; f++) {
        const struct tt_weights_file *file = &layout->files[f];
        struct tt_safetensors *reader = NULL;
        char *path = tt_path_join(folder, file->name);
        if (path == NULL) return TT_ERR_MEMORY;
        tt_status status = tt_safetensors_open(path, &reader);
        if (status == TT_OK && tt_safetensors_count(reader) != file->count)
            status = tt_fail(TT_ERR_IO, "'%s' holds %zu tensors after saving %zu", path,
                             tt_safetensors_count(reader), file->count);
        tt_safetensors_close(reader);
        tt_free(path);
        if (status != TT_OK) return status;
    }
    return TT_OK;
}

struct publication {
    const char *from, *to;
};

static tt_status publish_entry(void *context, const char *name)
{
    const struct publication *publication = context;
    tt_status status = TT_OK;
    char *from = tt_path_join(publication->from, name), *to = tt_path_join(publication->to, name);
    if (from == NULL || to == NULL) TT_GO(TT_ERR_MEMORY);
    if (tt_path_is_dir(from))
        TT_GO(tt_dir_commit(from, to));
    else if (rename(from, to) != 0)
        TT_GO(tt_fail_errno(errno, "cannot move '%s' to '%s'", from, to));
out:
    tt_free(from);
    tt_free(to);
    return status;
}

/* Into a folder that also holds other things (checkpoints, logs): each file replaces its namesake as a whole.
 */
static tt_status publish_into(const char *temporary, const char *folder)
{
    struct publication publication = {temporary, folder};
    TT_TRY(tt_dir_create(folder));
    TT_TRY(tt_dir_list(temporary, publish_entry, &publication));
    TT_TRY(tt_dir_sync(folder));
    return tt_dir_remove(temporary);
}

static tt_status publish(const struct tt_save_request *request, const struct tt_weights_layout *layout,
                         const char *temporary)
{
    TT_TRY(write_small_files(request, layout, temporary));
    TT_TRY(verify_files(layout, temporary));
    return request->merge ? publish_into(temporary, request->folder)
                          : tt_dir_commit(temporary, request->folder);
}

tt_status tt_checkpoint_save(const struct tt_save_request *request)
{
    tt_status status = TT_OK;
    bool first = tt_comm_rank(request->comm) == 0;
    struct tt_weights_layout layout = {0};
    struct tt_str temporary = {0};
    uint64_t shard_bytes = request->max_shard_bytes > 0 ? request->max_shard_bytes : default_shard_bytes;
    status = tt_weights_layout_init(request->model, request->dtype, shard_bytes, &layout);
    if (status == TT_OK)
        status = tt_str_printf(&temporary, "%s%s", request->folder, request->merge ? "/.saving" : ".saving");
    if (status == TT_OK && first) status = create_files(&layout, tt_str_text(&temporary));
    TT_GO(tt_comm_agree(request->comm, status));
    for (size_t f = 0; f < layout.file_count && request->writes && status == TT_OK; f++)
        status = write_slices(request, &layout, f, tt_str_text(&temporary));
    TT_GO(tt_comm_agree(request->comm, status));
    if (first) status = publish(request, &layout, tt_str_text(&temporary));
    TT_GO(tt_comm_agree(request->comm, status));
out:
    if (status != TT_OK) {
        struct tt_error error;
        tt_error_copy(&error);
        if (first && temporary.bytes > 0)
            (void)!tt_dir_remove(tt_str_text(&temporary)); /* the first error counts */
        status = tt_error_restore(&error);
        tt_while("saving to '%s'", request->folder);
    }
    tt_str_deinit(&temporary);
    tt_weights_layout_deinit(&layout);
    return status;
}

tt_status tt_checkpoint_bytes(const struct tt_model *model, tt_dtype dtype, uint64_t *bytes)
{
    struct tt_weights_layout layout;
    TT_TRY(tt_weights_layout_init(model, dtype, default_shard_bytes, &layout));
    *bytes = layout.tensor_bytes;
    tt_weights_layout_deinit(&layout);
    return TT_OK;
}
