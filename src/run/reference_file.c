#include "run/reference_file.h"

#include <string.h>

#include "base/alloc.h"
#include "base/crc64.h"
#include "base/file.h"
#include "base/log.h"

static const char magic[8] = "TTREFLP1";

struct header {
    char magic[8];
    uint64_t key, labels, mismatched;
};

static size_t count_labels(const struct tt_dataset *dataset)
{
    size_t labels = 0;
    for (size_t i = 0; i < tt_dataset_count(dataset); i++)
        labels += (size_t)tt_dataset_sample(dataset, i).supervised_count;
    return labels;
}

static struct header header_of(const struct tt_reference_file *file)
{
    struct header header = {.key = file->key,
                            .labels = count_labels(file->dataset),
                            .mismatched = file->mismatched != NULL ? tt_dataset_count(file->dataset) : 0};
    memcpy(header.magic, magic, sizeof magic);
    return header;
}

/* Moves the values of supervised tokens between the column and `packed`. */
static void move(const struct tt_reference_file *file, float *packed, bool reads)
{
    for (size_t i = 0; i < tt_dataset_count(file->dataset); i++) {
        const struct tt_sample sample = tt_dataset_sample(file->dataset, i);
        float *own = file->logps + tt_dataset_first_token(file->dataset, i);
        for (int32_t t = 1; t < sample.count; t++) {
            if (sample.supervised[t] == 0) continue;
            if (reads)
                own[t] = *packed++;
            else
                *packed++ = own[t];
        }
    }
}

static uint64_t bytes_of(const struct header *header)
{
    return sizeof *header + (header->labels + header->mismatched) * sizeof(float) + sizeof(uint64_t);
}

static tt_status check(const struct tt_reference_file *file, const struct header *want, const uint8_t *data,
                       uint64_t bytes)
{
    uint64_t sum;
    if (bytes != bytes_of(want) || memcmp(data, want, sizeof *want) != 0)
        return tt_fail(TT_ERR_DATA, "'%s' is of other rows or of another version", file->path);
    memcpy(&sum, data + bytes - sizeof sum, sizeof sum);
    if (tt_crc64(0, data, (size_t)(bytes - sizeof sum)) != sum)
        return tt_fail(TT_ERR_DATA, "'%s' is damaged: its sum differs", file->path);
    return TT_OK;
}

static tt_status take(const struct tt_reference_file *file)
{
    const struct header want = header_of(file);
    struct tt_str data = {0};
    TT_TRY(tt_file_read(file->path, (size_t)bytes_of(&want), &data));
    tt_status status = check(file, &want, (const uint8_t *)data.data, data.bytes);
    if (status == TT_OK) {
        float *values = (float *)(void *)(data.data + sizeof want);
        move(file, values, true);
        if (want.mismatched > 0)
            memcpy(file->mismatched, values + want.labels, want.mismatched * sizeof *values);
    }
    tt_str_deinit(&data);
    return status;
}

tt_status tt_reference_file_read(const struct tt_reference_file *file, bool *found)
{
    *found = false;
    if (!tt_path_exists(file->path)) return TT_OK;
    tt_status status = take(file);
    *found = status == TT_OK;
    if (status == TT_OK || status == TT_ERR_MEMORY) return status;
    tt_notice("%s; the reference is computed again", tt_error_last()->message);
    tt_error_clear();
    return TT_OK;
}

static tt_status write(const struct tt_reference_file *file, const char *folder)
{
    const struct header header = header_of(file);
    const size_t bytes = (size_t)bytes_of(&header);
    TT_TRY(tt_dir_create(folder));
    char *data = tt_calloc(1, bytes);
    if (data == NULL) return tt_fail(TT_ERR_MEMORY, "out of memory for '%s'", file->path);
    float *values = (float *)(void *)(data + sizeof header);
    memcpy(data, &header, sizeof header);
    move(file, values, false);
    if (header.mismatched > 0)
        memcpy(values + header.labels, file->mismatched, header.mismatched * sizeof *values);
    const uint64_t sum = tt_crc64(0, data, bytes - sizeof sum);
    memcpy(data + bytes - sizeof sum, &sum, sizeof sum);
    tt_status status = tt_file_write_atomic(file->path, data, bytes);
    tt_free(data);
    return status;
}

tt_status tt_reference_file_write(const struct tt_reference_file *file)
{
    char *folder = tt_strdup(file->path);
    if (folder == NULL) return TT_ERR_MEMORY;
    folder[tt_path_basename(file->path) - file->path] = '\0';
    tt_status status = write(file, folder);
    tt_free(folder);
    return status;
}
