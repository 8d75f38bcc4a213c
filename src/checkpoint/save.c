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

/* Bytes that come from the device before the host waits for them, of at most so many pieces; elements that
 * are converted at a time. */
enum { STAGING_BYTES = 8 << 20, PARTS_MAX = 256, CONVERTED_COUNT = 256 * 1024 };
#define PART_ALIGNMENT ((size_t)64)

static const uint64_t default_shard_bytes = 50ull * 1000 * 1000 * 1000;

static const struct tt_safetensors_entry *find_entry(const struct tt_weights_layout *layout,
                                                     const tt_param *param, size_t *file)
{
    for (*file = 0; *file < layout->file_count; (*file)++)
        for (size_t i = 0; i < layout->files[*file].count; i++)
            if (layout->files[*file].params[i] == param) return &layout->files[*file].entries[i];
    return NULL;
}

/* Elements on their way from a piece into the file. */
struct part {
    const tt_param *param;
    const struct tt_safetensors_entry *entry;
    const char *from; /* host memory, once the stream has passed */
    tt_dtype dtype;
    int64_t first, count;
};

/* Writes one file. Downloads gather in one page-locked buffer until it is full; what lies in the
 * host's memory is written from there. */
struct writer {
    struct tt_stream *stream;
    int descriptor;
    char *path;
    struct tt_buffer *staging; /* NULL: the device is the host */
    size_t staged_bytes;
    void *converted;
    struct part parts[PARTS_MAX];
    size_t part_count;
};

static tt_status write_part(struct writer *writer, const struct part *part)
{
    tt_dtype to = part->entry->dtype;
    size_t from_bytes = tt_dtype_bytes(part->dtype), to_bytes = tt_dtype_bytes(to);
    uint64_t offset = part->entry->offset + (uint64_t)part->first * to_bytes;
    if (part->dtype == to)
        return tt_file_pwrite(writer->descriptor, writer->path, part->from, (size_t)part->count * to_bytes,
                              offset);
    for (int64_t done = 0; done < part->count; done += CONVERTED_COUNT) {
        size_t count = (size_t)(part->count - done < CONVERTED_COUNT ? part->count - done : CONVERTED_COUNT);
        if (!tt_dtype_convert(writer->converted, to, part->from + (size_t)done * from_bytes, part->dtype,
                              count))
            return tt_fail(TT_ERR_INTERNAL, "'%s' cannot be saved as %s", part->param->name,
                           part->entry->dtype_name);
        TT_TRY(tt_file_pwrite(writer->descriptor, writer->path, writer->converted, count * to_bytes,
                              offset + (uint64_t)done * to_bytes));
    }
    return TT_OK;
}

static tt_status flush(struct writer *writer)
{
    if (writer->part_count > 0) TT_TRY(tt_stream_synchronize(writer->stream));
    for (size_t i = 0; i < writer->part_count; i++) TT_TRY(write_part(writer, &writer->parts[i]));
    writer->part_count = 0;
    writer->staged_bytes = 0;
    return TT_OK;
}

static tt_status write_piece(struct writer *writer, const struct tt_piece *piece,
                             const struct tt_safetensors_entry *entry)
{
    size_t element = tt_dtype_bytes(piece->dtype);
    for (int64_t done = 0; done < piece->count;) {
        const char *data = (const char *)piece->data + (size_t)done * element;
        struct part part = {piece->param,       entry, data, piece->dtype, piece->first + done,
                            piece->count - done};
        bool full = writer->staged_bytes + element > STAGING_BYTES;
        if (full || writer->part_count == PARTS_MAX) TT_TRY(flush(writer));
        if (writer->staging != NULL && !piece->in_host) {
            int64_t room = (int64_t)((STAGING_BYTES - writer->staged_bytes) / element);
            char *staged = (char *)tt_buffer_data(writer->staging) + writer->staged_bytes;
            if (part.count > room) part.count = room;
            part.from = staged;
            /* The next part may be of a wider type. */
            writer->staged_bytes +=
                ((size_t)part.count * element + PART_ALIGNMENT - 1) & ~(PART_ALIGNMENT - 1);
            TT_TRY(tt_copy_to_host(writer->stream, staged, data, (size_t)part.count * element));
        }
        writer->parts[writer->part_count++] = part;
        done += part.count;
    }
    return TT_OK;
}

static tt_status open_writer(struct tt_stream *stream, const char *folder, const char *name,
                             struct writer *writer)
{
    struct tt_device *device = tt_stream_device(stream);
    *writer = (struct writer){.stream = stream, .descriptor = -1};
    writer->path = tt_path_join(folder, name);
    writer->converted = tt_alloc_aligned(CONVERTED_COUNT * sizeof(double));
    if (writer->path == NULL || writer->converted == NULL) return TT_ERR_MEMORY;
    if (!tt_device_is_host(device))
        TT_TRY(tt_host_buffer_create(device, STAGING_BYTES, TT_PURPOSE_STAGING, &writer->staging));
    return tt_file_open_write(writer->path, &writer->descriptor);
}

/* What is still on its way into the buffer, after an error, ends first. */
static void close_writer(struct writer *writer)
{
    struct tt_error error;
    tt_error_copy(&error);
    if (writer->staging != NULL && tt_stream_synchronize(writer->stream) != TT_OK)
        (void)tt_error_restore(&error);
    tt_buffer_destroy(writer->staging);
    tt_file_close(writer->descriptor);
    tt_free(writer->converted);
    tt_free(writer->path);
}

/* This rank's share of one file. */
static tt_status write_slices(const struct tt_save_request *request, const struct tt_weights_layout *layout,
                              size_t file, const char *folder)
{
    tt_status status = TT_OK;
    struct writer writer;
    TT_GO(open_writer(request->stream, folder, layout->files[file].name, &writer));
    for (int u = 0; u < request->model->unit_count; u++) {
        for (size_t p = 0; p < tt_unit_piece_count(request->units[u]); p++) {
            struct tt_piece piece = tt_unit_piece(request->units[u], p);
            size_t in_file;
            const struct tt_safetensors_entry *entry = find_entry(layout, piece.param, &in_file);
            if (entry == NULL || in_file != file) continue;
            TT_GO(write_piece(&writer, &piece, entry));
        }
    }
    TT_GO(flush(&writer));
    status = tt_file_sync_close(writer.descriptor, writer.path);
    writer.descriptor = -1;
out:
    close_writer(&writer);
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
