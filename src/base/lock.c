#include "base/lock.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/store.h"

enum { ATTEMPTS_MAX = 100, HOLDER_BYTES_MAX = 512 };

/* Content of the file, one line: "PID START INODE HOST". START is the start of the process in clock ticks since boot,
 * to distinguish it from a later process with the same number. INODE is that of the lock file. */
struct holder {
    long pid;
    unsigned long long start, inode;
    char host[128]; /* empty: the file has no content */
};

struct tt_lock {
    char *path;
    int descriptor;
    struct holder self;           /* the content of the file; host empty: not written */
    const struct tt_store *store; /* that has the lock instead; NULL: the disk */
    void *stored;
};

/* It is field 22 of /proc/PID/stat; the command's name before it is in brackets and may contain any character. */
unsigned long long tt_lock_process_start(long pid)
{
    char path[64], text[1024];
    unsigned long long start = 0;
    snprintf(path, sizeof path, "/proc/%ld/stat", pid);
    int descriptor = open(path, O_RDONLY | O_CLOEXEC);
    if (descriptor < 0) return 0;
    ssize_t bytes = read(descriptor, text, sizeof text - 1);
    close(descriptor);
    if (bytes <= 0) return 0;
    text[bytes] = '\0';
    const char *at = strrchr(text, ')');
    for (int field = 2; field < 22 && at != NULL; field++) at = strchr(at + 1, ' ');
    if (at != NULL) start = strtoull(at, NULL, 10);
    return start;
}

static void name_host(char *host, size_t bytes)
{
    if (gethostname(host, bytes) != 0) snprintf(host, bytes, "localhost");
    host[bytes - 1] = '\0';
}

static void read_holder(int descriptor, struct holder *holder)
{
    char text[HOLDER_BYTES_MAX];
    *holder = (struct holder){0};
    ssize_t bytes = pread(descriptor, text, sizeof text - 1, 0);
    if (bytes <= 0) return;
    text[bytes] = '\0';
    if (sscanf(text, "%ld %llu %llu %127[^\n]", &holder->pid, &holder->start, &holder->inode, holder->host) !=
        4)
        *holder = (struct holder){0};
}

/* The holder's name is for people and for file systems without locks, so a failed write is ignored. */
static void write_holder(struct tt_lock *lock)
{
    char text[HOLDER_BYTES_MAX];
    struct holder self = {.pid = (long)getpid()};
    struct stat info;
    if (fstat(lock->descriptor, &info) != 0 || ftruncate(lock->descriptor, 0) != 0) return;
    name_host(self.host, sizeof self.host);
    self.start = tt_lock_process_start(self.pid);
    self.inode = (unsigned long long)info.st_ino;
    int bytes =
        snprintf(text, sizeof text, "%ld %llu %llu %s\n", self.pid, self.start, self.inode, self.host);
    if (tt_file_pwrite(lock->descriptor, lock->path, text, (size_t)bytes, 0) == TT_OK)
        lock->self = self;
    else
        tt_error_clear();
}

/* The lock of file systems without locks. */
static bool is_alive(const struct holder *holder, const struct stat *file)
{
    char host[128];
    if (holder->host[0] == '\0' || holder->inode != (unsigned long long)file->st_ino) return false;
    name_host(host, sizeof host);
    if (strcmp(host, holder->host) != 0) return true;
    unsigned long long start = tt_lock_process_start(holder->pid);
    return start != 0 && start == holder->start;
}

static tt_status refuse(const struct tt_lock *lock, const struct holder *holder, const char *what,
                        bool unlocked)
{
    if (holder->host[0] == '\0')
        (void)tt_fail(TT_ERR_USAGE, "%s is in use by another run", what);
    else
        (void)tt_fail(TT_ERR_USAGE, "%s is in use by another run: process %ld on host '%s'", what,
                      holder->pid, holder->host);
    if (unlocked)
        tt_hint("wait until it has ended, or choose another place; this file system has no locks: if that "
                "run is dead, remove '%s'",
                lock->path);
    else
        tt_hint("wait until it has ended, or choose another place; a dead run does not hold the lock");
    return TT_ERR_USAGE;
}

/* TT_OK with *held false: the file was removed meanwhile. */
static tt_status lock_file(struct tt_lock *lock, const char *what, bool *held)
{
    struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    struct stat mine, there;
    struct holder holder;
    int error_number = fcntl(lock->descriptor, F_OFD_SETLK, &whole) != 0 ? errno : 0;
    read_holder(lock->descriptor, &holder);
    if (error_number == EAGAIN || error_number == EACCES) return refuse(lock, &holder, what, false);
    if (fstat(lock->descriptor, &mine) != 0) return tt_fail_errno(errno, "cannot read '%s'", lock->path);
    if (!S_ISREG(mine.st_mode)) return tt_fail(TT_ERR_USAGE, "'%s' is not a regular file", lock->path);
    if (error_number != 0 && is_alive(&holder, &mine)) return refuse(lock, &holder, what, true);
    *held = lstat(lock->path, &there) == 0 && there.st_ino == mine.st_ino && there.st_dev == mine.st_dev;
    if (*held) write_holder(lock);
    return TT_OK;
}

static tt_status open_lock_file(struct tt_lock *lock)
{
    int error_number = tt_file_fault();
    if (error_number == 0) {
        lock->descriptor = open(lock->path, O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0666);
        if (lock->descriptor < 0) error_number = errno;
    }
    if (error_number == 0) return TT_OK;
    tt_status status = tt_fail_errno(error_number, "cannot create '%s'", lock->path);
    if (error_number == ENOENT || error_number == ENOTDIR)
        tt_hint("the folder of the output must exist: make it with mkdir -p, or choose another");
    else if (error_number == EROFS || error_number == EACCES)
        tt_hint("the folder of the output must be writable: choose another");
    return status;
}

tt_status tt_lock_take(const char *path, const char *what, struct tt_lock **out)
{
    return tt_lock_take_where(path, what, false, out);
}

tt_status tt_lock_take_where(const char *path, const char *what, bool unlocked, struct tt_lock **out)
{
    tt_status status = TT_OK;
    bool held = false;
    struct tt_lock *lock = tt_calloc(1, sizeof *lock);
    if (lock == NULL) return TT_ERR_MEMORY;
    lock->descriptor = -1;
    lock->path = tt_strdup(path);
    if (lock->path == NULL) TT_GO(TT_ERR_MEMORY);
    const struct tt_store *store = tt_store_of(path);
    if (store != NULL && store->lock != NULL) {
        TT_GO(store->lock(store->context, path, what, unlocked, &lock->stored));
        lock->store = store;
        held = true;
    }
    for (int attempt = 0; !held && attempt < ATTEMPTS_MAX; attempt++) {
        tt_file_close(lock->descriptor);
        lock->descriptor = -1;
        TT_GO(open_lock_file(lock));
        TT_GO(lock_file(lock, what, &held));
    }
    if (!held) TT_GO(tt_fail(TT_ERR_IO, "another program keeps removing '%s'", path));
    *out = lock;
    lock = NULL;
out:
    if (lock != NULL) {
        tt_file_close(lock->descriptor);
        tt_free(lock->path);
        tt_free(lock);
    }
    return status;
}

/* A server of locks gives the lock of a machine that it no longer hears to another one, whose process writes its name
 * into the same file. */
static bool is_named(const struct tt_lock *lock)
{
    struct holder holder;
    read_holder(lock->descriptor, &holder);
    if (lock->self.host[0] == '\0' || holder.host[0] == '\0') return true;
    return holder.pid == lock->self.pid && holder.start == lock->self.start &&
           strcmp(holder.host, lock->self.host) == 0;
}

bool tt_lock_is_held(const struct tt_lock *lock)
{
    struct stat mine, there;
    if (lock != NULL && lock->store != NULL) return lock->store->lock_is_held(lock->stored);
    return lock != NULL && fstat(lock->descriptor, &mine) == 0 && lstat(lock->path, &there) == 0 &&
           mine.st_ino == there.st_ino && mine.st_dev == there.st_dev && is_named(lock);
}

void tt_lock_release(struct tt_lock *lock)
{
    if (lock == NULL) return;
    /* No other process can take the file while the lock is held; a process that has it open detects the removal. */
    if (lock->store != NULL)
        lock->store->lock_release(lock->stored);
    else if (tt_lock_is_held(lock) && tt_file_fault() == 0)
        (void)unlink(lock->path);
    tt_file_close(lock->descriptor);
    tt_free(lock->path);
    tt_free(lock);
}
