/* Verification (manifest.h): files are cut into chunks, which several threads sum. */
#include "base/alloc.h"
#include "base/crc64.h"
#include "base/file.h"
#include "checkpoint/manifest.h"

enum { CHUNK_BYTES = 4 << 20, THREADS_MAX = 8 };

struct summing {
    const struct tt_manifest_file *files;
    size_t count;
    const char *folder;
    const struct tt_cancel *cancel;
    _Atomic uint64_t *terms; /* [count] */
    _Atomic uint64_t next;   /* the first chunk that no thread has taken */
    uint64_t *first_chunk;   /* [count + 1] */
    atomic_bool failed;
};

/* The open file of a thread, which rarely changes from chunk to chunk. */
struct reader {
    size_t file; /* SIZE_MAX: none */
    int descriptor;
    char *path;
    void *buffer;
};

static tt_status open_file(const struct summing *summing, size_t file, struct reader *reader)
{
    if (reader->file == file) return TT_OK;
    tt_file_close(reader->descriptor);
    tt_free(reader->path);
    *reader = (struct reader){.file = file, .descriptor = -1, .buffer = reader->buffer};
    reader->path = tt_path_join(summing->folder, summing->files[file].name);
    if (reader->path == NULL) return TT_ERR_MEMORY;
    return tt_file_open_read(reader->path, &reader->descriptor, NULL);
}

static tt_status sum_chunk(struct summing *summing, uint64_t chunk, struct reader *reader)
{
    size_t file = 0;
    while (summing->first_chunk[file + 1] <= chunk) file++;
    uint64_t bytes = summing->files[file].bytes;
    uint64_t offset = (chunk - summing->first_chunk[file]) * CHUNK_BYTES;
    size_t part = bytes - offset < CHUNK_BYTES ? (size_t)(bytes - offset) : CHUNK_BYTES;
    TT_TRY(open_file(summing, file, reader));
    TT_TRY(tt_file_pread(reader->descriptor, reader->path, reader->buffer, part, offset));
    uint64_t term = tt_crc64_term(reader->buffer, part, bytes - offset - part);
    atomic_fetch_xor(&summing->terms[file], term);
    return TT_OK;
}

static tt_status sum_chunks(void *argument)
{
    struct summing *summing = argument;
    struct reader reader = {.file = SIZE_MAX, .descriptor = -1};
    tt_status status = TT_OK;
    reader.buffer = tt_alloc_aligned(CHUNK_BYTES);
    if (reader.buffer == NULL) TT_GO(TT_ERR_MEMORY);
    while (!atomic_load(&summing->failed)) {
        uint64_t chunk = atomic_fetch_add(&summing->next, 1);
        if (chunk >= summing->first_chunk[summing->count]) break;
        if (summing->cancel != NULL && atomic_load(&summing->cancel->requests) > 0)
            TT_GO(tt_fail(TT_ERR_CANCELLED, "stopped while checking '%s'", summing->folder));
        TT_GO(sum_chunk(summing, chunk, &reader));
    }
out:
    if (status != TT_OK) atomic_store(&summing->failed, true);
    tt_file_close(reader.descriptor);
    tt_free(reader.path);
    tt_free(reader.buffer);
    return status;
}

static tt_status run_threads(struct summing *summing)
{
    uint64_t chunks = summing->first_chunk[summing->count];
    int wanted = tt_cpu_count() < THREADS_MAX ? tt_cpu_count() : THREADS_MAX;
    if (chunks < (uint64_t)wanted) wanted = chunks > 0 ? (int)chunks : 1;
    return tt_threads_run("checksums", wanted, sum_chunks, summing);
}

/* sums[i]: crc64 of files[i], whose sizes are known. */
static tt_status sum_files(const struct tt_manifest_file *files, size_t count, const char *folder,
                           const struct tt_cancel *cancel, uint64_t *sums)
{
    struct summing summing = {.files = files, .count = count, .folder = folder, .cancel = cancel};
    tt_status status = TT_OK;
    summing.terms = tt_calloc(count, sizeof *summing.terms);
    summing.first_chunk = tt_calloc(count + 1, sizeof *summing.first_chunk);
    if (summing.terms == NULL || summing.first_chunk == NULL) TT_GO(TT_ERR_MEMORY);
    for (size_t i = 0; i < count; i++)
        summing.first_chunk[i + 1] =
            summing.first_chunk[i] + (files[i].bytes + CHUNK_BYTES - 1) / CHUNK_BYTES;
    TT_GO(run_threads(&summing));
    for (size_t i = 0; i < count; i++) sums[i] = tt_crc64_finish(summing.terms[i], files[i].bytes);
out:
    tt_free(summing.terms);
    tt_free(summing.first_chunk);
    return status;
}

tt_status tt_manifest_add_file(struct tt_manifest *manifest, const char *folder, const char *name)
{
    struct tt_manifest_file file = {.name = (char *)(uintptr_t)name};
    int descriptor = -1;
    struct tt_path path;
    TT_TRY(tt_path_set(&path, folder, name));
    tt_status status = tt_file_open_read(path.text, &descriptor, &file.bytes);
    tt_file_close(descriptor);
    if (status == TT_OK) status = sum_files(&file, 1, folder, NULL, &file.crc64);
    return status == TT_OK ? tt_manifest_add(manifest, name, file.bytes, file.crc64) : status;
}

tt_status tt_manifest_verify(const struct tt_manifest *manifest, const char *folder,
                             const struct tt_cancel *cancel)
{
    TT_TRY(tt_manifest_check_sizes(manifest, folder));
    uint64_t *sums = tt_calloc(manifest->count + 1, sizeof *sums);
    if (sums == NULL) return TT_ERR_MEMORY;
    tt_status status = sum_files(manifest->files, manifest->count, folder, cancel, sums);
    for (size_t i = 0; i < manifest->count && status == TT_OK; i++)
        if (sums[i] != manifest->files[i].crc64)
            status = tt_fail(TT_ERR_DATA, "'%s/%s' is not as it was saved: its bytes have changed", folder,
                             manifest->files[i].name);
    tt_free(sums);
    return status;
}
