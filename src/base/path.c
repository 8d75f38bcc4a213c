/* The paths of base/file.h: what they lead to, and their parts. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/store.h"

bool tt_path_exists(const char *path)
{
    struct stat info;
    if (tt_store_covers(path)) return tt_store_stat(path) > 0;
    return stat(path, &info) == 0;
}

bool tt_path_is_dir(const char *path)
{
    struct stat info;
    if (tt_store_covers(path)) return tt_store_stat(path) == 2;
    return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

static int64_t nanoseconds(struct timespec time)
{
    return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

static int facts_of_store(const char *path, struct tt_file_facts *facts)
{
    struct tt_error error;
    struct tt_store_call call = {.kind = TT_STORE_FACTS, .path = path, .receive = facts};
    tt_error_copy(&error);
    bool known = tt_store_do(&call) == TT_OK;
    if (!known) tt_store_keep_error();
    (void)tt_error_restore(&error);
    return !known ? EIO : call.value == 0 ? ENOENT : 0;
}

int tt_file_facts(const char *path, struct tt_file_facts *facts)
{
    struct stat info;
    if (tt_store_takes(path, TT_STORE_FACTS)) return facts_of_store(path, facts);
    if (stat(path, &info) != 0) return errno;
    facts->is_dir = S_ISDIR(info.st_mode);
    facts->is_regular = S_ISREG(info.st_mode);
    facts->bytes = info.st_size > 0 ? (uint64_t)info.st_size : 0;
    facts->inode = (uint64_t)info.st_ino;
    facts->changed = nanoseconds(info.st_mtim);
    facts->touched = nanoseconds(info.st_ctim);
    return 0;
}

bool tt_file_is_readable(const char *path)
{
    return tt_store_covers(path) ? tt_path_exists(path) : access(path, R_OK) == 0;
}

static int remove_in_store(const char *path)
{
    struct tt_error error;
    tt_error_copy(&error);
    bool removed = tt_store_do(&(struct tt_store_call){.kind = TT_STORE_REMOVE, .path = path}) == TT_OK;
    (void)tt_error_restore(&error);
    return removed ? 0 : EIO;
}

int tt_file_remove(const char *path)
{
    if (tt_store_takes(path, TT_STORE_REMOVE)) return remove_in_store(path);
    return unlink(path) != 0 ? errno : 0;
}

bool tt_file_is_linked(int descriptor)
{
    struct stat info;
    if (tt_store_owns(descriptor)) return true;
    return descriptor >= 0 && fstat(descriptor, &info) == 0 && info.st_nlink > 0;
}

tt_status tt_file_bytes(int descriptor, const char *path, uint64_t *bytes)
{
    struct stat info;
    if (fstat(descriptor, &info) != 0) return tt_fail_errno(errno, "cannot read '%s'", path);
    *bytes = info.st_size > 0 ? (uint64_t)info.st_size : 0;
    return TT_OK;
}

void tt_file_truncate(int descriptor, uint64_t bytes)
{
    if (!tt_store_owns(descriptor)) (void)!ftruncate(descriptor, (off_t)bytes);
}

int tt_path_real(const char *path, struct tt_path *real)
{
    char *resolved = tt_store_takes(path, TT_STORE_FACTS) ? NULL : realpath(path, NULL);
    const char *whole = tt_store_takes(path, TT_STORE_FACTS) ? path : resolved;
    size_t bytes = whole != NULL ? strlen(whole) : 0;
    int failed = whole == NULL ? errno : bytes < sizeof real->text ? 0 : ENAMETOOLONG;
    real->text[0] = '\0';
    if (failed == 0) memcpy(real->text, whole, bytes + 1);
    free(resolved);
    return failed;
}

static const char *separator(const char *folder)
{
    return *folder != '\0' && !tt_ends_with(folder, "/") ? "/" : "";
}

tt_status tt_path_set(struct tt_path *path, const char *folder, const char *name)
{
    int bytes = snprintf(path->text, sizeof path->text, "%s%s%s", folder, separator(folder), name);
    if (bytes >= 0 && (size_t)bytes < sizeof path->text) return TT_OK;
    return tt_fail(TT_ERR_IO, "the path of '%.60s' in '%.200s' is longer than %d bytes", name, folder,
                   TT_PATH_BYTES - 1);
}

char *tt_path_join(const char *folder, const char *name)
{
    struct tt_str path = {0};
    if (tt_str_printf(&path, "%s%s%s", folder, separator(folder), name) != TT_OK) {
        tt_str_deinit(&path);
        return NULL;
    }
    return path.data;
}

const char *tt_path_basename(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash != NULL ? slash + 1 : path;
}
