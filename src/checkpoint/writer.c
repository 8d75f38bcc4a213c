#include "checkpoint/writer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/crc64.h"
#include "base/file.h"

/* Elements that are converted, or summed and written, at a time. */
enum { CHUNK_COUNT = 256 * 1024, NOTE_BYTES_MAX = 1 << 20 };

void tt_writer_deinit(struct tt_writer *writer)
{
    for (size_t f = 0; f < writer->file_count; f++) tt_free(writer->files[f].parts);
    tt_free(writer->files);
    *writer = (struct tt_writer){0};
}

tt_status tt_writer_add_part(struct tt_writer_file *file, const struct tt_writer_part *part)
{
    if (tt_grow((void **)&file->parts, file->part_count, &file->capacity, sizeof *file->parts) != 0)
        return TT_ERR_MEMORY;
    file->parts[file->part_count++] = *part;
    return TT_OK;
}

/* An open file of this rank's share. */
struct output {
    const struct tt_writer *writer;
    struct tt_writer_file *file;
    int descriptor;
    char *path;
    void *converted;
};

static tt_status write_bytes(struct output *output, const void *data, size_t bytes, uint64_t offset)
{
    struct tt_writer_file *file = output->file;
    if (atomic_load(output->writer->cancelled))
        return tt_fail(TT_ERR_CANCELLED, "the save of '%s' was given up", output->path);
    file->terms ^= tt_crc64_term(data, bytes, file->file->bytes - offset - bytes);
    file->written += bytes;
    return tt_file_pwrite(output->descriptor, output->path, data, bytes, offset);
}

static tt_status write_part(struct output *output, const struct tt_writer_part *part)
{
    tt_dtype to = part->entry->dtype;
    size_t from_bytes = tt_dtype_bytes(part->dtype), to_bytes = tt_dtype_bytes(to);
    uint64_t offset = part->entry->offset + (uint64_t)part->first * to_bytes;
    for (int64_t done = 0; done < part->count; done += CHUNK_COUNT) {
        size_t count = (size_t)(part->count - done < CHUNK_COUNT ? part->count - done : CHUNK_COUNT);
        const void *data = (const char *)part->from + (size_t)done * from_bytes;
        if (part->dtype != to) {
            if (!tt_dtype_convert(output->converted, to, data, part->dtype, count))
                return tt_fail(TT_ERR_INTERNAL, "'%s' cannot be saved as %s", part->entry->name,
                               part->entry->dtype_name);
            data = output->converted;
        }
        TT_TRY(write_bytes(output, data, count * to_bytes, offset + (uint64_t)done * to_bytes));
    }
    return TT_OK;
}

static tt_status write_file(const struct tt_writer *writer, struct tt_writer_file *file, void *converted)
{
    tt_status status = TT_OK;
    struct output output = {.writer = writer, .file = file, .descriptor = -1, .converted = converted};
    const struct tt_str *header = &file->file->header;
    file->terms = file->written = 0;
    if (file->part_count == 0 && !file->writes_header) return TT_OK;
    output.path = tt_path_join(writer->folder, file->file->name);
    if (output.path == NULL) return TT_ERR_MEMORY;
    TT_GO(tt_file_open_shared(output.path, file->file->bytes, &output.descriptor));
    if (file->writes_header) TT_GO(write_bytes(&output, header->data, header->bytes, 0));
    for (size_t p = 0; p < file->part_count; p++) TT_GO(write_part(&output, &file->parts[p]));
    status = tt_file_sync_close(output.descriptor, output.path);
    output.descriptor = -1;
out:
    tt_file_close(output.descriptor);
    tt_free(output.path);
    return status;
}

/* ".written-3" below the folder; returns owned memory. */
static char *note_path(const char *folder, int rank)
{
    char name[32];
    snprintf(name, sizeof name, ".written-%d", rank);
    return tt_path_join(folder, name);
}

/* One line a file: what was written of it, its size, the terms of its sum, its name. It appears as a whole;
 * it need not outlive this save, so nothing is synced. */
static tt_status write_note(const struct tt_writer *writer)
{
    tt_status status = TT_OK;
    int descriptor = -1;
    struct tt_str text = {0}, unnamed = {0};
    char *path = note_path(writer->folder, writer->rank);
    if (path == NULL) return TT_ERR_MEMORY;
    for (size_t f = 0; f < writer->file_count; f++) {
        const struct tt_writer_file *file = &writer->files[f];
        TT_GO(tt_str_printf(&text, "%llu %llu %llx %s\n", (unsigned long long)file->written,
                            (unsigned long long)file->file->bytes, (unsigned long long)file->terms,
                            file->file->name));
    }
    TT_GO(tt_str_printf(&unnamed, "%s.new", path));
    TT_GO(tt_file_create(tt_str_text(&unnamed), 0, &descriptor));
    TT_GO(tt_file_pwrite(descriptor, path, tt_str_text(&text), text.bytes, 0));
    TT_GO(tt_file_rename(tt_str_text(&unnamed), path));
out:
    tt_file_close(descriptor);
    tt_str_deinit(&unnamed);
    tt_str_deinit(&text);
    tt_free(path);
    return status;
}

tt_status tt_writer_run(struct tt_writer *writer)
{
    tt_status status = TT_OK;
    void *converted = tt_alloc_aligned(CHUNK_COUNT * sizeof(double));
    if (converted == NULL) return TT_ERR_MEMORY;
    TT_GO(tt_dir_create(writer->folder));
    for (size_t f = 0; f < writer->file_count; f++) TT_GO(write_file(writer, &writer->files[f], converted));
    TT_GO(write_note(writer));
out:
    tt_free(converted);
    return status;
}

/* What all ranks wrote of one file. */
struct sum {
    char name[64];
    uint64_t written, bytes, terms;
};

struct sums {
    struct sum *rows; /* owned */
    size_t count, capacity;
};

static tt_status add_line(struct sums *sums, const char *line, const char *path)
{
    unsigned long long written, bytes, terms;
    struct sum row = {0};
    if (sscanf(line, "%llu %llu %llx %63s", &written, &bytes, &terms, row.name) != 4)
        return tt_fail(TT_ERR_IO, "'%s' is not as it was written", path);
    size_t i = 0;
    while (i < sums->count && strcmp(sums->rows[i].name, row.name) != 0) i++;
    if (i == sums->count) {
        if (tt_grow((void **)&sums->rows, sums->count, &sums->capacity, sizeof row) != 0)
            return TT_ERR_MEMORY;
        row.bytes = bytes;
        sums->rows[sums->count++] = row;
    }
    sums->rows[i].written += written;
    sums->rows[i].terms ^= terms;
    return TT_OK;
}

static tt_status wait_for(const struct tt_writer *writer, const char *path)
{
    struct timespec pause = {.tv_nsec = 500000};
    while (!tt_path_exists(path)) {
        if (atomic_load(writer->cancelled))
            return tt_fail(TT_ERR_CANCELLED, "the save of '%s' was given up", writer->folder);
        nanosleep(&pause, NULL);
        if (pause.tv_nsec < 50000000) pause.tv_nsec *= 2;
    }
    return TT_OK;
}

static tt_status collect_note(const struct tt_writer *writer, int rank, struct sums *sums)
{
    tt_status status = TT_OK;
    struct tt_str text = {0};
    char *path = note_path(writer->folder, rank);
    if (path == NULL) return TT_ERR_MEMORY;
    TT_GO(wait_for(writer, path));
    TT_GO(tt_file_read(path, NOTE_BYTES_MAX, &text));
    for (char *line = text.data; *line != '\0';) {
        char *end = strchr(line, '\n');
        if (end == NULL) TT_GO(tt_fail(TT_ERR_IO, "'%s' is not as it was written", path));
        *end = '\0';
        TT_GO(add_line(sums, line, path));
        line = end + 1;
    }
    TT_GO(tt_dir_remove(path));
out:
    tt_str_deinit(&text);
    tt_free(path);
    return status;
}

tt_status tt_writer_collect(const struct tt_writer *writer, const bool *expected, int world_size,
                            struct tt_manifest *manifest)
{
    tt_status status = TT_OK;
    struct sums sums = {0};
    for (int rank = 0; rank < world_size; rank++)
        if (expected[rank]) TT_GO(collect_note(writer, rank, &sums));
    for (size_t i = 0; i < sums.count; i++) {
        const struct sum *row = &sums.rows[i];
        if (row->written != row->bytes)
            TT_GO(tt_fail(TT_ERR_INTERNAL, "of '%s' %llu bytes were written, and it has %llu", row->name,
                          (unsigned long long)row->written, (unsigned long long)row->bytes));
        TT_GO(tt_manifest_add(manifest, row->name, row->bytes, tt_crc64_finish(row->terms, row->bytes)));
    }
out:
    tt_free(sums.rows);
    return status;
}
