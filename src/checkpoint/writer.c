#include "checkpoint/writer.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/crc64.h"
#include "base/file.h"
#include "base/integer.h"
#include "base/thread.h"

/* Elements converted, or summed and written, at a time. */
enum {
    CHUNK_COUNT = 256 * 1024,
    NOTE_BYTES_MAX = 1 << 20,
    THREADS_MIN = 2,
    THREADS_MAX = 8,
    CHUNKS_EACH = 8,
    WRITERS_OF_FILE = 2
};

/* Longest time for which a written note may stay invisible. NFS caches missing entries of a folder for up to 60 s. */
static const double default_patience_seconds = 90.0;

void tt_writer_deinit(struct tt_writer *writer)
{
    for (size_t f = 0; f < writer->file_count; f++) tt_free(writer->files[f].parts);
    tt_free(writer->files);
    *writer = (struct tt_writer){0};
}

tt_status tt_writer_add_part(struct tt_writer_file *file, const struct tt_writer_part *part)
{
    TT_TRY(tt_grow(&file->parts, file->part_count, &file->capacity));
    file->parts[file->part_count++] = *part;
    return TT_OK;
}

/* A file of this rank's share during writing. Chunks are numbered through all its parts. Linux admits one writer to a
 * file at a time, so threads write different files while there are enough; two threads of one file take turns in
 * summing and writing. */
struct output {
    struct tt_writer_file *file;
    int descriptor; /* -1: this rank has no part of it */
    char *path;
    uint64_t chunks, next; /* the first chunk that no thread has taken; under the mutex, as is: */
    int writers;           /* threads that take its chunks */
    _Atomic uint64_t terms, written;
    _Atomic uint64_t chunks_left; /* the thread that writes the last one flushes the file */
};

struct writing {
    struct tt_writer *writer;
    struct output *outputs; /* [writer->file_count] */
    size_t first;           /* file to start with: other ranks start with other files */
    pthread_mutex_t mutex;
    atomic_bool failed;
};

static uint64_t chunks_of(const struct tt_writer_part *part)
{
    return ((uint64_t)part->count + CHUNK_COUNT - 1) / CHUNK_COUNT;
}

static tt_status write_bytes(struct writing *writing, struct output *output, const void *data, size_t bytes,
                             uint64_t offset)
{
    if (atomic_load(writing->writer->cancelled))
        return tt_fail(TT_ERR_CANCELLED, "the save of '%s' was abandoned", output->path);
    uint64_t bytes_after = output->file->file->bytes - offset - bytes;
    atomic_fetch_xor(&output->terms, tt_crc64_term(data, bytes, bytes_after));
    atomic_fetch_add(&output->written, bytes);
    return tt_file_pwrite(output->descriptor, output->path, data, bytes, offset);
}

/* Elements [first, first + count) of a piece, which lie apart in the file. */
static tt_status write_runs(struct writing *writing, struct output *output, const struct tt_writer_part *part,
                            int64_t first, int64_t count, const void *data)
{
    size_t width = tt_dtype_bytes(part->entry->dtype);
    for (int64_t at = first, end = first + count; at < end;) {
        int64_t run = tt_smaller(tt_source_piece_run(part->piece, at), end - at);
        TT_TRY(write_bytes(writing, output, (const char *)data + (size_t)(at - first) * width,
                           (size_t)run * width,
                           part->entry->offset + (uint64_t)tt_source_piece_place(part->piece, at) * width));
        at += run;
    }
    return TT_OK;
}

static tt_status write_chunk(struct writing *writing, struct output *output,
                             const struct tt_writer_part *part, uint64_t chunk, void *converted)
{
    tt_dtype to = part->entry->dtype;
    size_t from_bytes = tt_dtype_bytes(part->dtype), to_bytes = tt_dtype_bytes(to);
    int64_t done = (int64_t)chunk * CHUNK_COUNT;
    size_t count = (size_t)(part->count - done < CHUNK_COUNT ? part->count - done : CHUNK_COUNT);
    const void *data = part->from != NULL ? (const char *)part->from + (size_t)done * from_bytes : converted;
    if (part->from == NULL)
        TT_TRY(tt_safetensors_read(part->file, part->stored, done, (int64_t)count, converted, to));
    else if (part->dtype != to) {
        if (!tt_dtype_convert(converted, to, data, part->dtype, count))
            return tt_fail(TT_ERR_INTERNAL, "'%s' cannot be saved as %s", part->entry->name,
                           part->entry->dtype_name);
        data = converted;
    }
    if (part->piece != NULL)
        return write_runs(writing, output, part, part->first + done, (int64_t)count, data);
    uint64_t offset = part->entry->offset + (uint64_t)(part->first + done) * to_bytes;
    return write_bytes(writing, output, data, count * to_bytes, offset);
}

/* Position of a thread; the numbers of its chunks of a file increase. */
struct place {
    struct output *output; /* NULL: none yet */
    size_t part;
    uint64_t first_chunk; /* of the part */
};

/* A file with free chunks and the fewest writers. NULL: no work for another thread. Under the mutex. */
static struct output *output_to_join(const struct writing *writing)
{
    struct output *best = NULL;
    size_t count = writing->writer->file_count;
    for (size_t i = 0; i < count; i++) {
        struct output *output = &writing->outputs[(writing->first + i) % count];
        if (output->next == output->chunks || output->writers == WRITERS_OF_FILE) continue;
        if (best == NULL || output->writers < best->writers) best = output;
    }
    return best;
}

/* The next chunk of the thread's file, or of another one. false: none is left. */
static bool take_chunk(struct writing *writing, struct place *place, uint64_t *chunk)
{
    pthread_mutex_lock(&writing->mutex);
    if (place->output == NULL || place->output->next == place->output->chunks) {
        if (place->output != NULL) place->output->writers--;
        *place = (struct place){.output = output_to_join(writing)};
        if (place->output != NULL) place->output->writers++;
    }
    bool taken = place->output != NULL;
    if (taken) *chunk = place->output->next++;
    pthread_mutex_unlock(&writing->mutex);
    return taken;
}

/* Moves to the part with the chunk. */
static void go_to(uint64_t chunk, struct place *place)
{
    const struct tt_writer_file *file = place->output->file;
    for (;;) {
        uint64_t next = place->first_chunk + chunks_of(&file->parts[place->part]);
        if (chunk < next) return;
        place->first_chunk = next;
        place->part++;
    }
}

static tt_status flush(struct output *output)
{
    int descriptor = output->descriptor;
    output->descriptor = -1;
    return tt_file_sync_close(descriptor, output->path);
}

static tt_status write_chunks(void *argument)
{
    struct writing *writing = argument;
    struct place place = {0};
    tt_status status = TT_OK;
    void *converted = tt_alloc_aligned(CHUNK_COUNT * sizeof(double));
    if (converted == NULL) TT_GO(TT_ERR_MEMORY);
    for (uint64_t chunk; !atomic_load(&writing->failed) && take_chunk(writing, &place, &chunk);) {
        go_to(chunk, &place);
        struct output *output = place.output;
        TT_GO(write_chunk(writing, output, &output->file->parts[place.part], chunk - place.first_chunk,
                          converted));
        if (atomic_fetch_sub(&output->chunks_left, 1) == 1) TT_GO(flush(output));
    }
out:
    if (status != TT_OK) atomic_store(&writing->failed, true);
    tt_free(converted);
    return status;
}

static tt_status open_output(struct writing *writing, struct output *output)
{
    const struct tt_writer_file *file = output->file;
    const struct tt_str *header = &file->file->header;
    output->path = tt_path_join(writing->writer->folder, file->file->name);
    if (output->path == NULL) return TT_ERR_MEMORY;
    TT_TRY(tt_file_open_shared(output->path, file->file->bytes, &output->descriptor));
    return file->writes_header ? write_bytes(writing, output, header->data, header->bytes, 0) : TT_OK;
}

/* One thread sums and writes about 0.8 GB/s, most of it the file system's time. Training needs the other processors:
 * the ranks of a machine use half of them together, and one rank alone a quarter. */
static int threads_for(const struct tt_writer *writer, uint64_t chunks)
{
    int ranks = writer->ranks_here > 2 ? writer->ranks_here : 2, share = tt_cpu_count() / (2 * ranks);
    int most = share < THREADS_MIN ? THREADS_MIN : share > THREADS_MAX ? THREADS_MAX : share;
    uint64_t worthwhile = chunks / CHUNKS_EACH;
    return worthwhile < (uint64_t)most ? (int)worthwhile + (worthwhile == 0) : most;
}

static tt_status write_files(struct tt_writer *writer)
{
    tt_status status = TT_OK;
    struct writing writing = {.writer = writer, .mutex = PTHREAD_MUTEX_INITIALIZER};
    size_t count = writer->file_count;
    int ranks = writer->ranks_here > 1 ? writer->ranks_here : 1;
    uint64_t chunks = 0;
    writing.first = (size_t)(writer->rank % ranks) * count / (size_t)ranks;
    writing.outputs = tt_calloc(count + 1, sizeof *writing.outputs);
    if (writing.outputs == NULL) return TT_ERR_MEMORY;
    for (size_t f = 0; f < count; f++)
        writing.outputs[f] = (struct output){.file = &writer->files[f], .descriptor = -1};
    for (size_t f = 0; f < count; f++) {
        struct output *output = &writing.outputs[f];
        const struct tt_writer_file *file = output->file;
        if (file->part_count > 0 || file->writes_header) TT_GO(open_output(&writing, output));
        for (size_t p = 0; p < file->part_count; p++) output->chunks += chunks_of(&file->parts[p]);
        output->chunks_left = output->chunks;
        chunks += output->chunks;
        if (output->chunks == 0) TT_GO(flush(output));
    }
    TT_GO(tt_threads_run("save", threads_for(writer, chunks), write_chunks, &writing));
    for (size_t f = 0; f < count; f++) {
        writer->files[f].terms = writing.outputs[f].terms;
        writer->files[f].written = writing.outputs[f].written;
    }
out:
    for (size_t f = 0; f < count; f++) {
        tt_file_close(writing.outputs[f].descriptor);
        tt_free(writing.outputs[f].path);
    }
    tt_free(writing.outputs);
    pthread_mutex_destroy(&writing.mutex);
    return status;
}

/* ".written-3" below the folder; returns owned memory. */
static char *note_path(const char *folder, int rank)
{
    char name[32];
    snprintf(name, sizeof name, ".written-%d", rank);
    return tt_path_join(folder, name);
}

/* One line a file: bytes written, its size, the terms of its sum, its name. The note appears as a whole; it need not
 * outlive this save, so it is not synced. */
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
    TT_TRY(tt_dir_create(writer->folder));
    tt_status status = write_files(writer);
    if (status == TT_OK) status = write_note(writer);
    return tt_writer_explain(writer, false, status);
}

/* The total of one file over all ranks. */
struct sum {
    char name[80];
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
    if (sscanf(line, "%llu %llu %llx %79s", &written, &bytes, &terms, row.name) != 4)
        return tt_fail(TT_ERR_IO, "'%s' has changed since it was written", path);
    size_t i = 0;
    while (i < sums->count && strcmp(sums->rows[i].name, row.name) != 0) i++;
    if (i == sums->count) {
        TT_TRY(tt_grow(&sums->rows, sums->count, &sums->capacity));
        row.bytes = bytes;
        sums->rows[sums->count++] = row;
    }
    sums->rows[i].written += written;
    sums->rows[i].terms ^= terms;
    return TT_OK;
}

static tt_status fail_removed(const char *path)
{
    tt_status status = tt_fail(TT_ERR_IO, "'%s' was removed while it was written", path);
    tt_hint("no other program may change output_dir while a run uses it");
    return status;
}

tt_status tt_writer_explain(const struct tt_writer *writer, bool written, tt_status status)
{
    const struct timespec pause = {.tv_nsec = 10000000};
    /* A full disk is its own cause, also where rank 0 then clears the folder away. */
    if (status != TT_ERR_DATA && !(written && status == TT_ERR_IO)) return status;
    for (int i = 0; i < 100 && tt_path_is_dir(writer->folder); i++) nanosleep(&pause, NULL);
    if (!tt_path_is_dir(writer->folder)) return fail_removed(writer->folder);
    for (size_t f = 0; written && f < writer->file_count; f++) {
        struct tt_path path;
        TT_TRY(tt_path_set(&path, writer->folder, writer->files[f].file->name));
        if (!tt_path_exists(path.text)) return fail_removed(path.text);
    }
    return status;
}

/* Fails when waiting for the note `path` is pointless. `*since`: time at which all ranks had written; 0: not yet. */
static tt_status check_wait(const struct tt_writer *writer, const char *path, double *since)
{
    if (atomic_load(writer->cancelled))
        return tt_fail(TT_ERR_CANCELLED, "the save of '%s' was abandoned", writer->folder);
    if (!tt_path_is_dir(writer->folder)) return fail_removed(writer->folder);
    if (!atomic_load(writer->all_written)) return TT_OK;
    double now = tt_clock_seconds();
    if (*since <= 0) *since = now;
    bool stops = writer->stop != NULL && atomic_load(&writer->stop->requests) > 0;
    double patience = writer->patience_seconds > 0 ? writer->patience_seconds : default_patience_seconds;
    if (now - *since <= (stops ? patience / 4 : patience)) return TT_OK;
    (void)tt_fail(TT_ERR_IO, "'%s' was written %.0f s ago and does not exist", path, now - *since);
    tt_hint("another program changes output_dir, or the file system shows new files too late");
    return TT_ERR_IO;
}

static tt_status wait_for(const struct tt_writer *writer, const char *path)
{
    struct timespec pause = {.tv_nsec = 500000};
    double since = 0;
    while (!tt_path_exists(path)) {
        TT_TRY(check_wait(writer, path, &since));
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
        if (end == NULL) TT_GO(tt_fail(TT_ERR_IO, "'%s' has changed since it was written", path));
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
            TT_GO(tt_fail(TT_ERR_INTERNAL, "'%s': %llu bytes were written, but the file has %llu", row->name,
                          (unsigned long long)row->written, (unsigned long long)row->bytes));
        TT_GO(tt_manifest_add(manifest, row->name, row->bytes, tt_crc64_finish(row->terms, row->bytes)));
    }
out:
    tt_free(sums.rows);
    return status;
}
