#include "run/record_file.h"

#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "base/store.h"

/* Bytes of unwritten records in memory: days of a log; bytes of an old file that are read. */
enum { WAITING_BYTES_MAX = 64 << 20, OLD_BYTES_MAX = 256 << 20, FLUSH_SECONDS = 30 };

struct tt_record_file {
    char *path;
    int descriptor; /* -1: the file was removed and could not be created again */
    uint64_t offset;
    char *mirror_path; /* NULL: none */
    int mirror;
    uint64_t mirror_bytes;
    struct tt_str waiting; /* records that could not be written yet */
    int64_t waiting_count, lost_count;
    bool warned;
    double flushed, flush_seconds; /* time of the last flush, and how long it took */
};

tt_status tt_record_file_create(const char *path, struct tt_record_file **out)
{
    tt_status status = TT_OK;
    struct tt_record_file *file = tt_calloc(1, sizeof *file);
    if (file == NULL) return TT_ERR_MEMORY;
    file->descriptor = -1;
    file->path = tt_strdup(path);
    if (file->path == NULL) TT_GO(TT_ERR_MEMORY);
    TT_GO(tt_file_create(path, 0, &file->descriptor));
    file->flushed = tt_clock_seconds();
    *out = file;
    file = NULL;
out:
    if (file != NULL) {
        tt_free(file->path);
        tt_free(file);
    }
    return status;
}

/* The lines of the steps up to `first_step`. */
static size_t count_kept(const struct tt_str *old, int64_t first_step)
{
    size_t kept = 0;
    while (kept < old->bytes) {
        struct tt_json line = {0};
        int64_t step = INT64_MAX;
        const char *end = memchr(old->data + kept, '\n', old->bytes - kept);
        if (end == NULL) return kept;
        tt_status status =
            tt_json_parse_nul(old->data + kept, (size_t)(end - old->data) - kept, "a line", &line);
        if (status == TT_OK) step = tt_json_integer(tt_json_get(line.root, "step"));
        tt_json_deinit(&line);
        tt_error_clear();
        if (step > first_step) return kept;
        kept = (size_t)(end - old->data) + 1;
    }
    return kept;
}

tt_status tt_record_file_continue(const char *path, int64_t first_step, struct tt_record_file **out)
{
    tt_status status = TT_OK;
    struct tt_str old = {0};
    if (first_step > 0 && tt_path_exists(path)) TT_GO(tt_file_read(path, OLD_BYTES_MAX, &old));
    TT_GO(tt_record_file_create(path, out));
    size_t kept = count_kept(&old, first_step);
    if (kept > 0) tt_record_file_append(*out, old.data, kept);
out:
    tt_str_deinit(&old);
    return status;
}

/* Writes to a removed file would be lost: creates the file again. */
static tt_status reopen(struct tt_record_file *file)
{
    if (tt_file_is_linked(file->descriptor)) return TT_OK;
    tt_file_close(file->descriptor);
    file->descriptor = -1;
    file->offset = 0;
    return tt_file_create(file->path, 0, &file->descriptor);
}

static tt_status write_waiting(struct tt_record_file *file)
{
    if (file->waiting.bytes == 0) return TT_OK;
    TT_TRY(reopen(file));
    tt_status status =
        tt_file_pwrite(file->descriptor, file->path, file->waiting.data, file->waiting.bytes, file->offset);
    if (status != TT_OK) {
        tt_file_truncate(file->descriptor, file->offset);
        return status;
    }
    file->offset += file->waiting.bytes;
    file->waiting_count = 0;
    tt_str_clear(&file->waiting);
    return TT_OK;
}

/* A store that cannot append gets the whole file now and then: at most a hundredth of the time goes into it. */
static tt_status flush(struct tt_record_file *file)
{
    double now = tt_clock_seconds(), pause = 100 * file->flush_seconds;
    if (pause < FLUSH_SECONDS) pause = FLUSH_SECONDS;
    if (tt_store_can(file->path, TT_STORE_CAN_APPEND) || now - file->flushed < pause) return TT_OK;
    tt_status status = tt_file_flush(file->descriptor, file->path);
    file->flushed = tt_clock_seconds();
    file->flush_seconds = file->flushed - now;
    return status;
}

static void drop_mirror(struct tt_record_file *file)
{
    if (file->mirror_path != NULL) tt_file_close(file->mirror);
    tt_free(file->mirror_path);
    file->mirror_path = NULL;
}

static void append_to_mirror(struct tt_record_file *file, const void *data, size_t bytes)
{
    if (file->mirror_path == NULL) return;
    if (tt_file_pwrite(file->mirror, file->mirror_path, data, bytes, file->mirror_bytes) == TT_OK) {
        file->mirror_bytes += bytes;
        return;
    }
    tt_warn("%s; who reads it there gets no more", tt_error_last()->message);
    tt_error_clear();
    drop_mirror(file);
}

tt_status tt_record_file_mirror(struct tt_record_file *file, const char *path)
{
    tt_status status = TT_OK;
    struct tt_str text = {0};
    drop_mirror(file);
    TT_GO(tt_str_append_fill(&text, ' ', (size_t)file->offset));
    TT_GO(tt_file_pread(file->descriptor, file->path, text.data, (size_t)file->offset, 0));
    TT_GO(tt_file_create(path, 0, &file->mirror));
    file->mirror_bytes = 0;
    file->mirror_path = tt_strdup(path);
    if (file->mirror_path == NULL) {
        tt_file_close(file->mirror);
        TT_GO(TT_ERR_MEMORY);
    }
    append_to_mirror(file, text.data, (size_t)file->offset);
    append_to_mirror(file, file->waiting.data, file->waiting.bytes);
out:
    tt_str_deinit(&text);
    return status;
}

void tt_record_file_append(struct tt_record_file *file, const void *data, size_t bytes)
{
    struct tt_error error;
    tt_error_copy(&error);
    append_to_mirror(file, data, bytes);
    tt_status status = file->waiting.bytes + bytes <= WAITING_BYTES_MAX
                           ? tt_str_append(&file->waiting, data, bytes)
                           : tt_fail(TT_ERR_MEMORY, "out of memory for the records of '%s'", file->path);
    if (status == TT_OK) {
        file->waiting_count++;
        status = write_waiting(file);
        if (status == TT_OK) status = flush(file);
    } else {
        file->lost_count++;
    }
    if (status != TT_OK && !file->warned) {
        file->warned = true;
        tt_warn("%s; training continues: the records are kept in memory and written to '%s' when possible",
                tt_error_last()->message, file->path);
    }
    (void)tt_error_restore(&error);
}

void tt_record_file_close(struct tt_record_file *file)
{
    struct tt_error error;
    if (file == NULL) return;
    tt_error_copy(&error);
    if (write_waiting(file) != TT_OK) file->lost_count += file->waiting_count;
    if (!tt_store_can(file->path, TT_STORE_CAN_APPEND)) {
        int descriptor = file->descriptor;
        file->descriptor = -1;
        if (tt_file_sync_close(descriptor, file->path) != TT_OK)
            tt_warn("%s; '%s' has what was stored before", tt_error_last()->message, file->path);
    }
    if (file->lost_count > 0)
        tt_warn("'%s' is incomplete: its last %lld records could not be written", file->path,
                (long long)file->lost_count);
    (void)tt_error_restore(&error);
    tt_file_close(file->descriptor);
    drop_mirror(file);
    tt_str_deinit(&file->waiting);
    tt_free(file->path);
    tt_free(file);
}
