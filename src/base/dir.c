/* The folder half of base/file.h. */
#include "base/file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/store.h"
#include "base/str.h"
#include "base/temporary.h"

tt_status tt_dir_create(const char *path)
{
    if (path[0] == '\0') return tt_fail(TT_ERR_USAGE, "cannot create a folder with an empty name");
    if (tt_store_covers(path))
        return tt_store_do(&(struct tt_store_call){.kind = TT_STORE_MAKE_DIR, .path = path});
    char *copy = tt_strdup(path);
    if (copy == NULL) return TT_ERR_MEMORY;
    tt_status status = TT_OK;
    for (char *at = copy + 1; status == TT_OK; at++) {
        bool end = *at == '\0';
        if (!end && *at != '/') continue;
        *at = '\0';
        int error_number = tt_path_is_dir(copy) ? 0 : tt_file_fault();
        if (error_number == 0 && mkdir(copy, 0777) != 0 && errno != EEXIST) error_number = errno;
        if (error_number != 0) {
            /* An existing parent without write permission is no error. */
            if (!tt_path_is_dir(copy)) {
                status = tt_fail_errno(error_number, "cannot create folder '%s'", copy);
                if (error_number == EROFS)
                    tt_hint("the file system is read-only there: mount a writable volume at this path or "
                            "above it, "
                            "or choose another folder");
                else if (error_number == ENOTDIR)
                    tt_hint("a file lies at this path or above it: remove it, or choose another folder");
                else if (error_number == EACCES || error_number == EPERM)
                    tt_hint("folders cannot be made there by this user: choose another one");
            }
        }
        if (end) break;
        *at = '/';
    }
    if (status == TT_OK && !tt_path_is_dir(path)) {
        status = tt_fail_errno(ENOTDIR, "cannot create folder '%s'", path);
        tt_hint("a file lies at this path or above it: remove it, or choose another folder");
    }
    tt_free(copy);
    return status;
}

tt_status tt_dir_create_private(const char *path)
{
    struct stat info;
    if (mkdir(path, 0700) != 0 && errno != EEXIST)
        return tt_fail_errno(errno, "cannot create folder '%s'", path);
    if (lstat(path, &info) != 0) return tt_fail_errno(errno, "cannot read folder '%s'", path);
    if (S_ISDIR(info.st_mode) && info.st_uid == getuid() && (info.st_mode & 077) == 0) return TT_OK;
    tt_status status = tt_fail(TT_ERR_USAGE, "'%s' is no folder of this user alone", path);
    tt_hint("remove it, or choose another folder for temporary files: TMPDIR names one");
    return status;
}

static int remove_entry(const char *path, const struct stat *info, int kind, struct FTW *position)
{
    (void)info, (void)kind, (void)position;
    int fault = tt_file_fault();
    if (fault != 0) {
        errno = fault;
        return -1;
    }
    return remove(path);
}

tt_status tt_dir_remove(const char *path)
{
    if (tt_store_takes(path, TT_STORE_REMOVE))
        return tt_store_do(&(struct tt_store_call){.kind = TT_STORE_REMOVE, .path = path});
    /* FTW_PHYS: a link is removed, never followed. */
    if (nftw(path, remove_entry, 16, FTW_DEPTH | FTW_PHYS) != 0 && errno != ENOENT) {
        return tt_fail_errno(errno, "cannot remove folder '%s'", path);
    }
    return TT_OK;
}

bool tt_dir_remove_empty(const char *path)
{
    return !tt_store_takes(path, TT_STORE_REMOVE) && rmdir(path) == 0;
}

struct name_list {
    char **names;
    size_t count, capacity;
};

static void name_list_deinit(struct name_list *list)
{
    for (size_t i = 0; i < list->count; i++) tt_free(list->names[i]);
    tt_free(list->names);
}

static tt_status add_name(struct name_list *list, const char *text)
{
    char *name = tt_strdup(text);
    if (name == NULL || tt_grow(&list->names, list->count, &list->capacity) != 0) {
        tt_free(name);
        return TT_ERR_MEMORY;
    }
    list->names[list->count++] = name;
    return TT_OK;
}

static tt_status read_store_names(const char *path, struct name_list *list)
{
    struct tt_str names = {0};
    tt_status status = tt_store_list(path, &names);
    for (size_t at = 0; status == TT_OK && at < names.bytes; at += strlen(names.data + at) + 1)
        status = add_name(list, names.data + at);
    tt_str_deinit(&names);
    return status;
}

static tt_status read_names(const char *path, struct name_list *list)
{
    if (tt_store_covers(path)) return read_store_names(path, list);
    DIR *dir = opendir(path);
    if (dir == NULL) return tt_fail_errno(errno, "cannot open folder '%s'", path);
    tt_status status = TT_OK;
    for (;;) {
        errno = 0;
        struct dirent *entry = readdir(dir);
        if (entry == NULL) {
            if (errno != 0) status = tt_fail_errno(errno, "cannot list folder '%s'", path);
            break;
        }
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) continue;
        status = add_name(list, entry->d_name);
        if (status != TT_OK) break;
    }
    closedir(dir);
    return status;
}

tt_status tt_dir_list(const char *path, tt_status (*visit)(void *context, const char *name), void *context)
{
    struct name_list list = {0};
    tt_status status = read_names(path, &list);
    if (status == TT_OK && list.count > 1) qsort(list.names, list.count, sizeof(char *), tt_compare_texts);
    for (size_t i = 0; status == TT_OK && i < list.count; i++) status = visit(context, list.names[i]);
    name_list_deinit(&list);
    return status;
}

tt_status tt_dir_free_bytes(const char *path, uint64_t *bytes, uint64_t *block)
{
    struct statvfs info;
    /* A folder that will be stored lies in the folder for temporary files before. */
    if (tt_store_takes(path, TT_STORE_COMMIT)) path = tt_file_temporary_folder();
    if (statvfs(path, &info) != 0) return tt_fail_errno(errno, "cannot get the free space of '%s'", path);
    *bytes = (uint64_t)info.f_bavail * info.f_frsize;
    if (block != NULL) *block = info.f_frsize > 0 ? info.f_frsize : 1;
    return TT_OK;
}

tt_status tt_dir_sync(const char *path)
{
    if (tt_store_takes(path, TT_STORE_COMMIT)) return TT_OK;
    int descriptor = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (descriptor < 0) return tt_fail_errno(errno, "cannot open folder '%s'", path);
    return tt_file_sync_close(descriptor, path);
}

/* nftw has no context argument; a failed sync stops the walk with errno set. */
static int sync_entry(const char *path, const struct stat *info, int kind, struct FTW *position)
{
    (void)info, (void)position;
    if (kind != FTW_D && kind != FTW_DP) return 0;
    return tt_dir_sync(path) == TT_OK ? 0 : -1;
}

/* Replaces an existing `final` by `temporary`. Where the file system can swap two names, `final` exists at every
 * moment; elsewhere the old folder is moved aside first. */
static tt_status replace_dir(const char *temporary, const char *final)
{
    if (tt_file_fault() == 0 && renameat2(AT_FDCWD, temporary, AT_FDCWD, final, RENAME_EXCHANGE) == 0) {
        if (tt_dir_remove(temporary) != TT_OK) tt_error_clear(); /* the new folder is in place */
        return TT_OK;
    }
    struct tt_str aside = {0};
    tt_status status = TT_OK;
    int length = (int)strlen(final);
    while (length > 1 && final[length - 1] == '/') length--;
    TT_GO(tt_str_printf(&aside, "%.*s.old-%ld", length, final, (long)getpid()));
    TT_GO(tt_dir_remove(aside.data));
    TT_GO(tt_file_rename(final, aside.data));
    status = tt_file_rename(temporary, final);
    if (status != TT_OK && rename(aside.data, final) != 0)
        tt_hint("the previous folder is now '%s'", aside.data);
    if (status != TT_OK) goto out;
    TT_GO(tt_dir_remove(aside.data));
out:
    tt_str_deinit(&aside);
    return status;
}

tt_status tt_dir_commit(const char *temporary, const char *final)
{
    tt_error_clear();
    TT_TRY(tt_store_failure()); /* a part may have been left out that only seemed to be missing */
    if (tt_store_takes(temporary, TT_STORE_COMMIT))
        return tt_store_do(
            &(struct tt_store_call){.kind = TT_STORE_COMMIT, .path = temporary, .second = final});
    if (nftw(temporary, sync_entry, 16, FTW_PHYS) != 0) {
        const struct tt_error *error = tt_error_last();
        return error->status != TT_OK ? error->status
                                      : tt_fail_errno(errno, "cannot walk folder '%s'", temporary);
    }
    if (tt_path_exists(final)) {
        TT_TRY(replace_dir(temporary, final));
    } else {
        TT_TRY(tt_file_rename(temporary, final));
    }
    struct tt_path parent;
    TT_TRY(tt_path_set(&parent, final, ".."));
    return tt_dir_sync(parent.text);
}
