#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/store.h"
#include "base/temporary.h"

/* Most bytes of one system call; Linux' own limit is 2 GiB - 4 KiB. */
#define IO_CHUNK_BYTES ((size_t)1 << 30)

/* Files of stores up to this size are mapped from memory. */
#define MAP_MEMORY_BYTES ((uint64_t)64 << 20)

/* Name of the kind of a file that is not a regular file. */
static const char *kind_of(mode_t mode)
{
    return S_ISDIR(mode) ? "a folder" : S_ISFIFO(mode) ? "a pipe" : S_ISSOCK(mode) ? "a socket" : "a device";
}

static tt_status fail_not_regular(const char *path, mode_t mode)
{
    if (S_ISDIR(mode)) return tt_fail_errno(EISDIR, "cannot read '%s'", path);
    tt_status status = tt_fail(TT_ERR_DATA, "'%s' is %s, not a regular file", path, kind_of(mode));
    tt_hint("only regular files are read and written: a pipe or a device may block or never end");
    return status;
}

/* Opens without waiting for the other end of a pipe, then checks the kind of the open file, which cannot be replaced
 * meanwhile. */
static tt_status open_regular(const char *path, int flags, const char *doing, int *descriptor,
                              struct stat *info)
{
    int opened = open(path, flags | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, 0666), error_number = errno;
    if (opened < 0) {
        bool there = lstat(path, info) == 0;
        if (there && S_ISLNK(info->st_mode) && (flags & O_NOFOLLOW) != 0 && error_number == ELOOP) {
            tt_status status =
                tt_fail(TT_ERR_DATA, "%s '%s': it is a link, which is not followed", doing, path);
            tt_hint("remove the link: files must stay in their folder");
            return status;
        }
        if (error_number == ENXIO && stat(path, info) == 0) return fail_not_regular(path, info->st_mode);
        return tt_fail_errno(error_number, "%s '%s'", doing, path);
    }
    tt_status status = TT_OK;
    if (fstat(opened, info) != 0)
        status = tt_fail_errno(errno, "%s '%s'", doing, path);
    else if (!S_ISREG(info->st_mode))
        status = fail_not_regular(path, info->st_mode);
    if (status != TT_OK) {
        close(opened);
        return status;
    }
    *descriptor = opened;
    return TT_OK;
}

tt_status tt_file_open_read(const char *path, int *descriptor, uint64_t *bytes)
{
    struct stat info;
    if (tt_store_covers(path)) {
        struct tt_store_call call = {.kind = TT_STORE_OPEN_READ, .path = path};
        TT_TRY(tt_store_open(&call, descriptor));
        if (bytes != NULL) *bytes = call.value;
        return TT_OK;
    }
    TT_TRY(open_regular(path, O_RDONLY, "cannot open", descriptor, &info));
    if (bytes != NULL) *bytes = info.st_size > 0 ? (uint64_t)info.st_size : 0;
    return TT_OK;
}

tt_status tt_file_rename(const char *from, const char *to)
{
    if (tt_store_covers(from))
        return tt_store_do(&(struct tt_store_call){.kind = TT_STORE_RENAME, .path = from, .second = to});
    int error_number = tt_file_fault();
    if (error_number == 0 && rename(from, to) != 0) error_number = errno;
    return error_number == 0 ? TT_OK : tt_fail_errno(error_number, "cannot rename '%s' to '%s'", from, to);
}

tt_status tt_file_open_write(const char *path, int *descriptor)
{
    int opened = open(path, O_WRONLY | O_CLOEXEC);
    if (opened < 0) return tt_fail_errno(errno, "cannot open '%s' for writing", path);
    *descriptor = opened;
    return TT_OK;
}

/* Reserving the blocks detects a full disk before the work begins. File systems without reservation get a sparse file.
 * So do file systems in memory: they would allocate every page here, in one thread, at the cost of writing it. */
static int reserve_blocks(int opened, uint64_t bytes)
{
    struct statfs info;
    struct stat file;
    if (fstatfs(opened, &info) != 0 || info.f_type != TMPFS_MAGIC)
        return fallocate(opened, 0, 0, (off_t)bytes) != 0 ? errno : 0;
    if (info.f_blocks == 0 || fstat(opened, &file) != 0) return EOPNOTSUPP;
    uint64_t there = (uint64_t)file.st_blocks * 512; /* other processes may write it already */
    uint64_t needed = bytes > there ? bytes - there : 0;
    return needed / (uint64_t)info.f_bsize > info.f_bavail ? ENOSPC : EOPNOTSUPP;
}

static tt_status reserve(int opened, const char *path, uint64_t bytes)
{
    if (bytes > INT64_MAX)
        return tt_fail(TT_ERR_DATA, "cannot make '%s': a file of %llu bytes", path,
                       (unsigned long long)bytes);
    int error_number = bytes > 0 ? reserve_blocks(opened, bytes) : 0;
    if (error_number == EOPNOTSUPP || error_number == ENOSYS || error_number == EINTR)
        error_number = ftruncate(opened, (off_t)bytes) != 0 ? errno : 0;
    if (error_number == 0) return TT_OK;
    return tt_fail_errno(error_number, "cannot reserve %llu bytes for '%s'", (unsigned long long)bytes, path);
}

static tt_status open_reserved(const char *path, int flags, uint64_t bytes, int *descriptor)
{
    int fault = tt_file_fault(), opened = -1;
    struct stat info;
    if (fault != 0) return tt_fail_errno(fault, "cannot create '%s'", path);
    TT_TRY(open_regular(path, O_RDWR | O_CREAT | O_NOFOLLOW | flags, "cannot create", &opened, &info));
    tt_status status = reserve(opened, path, bytes);
    if (status != TT_OK) {
        close(opened);
        return status;
    }
    *descriptor = opened;
    return TT_OK;
}

tt_status tt_file_create(const char *path, uint64_t bytes, int *descriptor)
{
    struct tt_store_call call = {.kind = TT_STORE_CREATE, .path = path, .value = bytes};
    if (tt_store_covers(path)) return tt_store_open(&call, descriptor);
    return open_reserved(path, O_TRUNC, bytes, descriptor);
}

tt_status tt_file_open_shared(const char *path, uint64_t bytes, int *descriptor)
{
    struct tt_store_call call = {.kind = TT_STORE_OPEN_SHARED, .path = path, .value = bytes};
    if (tt_store_covers(path)) return tt_store_open(&call, descriptor);
    return open_reserved(path, 0, bytes, descriptor);
}

static tt_status fail_short(const char *path, size_t bytes, uint64_t offset, size_t done)
{
    return tt_fail(TT_ERR_DATA, "'%s' ends too early: %zu bytes expected at offset %llu, %zu read", path,
                   bytes, (unsigned long long)offset, done);
}

tt_status tt_file_read_some(int descriptor, const char *path, void *data, size_t bytes, uint64_t offset,
                            size_t *got)
{
    *got = 0;
    if (tt_store_owns(descriptor)) return tt_store_read(descriptor, path, data, bytes, offset, got);
    while (*got < bytes) {
        size_t chunk = bytes - *got < IO_CHUNK_BYTES ? bytes - *got : IO_CHUNK_BYTES;
        ssize_t now = pread(descriptor, (char *)data + *got, chunk, (off_t)(offset + *got));
        if (now < 0 && errno == EINTR) continue;
        if (now < 0) {
            return tt_fail_errno(errno, "cannot read %zu bytes at offset %llu of '%s'", bytes,
                                 (unsigned long long)offset, path);
        }
        if (now == 0) break;
        *got += (size_t)now;
    }
    return TT_OK;
}

tt_status tt_file_pread(int descriptor, const char *path, void *data, size_t bytes, uint64_t offset)
{
    size_t got;
    TT_TRY(tt_file_read_some(descriptor, path, data, bytes, offset, &got));
    return got == bytes ? TT_OK : fail_short(path, bytes, offset, got);
}

tt_status tt_file_pwrite(int descriptor, const char *path, const void *data, size_t bytes, uint64_t offset)
{
    size_t done = 0;
    if (tt_store_owns(descriptor)) return tt_store_write(descriptor, path, data, bytes, offset);
    int fault = tt_file_fault_of_write(descriptor, data, bytes, offset);
    if (fault != 0)
        return tt_fail_errno(fault, "cannot write %zu bytes at offset %llu of '%s'", bytes,
                             (unsigned long long)offset, path);
    while (done < bytes) {
        size_t chunk = bytes - done < IO_CHUNK_BYTES ? bytes - done : IO_CHUNK_BYTES;
        ssize_t put = pwrite(descriptor, (const char *)data + done, chunk, (off_t)(offset + done));
        if (put < 0 && errno == EINTR) continue;
        if (put <= 0) {
            return tt_fail_errno(put < 0 ? errno : EIO, "cannot write %zu bytes at offset %llu of '%s'",
                                 bytes, (unsigned long long)offset, path);
        }
        done += (size_t)put;
    }
    return TT_OK;
}

tt_status tt_file_sync_close(int descriptor, const char *path)
{
    if (descriptor < 0) return TT_OK;
    if (tt_store_owns(descriptor)) return tt_store_sync_close(descriptor, path);
    int error_number = tt_file_fault();
    if (error_number == 0 && fsync(descriptor) != 0) error_number = errno;
    /* Pipes and some virtual files have nothing to sync. */
    if (error_number == EINVAL || error_number == EROFS) error_number = 0;
    if (close(descriptor) != 0 && errno != EINTR && error_number == 0) error_number = errno;
    if (error_number != 0) return tt_fail_errno(error_number, "cannot finish writing '%s'", path);
    return TT_OK;
}

tt_status tt_file_flush(int descriptor, const char *path)
{
    return tt_store_owns(descriptor) ? tt_store_flush(descriptor, path) : TT_OK;
}

void tt_file_close(int descriptor)
{
    if (tt_store_owns(descriptor))
        tt_store_close(descriptor);
    else if (descriptor >= 0)
        close(descriptor);
}

static tt_status fail_too_long(const char *path, uint64_t max_bytes)
{
    return tt_fail(TT_ERR_DATA, "'%s' is larger than the expected %llu bytes", path,
                   (unsigned long long)max_bytes);
}

tt_status tt_file_read(const char *path, size_t max_bytes, struct tt_str *data)
{
    int descriptor = -1;
    uint64_t bytes = 0;
    TT_TRY(tt_file_open_read(path, &descriptor, &bytes));
    struct tt_str content = {0};
    tt_status status = TT_OK;
    if (bytes > max_bytes) {
        status = tt_fail(TT_ERR_DATA, "'%s' has %llu bytes; at most %zu are expected", path,
                         (unsigned long long)bytes, max_bytes);
        goto out;
    }
    /* The size is only a first guess: files of /proc report 0, and other files may grow meanwhile. */
    content.capacity = (size_t)bytes + 1;
    content.data = tt_realloc(NULL, content.capacity, 1);
    if (content.data == NULL) {
        status = TT_ERR_MEMORY;
        goto out;
    }
    if (tt_store_owns(descriptor)) {
        TT_GO(tt_store_read(descriptor, path, content.data, (size_t)bytes, 0, &content.bytes));
    }
    while (!tt_store_owns(descriptor)) {
        if (content.bytes + 1 == content.capacity) {
            char probe[4096];
            ssize_t got = read(descriptor, probe, sizeof probe);
            if (got < 0 && errno == EINTR) continue;
            if (got < 0) TT_GO(tt_fail_errno(errno, "cannot read '%s'", path));
            if (got == 0) break;
            TT_GO(tt_str_append(&content, probe, (size_t)got));
        } else {
            size_t room = content.capacity - 1 - content.bytes;
            ssize_t got =
                read(descriptor, content.data + content.bytes, room < IO_CHUNK_BYTES ? room : IO_CHUNK_BYTES);
            if (got < 0 && errno == EINTR) continue;
            if (got < 0) TT_GO(tt_fail_errno(errno, "cannot read '%s'", path));
            if (got == 0) break;
            content.bytes += (size_t)got;
        }
        if (content.bytes > max_bytes) {
            TT_GO(fail_too_long(path, max_bytes));
        }
    }
    content.data[content.bytes] = '\0';
    tt_str_deinit(data);
    *data = content;
    content = (struct tt_str){0};
out:
    tt_str_deinit(&content);
    tt_file_close(descriptor);
    return status;
}

/* The folder that holds `path`; owned memory or NULL. */
static char *parent_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    if (slash == NULL) return tt_strdup(".");
    return tt_strndup(path, slash == path ? 1 : (size_t)(slash - path));
}

static tt_status sync_dir(const char *path)
{
    int descriptor = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (descriptor < 0) return tt_fail_errno(errno, "cannot open folder '%s'", path);
    return tt_file_sync_close(descriptor, path);
}

static tt_status sync_parent(const char *path)
{
    char *parent = parent_of(path);
    if (parent == NULL) return TT_ERR_MEMORY;
    tt_status status = sync_dir(parent);
    tt_free(parent);
    return status;
}

/* A new file beside `path`; its name is returned owned. mkstemp would ignore the umask. */
static tt_status open_temporary(const char *path, char **name, int *descriptor)
{
    for (int attempt = 0;; attempt++) {
        struct timespec now;
        clock_gettime(CLOCK_MONOTONIC, &now);
        struct tt_str candidate = {0};
        tt_status status =
            tt_str_printf(&candidate, "%s.tmp-%ld-%ld-%d", path, (long)getpid(), now.tv_nsec, attempt);
        if (status != TT_OK) {
            tt_str_deinit(&candidate);
            return status;
        }
        int error_number = tt_file_fault();
        int opened = -1;
        if (error_number == 0) opened = open(candidate.data, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (opened >= 0) {
            *name = candidate.data;
            *descriptor = opened;
            return TT_OK;
        }
        if (error_number == 0) error_number = errno;
        tt_str_deinit(&candidate);
        if (error_number != EEXIST || attempt >= 100)
            return tt_fail_errno(error_number, "cannot create '%s'", path);
    }
}

/* Finishes what open_temporary began: renames the file on TT_OK, removes it otherwise. */
static tt_status finish_temporary(tt_status status, char *name, int descriptor, const char *path)
{
    if (status == TT_OK) {
        status = tt_file_sync_close(descriptor, path);
    } else {
        tt_file_close(descriptor);
    }
    if (status == TT_OK) status = tt_file_rename(name, path);
    if (status != TT_OK) {
        unlink(name);
    } else {
        status = sync_parent(path);
    }
    tt_free(name);
    return status;
}

/* A store that gathers files has one whole or not at all. */
static tt_status finish_stored(tt_status status, int descriptor, const char *path)
{
    if (status == TT_OK) return tt_file_sync_close(descriptor, path);
    tt_file_close(descriptor);
    return status;
}

tt_status tt_file_write_atomic(const char *path, const void *data, size_t bytes)
{
    char *name = NULL;
    int descriptor = -1;
    if (tt_store_takes(path, TT_STORE_FLUSH)) {
        TT_TRY(tt_file_create(path, bytes, &descriptor));
        return finish_stored(tt_file_pwrite(descriptor, path, data, bytes, 0), descriptor, path);
    }
    TT_TRY(open_temporary(path, &name, &descriptor));
    return finish_temporary(tt_file_pwrite(descriptor, path, data, bytes, 0), name, descriptor, path);
}

static tt_status copy_bytes(const char *from, int source, const char *to, int target, uint64_t max_bytes)
{
    enum { COPY_BYTES = 1 << 20 };
    void *buffer = tt_alloc_aligned(COPY_BYTES);
    if (buffer == NULL) return TT_ERR_MEMORY;
    tt_status status = TT_OK;
    for (uint64_t offset = 0; status == TT_OK;) {
        size_t got = 0;
        status = tt_file_read_some(source, from, buffer, COPY_BYTES, offset, &got);
        if (status != TT_OK || got == 0) break;
        status = got > max_bytes - offset ? fail_too_long(from, max_bytes)
                                          : tt_file_pwrite(target, to, buffer, got, offset);
        offset += (uint64_t)got;
    }
    tt_free(buffer);
    return status;
}

static tt_status copy_opened(const char *from, int source, const char *to, uint64_t max_bytes)
{
    char *name = NULL;
    int target = -1;
    if (tt_store_takes(to, TT_STORE_FLUSH)) {
        TT_TRY(tt_file_create(to, 0, &target));
        return finish_stored(copy_bytes(from, source, to, target, max_bytes), target, to);
    }
    TT_TRY(open_temporary(to, &name, &target));
    return finish_temporary(copy_bytes(from, source, to, target, max_bytes), name, target, to);
}

tt_status tt_file_copy(const char *from, const char *to)
{
    int source = -1;
    TT_TRY(tt_file_open_read(from, &source, NULL));
    tt_status status = copy_opened(from, source, to, UINT64_MAX);
    tt_file_close(source);
    return status;
}

/* ---- Files of a folder of unknown origin ---- */

/* Whether `path` is "ROOT/blobs/HASH" and `folder` "ROOT/snapshots/REVISION" or below: the hub's cache keeps
 * each file under its hash and lets snapshots point there. */
static bool is_hub_blob(const char *folder, const char *path)
{
    static const char snapshots[] = "/snapshots/", blobs[] = "/blobs/";
    const char *hash = tt_path_basename(path), *mark = NULL;
    size_t digits = strspn(hash, "0123456789abcdef"), root = (size_t)(hash - path);
    if (hash[digits] != '\0' || (digits != 40 && digits != 64) || root < sizeof blobs - 1) return false;
    root -= sizeof blobs - 1;
    for (const char *at = folder; (at = strstr(at, snapshots)) != NULL; at++) mark = at;
    return memcmp(path + root, blobs, sizeof blobs - 1) == 0 && mark != NULL &&
           (size_t)(mark - folder) == root && memcmp(folder, path, root) == 0;
}

/* Resolved path of the open file, which may differ from the path that was opened. */
static tt_status check_inside(const char *folder, const char *path, int descriptor)
{
    char link[64], *real_folder = realpath(folder, NULL), *real_file = NULL;
    snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    real_file = realpath(link, NULL);
    int file_error = errno;
    size_t bytes = real_folder != NULL ? strlen(real_folder) : 0;
    bool resolved = real_folder != NULL && real_file != NULL;
    bool inside = bytes > 0 && real_file != NULL &&
                  ((strncmp(real_file, real_folder, bytes) == 0 &&
                    (real_file[bytes] == '/' || real_folder[bytes - 1] == '/')) ||
                   is_hub_blob(real_folder, real_file));
    free(real_folder);
    free(real_file);
    if (inside) return TT_OK;
    if (!resolved) {
        tt_status unknown = tt_fail_errno(file_error, "cannot tell where the open file '%s' lies", path);
        tt_hint("/proc must be mounted, and no other program may replace the file meanwhile");
        return unknown;
    }
    tt_status status = tt_fail(TT_ERR_DATA, "'%s' is a link that leaves the folder '%s'", path, folder);
    tt_hint(
        "the file would be copied into the output folder; replace the link by the file if that is intended");
    return status;
}

tt_status tt_file_open_inside(const char *folder, const char *name, uint64_t max_bytes, int *descriptor,
                              uint64_t *bytes)
{
    struct tt_path path;
    int opened = -1;
    TT_TRY(tt_path_set(&path, folder, name));
    if (tt_store_covers(path.text)) {
        struct tt_store_call call = {
            .kind = TT_STORE_OPEN_INSIDE, .path = folder, .second = name, .value = max_bytes};
        TT_TRY(tt_store_open(&call, descriptor));
        *bytes = call.value;
        return TT_OK;
    }
    tt_status status = tt_file_open_read(path.text, &opened, bytes);
    if (status == TT_OK) status = check_inside(folder, path.text, opened);
    if (status == TT_OK && *bytes > max_bytes) status = fail_too_long(path.text, max_bytes);
    if (status == TT_OK)
        *descriptor = opened;
    else
        tt_file_close(opened);
    return status;
}

tt_status tt_file_copy_inside(const char *folder, const char *name, uint64_t max_bytes, const char *to)
{
    uint64_t bytes;
    int source = -1;
    TT_TRY(tt_file_open_inside(folder, name, max_bytes, &source, &bytes));
    tt_status status = copy_opened(name, source, to, max_bytes);
    tt_file_close(source);
    return status;
}

/* A file of a store is read as a whole into a file in memory, a large one into a temporary one: tt_file_map_release may
 * drop pages of it. */
static tt_status map_copy(int descriptor, const char *path, uint64_t bytes, struct tt_file_map *map)
{
    int memory = -1;
    if (bytes > MAP_MEMORY_BYTES)
        TT_TRY(tt_file_open_temporary(&memory));
    else
        memory = memfd_create("trimtab", MFD_CLOEXEC);
    void *data = MAP_FAILED;
    *map = (struct tt_file_map){0};
    if (memory >= 0 && bytes <= PTRDIFF_MAX && ftruncate(memory, (off_t)bytes) == 0)
        data = mmap(NULL, (size_t)bytes, PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0);
    int error_number = errno;
    tt_file_close(memory);
    if (data == MAP_FAILED) return tt_fail_errno(error_number, "no memory for the content of '%s'", path);
    tt_status status = tt_file_pread(descriptor, path, data, (size_t)bytes, 0);
    if (status == TT_OK)
        *map = (struct tt_file_map){data, bytes};
    else
        munmap(data, (size_t)bytes);
    return status;
}

tt_status tt_file_map_descriptor(int descriptor, const char *path, uint64_t bytes, struct tt_file_map *map)
{
    /* mmap refuses empty files. */
    *map = (struct tt_file_map){(const uint8_t *)"", 0};
    if (bytes == 0) return TT_OK;
    if (tt_store_owns(descriptor)) return map_copy(descriptor, path, bytes, map);
    void *data =
        bytes <= PTRDIFF_MAX ? mmap(NULL, (size_t)bytes, PROT_READ, MAP_PRIVATE, descriptor, 0) : MAP_FAILED;
    if (data == MAP_FAILED) {
        *map = (struct tt_file_map){0};
        return tt_fail_errno(errno, "cannot map '%s' into memory", path);
    }
    *map = (struct tt_file_map){data, bytes};
    return TT_OK;
}

tt_status tt_file_map_open(const char *path, struct tt_file_map *map)
{
    int descriptor = -1;
    uint64_t bytes = 0;
    TT_TRY(tt_file_open_read(path, &descriptor, &bytes));
    tt_status status = tt_file_map_descriptor(descriptor, path, bytes, map);
    tt_file_close(descriptor);
    return status;
}

void tt_file_map_close(struct tt_file_map *map)
{
    if (map->data != NULL && map->bytes > 0) munmap((void *)(uintptr_t)map->data, (size_t)map->bytes);
    *map = (struct tt_file_map){0};
}

void tt_file_map_release(const void *data, size_t bytes)
{
    enum { SMALL_BYTES = 1 << 20 };
    if (bytes < SMALL_BYTES) return;
    /* Whole pages only; a failure costs memory and nothing else. */
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), first = (uintptr_t)data;
    uintptr_t start = (first + page - 1) / page * page, end = (first + bytes) / page * page;
    (void)madvise((void *)start, end - start, MADV_DONTNEED);
}
