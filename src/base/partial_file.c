#include "base/partial_file.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/file.h"

static tt_status make_parents(const char *path)
{
    struct tt_path folder;
    const char *slash = strrchr(path, '/');
    if (slash == NULL || slash == path) return TT_OK;
    if ((size_t)(slash - path) >= sizeof folder.text)
        return tt_fail(TT_ERR_DATA, "the path '%.100s...' is too long", path);
    memcpy(folder.text, path, (size_t)(slash - path));
    folder.text[slash - path] = '\0';
    return tt_dir_create(folder.text);
}

tt_status tt_flock_take(const char *path, bool (*cancelled)(void *context), void (*waits)(void *context),
                        void *context, int *descriptor)
{
    TT_TRY(make_parents(path));
    int opened = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0664);
    if (opened < 0) return tt_fail_errno(errno, "cannot open the lock '%s'", path);
    for (bool told = false;
         flock(opened, LOCK_EX | LOCK_NB) != 0 && (errno == EWOULDBLOCK || errno == EINTR);) {
        if (cancelled != NULL && cancelled(context)) {
            close(opened);
            return tt_fail(TT_ERR_CANCELLED, "stopped on request");
        }
        if (!told && waits != NULL) waits(context);
        told = true;
        nanosleep(&(struct timespec){.tv_nsec = 100000000}, NULL);
    }
    *descriptor = opened;
    return TT_OK;
}

tt_status tt_partial_file_open(const char *path, struct tt_partial_file *file)
{
    struct stat facts;
    TT_TRY(make_parents(path));
    int error_number = tt_file_fault(),
        opened = error_number == 0 ? open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666) : -1;
    if (error_number == 0 && opened < 0) error_number = errno;
    if (error_number == 0 && fstat(opened, &facts) != 0) error_number = errno;
    if (error_number == 0 && !S_ISREG(facts.st_mode)) error_number = EISDIR;
    if (error_number != 0) {
        if (opened >= 0) close(opened);
        return tt_fail_errno(error_number, "cannot open '%s' for writing", path);
    }
    *file = (struct tt_partial_file){.path = path, .descriptor = opened, .bytes = (uint64_t)facts.st_size};
    return TT_OK;
}

tt_status tt_partial_file_append(struct tt_partial_file *file, const void *data, size_t bytes)
{
    TT_TRY(tt_file_pwrite(file->descriptor, file->path, data, bytes, file->bytes));
    file->bytes += bytes;
    return TT_OK;
}

tt_status tt_partial_file_empty(struct tt_partial_file *file)
{
    int error_number = tt_file_fault();
    if (error_number == 0 && ftruncate(file->descriptor, 0) != 0) error_number = errno;
    if (error_number != 0) return tt_fail_errno(error_number, "cannot empty '%s'", file->path);
    file->bytes = 0;
    return TT_OK;
}

tt_status tt_partial_file_finish(struct tt_partial_file *file, const char *name)
{
    int descriptor = file->descriptor;
    file->descriptor = -1;
    TT_TRY(tt_file_sync_close(descriptor, file->path));
    return tt_file_rename(file->path, name);
}

void tt_partial_file_close(struct tt_partial_file *file)
{
    if (file->descriptor >= 0) tt_file_close(file->descriptor);
    file->descriptor = -1;
}

tt_status tt_file_link(const char *target, const char *path)
{
    char there[TT_PATH_BYTES];
    struct tt_str name = {0};
    ssize_t bytes = readlink(path, there, sizeof there - 1);
    if (bytes >= 0 && (size_t)bytes == strlen(target) && memcmp(there, target, (size_t)bytes) == 0)
        return TT_OK;
    TT_TRY(make_parents(path));
    tt_status status = tt_str_printf(&name, "%s.tmp-%lld", path, (long long)getpid());
    if (status == TT_OK) {
        int error_number = tt_file_fault();
        (void)unlink(name.data); /* of an earlier process with the same number */
        if (error_number == 0 && symlink(target, name.data) != 0) error_number = errno;
        if (error_number != 0)
            status = tt_fail_errno(error_number, "cannot link '%s' to '%s'", path, target);
        else
            status = tt_file_rename(name.data, path);
        if (status != TT_OK) (void)unlink(name.data);
    }
    tt_str_deinit(&name);
    return status;
}
