/* trimtab doctor: the folder of output_dir. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/crc64.h"
#include "base/file.h"
#include "doctor/doctor_impl.h"

enum { QUICK_BYTES = 1 << 20, FIRST_BYTES = 16 << 20, FILE_BYTES = 256 << 20, ROOM = 4 };
/* That a file of FILE_BYTES may take to write, by the time of FIRST_BYTES. */
static const double file_seconds = 5;

/* The nearest folder of the path `output_dir` that exists. */
static tt_status find_folder(const char *output_dir, struct tt_path *folder)
{
    int length = snprintf(folder->text, sizeof folder->text, "%s", output_dir);
    if (length < 0 || (size_t)length >= sizeof folder->text)
        return tt_fail(TT_ERR_USAGE, "output_dir is longer than a path may be");
    while (!tt_path_is_dir(folder->text)) {
        char *slash = strrchr(folder->text, '/');
        /* a path has room for it */
        if (slash == NULL)
            strcpy(folder->text, ".");
        else
            slash[slash == folder->text] = 0;
    }
    return TT_OK;
}

static tt_status write_and_read(const char *temporary, const char *path, size_t size,
                                struct tt_doctor_rank *found)
{
    tt_status status = TT_OK;
    struct tt_str data = {0};
    int file = -1;
    unsigned char *bytes = tt_calloc(size, 1);
    if (bytes == NULL) return TT_ERR_MEMORY;
    for (size_t i = 0; i < size; i++) bytes[i] = (unsigned char)(i * 131 + (i >> 12));
    uint64_t sum = tt_crc64(0, bytes, size);
    double start = tt_clock_seconds();
    TT_GO(tt_file_create(temporary, size, &file));
    status = tt_file_pwrite(file, temporary, bytes, size, 0);
    if (status == TT_OK) {
        (void)posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED);
        status = tt_file_sync_close(file, temporary);
    } else {
        tt_file_close(file);
    }
    TT_GO(status);
    TT_GO(tt_file_rename(temporary, path));
    found->write_bytes = (double)size / (tt_clock_seconds() - start);
    start = tt_clock_seconds();
    TT_GO(tt_file_read(path, size + 1, &data));
    found->read_bytes = (double)size / (tt_clock_seconds() - start);
    if (data.bytes != size || tt_crc64(0, data.data, data.bytes) != sum)
        status = tt_fail(TT_ERR_IO, "'%s' has other bytes than were written", path);
out:
    tt_str_deinit(&data);
    tt_free(bytes);
    return status;
}

/* A small file first: where it takes long, its rates are the result. */
static tt_status time_files(struct tt_examination *exam, const char *temporary, const char *path)
{
    struct tt_doctor_rank *found = &exam->found;
    found->file_bytes = exam->doctor->report->quick ? QUICK_BYTES : FIRST_BYTES;
    TT_TRY(write_and_read(temporary, path, (size_t)found->file_bytes, found));
    bool slow = FILE_BYTES / found->write_bytes > file_seconds,
         full = found->free_bytes < (uint64_t)ROOM * FILE_BYTES;
    if (exam->doctor->report->quick || slow || full) return TT_OK;
    found->file_bytes = FILE_BYTES;
    return write_and_read(temporary, path, FILE_BYTES, found);
}

tt_status tt_doctor_examine_storage(struct tt_examination *exam)
{
    struct tt_comm *comm = exam->place->comm;
    struct tt_doctor_rank *found = &exam->found;
    int rank = tt_comm_rank(comm);
    struct tt_path folder, temporary, path, first;
    char name[96];
    const char *output = exam->doctor->job->run.output_dir;
    TT_TRY(find_folder(output != NULL ? output : ".", &folder));
    snprintf(name, sizeof name, ".trimtab-doctor-%s-0", exam->doctor->nonce);
    TT_TRY(tt_path_set(&first, folder.text, name));
    snprintf(name, sizeof name, ".trimtab-doctor-%s-%d", exam->doctor->nonce, rank);
    TT_TRY(tt_path_set(&path, folder.text, name));
    snprintf(name, sizeof name, ".trimtab-doctor-%s-%d.tmp", exam->doctor->nonce, rank);
    TT_TRY(tt_path_set(&temporary, folder.text, name));
    tt_status status = TT_OK;
    if (found->local_rank == 0) {
        status = tt_dir_free_bytes(folder.text, &found->free_bytes, NULL);
        if (status == TT_OK) status = time_files(exam, temporary.text, path.text);
        if (status == TT_ERR_MEMORY) return status;
        if (status != TT_OK)
            snprintf(found->storage_error, sizeof found->storage_error, "%.199s", tt_error_last()->message);
    }
    status = tt_comm_barrier(comm); /* rank 0's file exists, if it could be written */
    found->sees_rank0 = tt_path_exists(first.text);
    if (status == TT_OK) status = tt_comm_barrier(comm);
    (void)tt_file_remove(temporary.text);
    (void)tt_file_remove(path.text);
    return status;
}
