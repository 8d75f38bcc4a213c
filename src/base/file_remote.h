/* Files on the machine of another process. base/file.h passes the calls for paths that the remote covers, and for
 * descriptors that it opened, to tt_remote.call; callers of base/file.h notice no difference. One remote a process
 * (comm/files.h makes it); a process without one has only its own files. */
#ifndef TT_BASE_FILE_REMOTE_H
#define TT_BASE_FILE_REMOTE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/str.h"

enum tt_remote_kind {
    TT_REMOTE_OPEN_READ,   /* path -> handle, value: bytes of the file */
    TT_REMOTE_OPEN_INSIDE, /* path: folder, second: name, value: most bytes -> handle, value */
    TT_REMOTE_CREATE,      /* path, value: bytes -> handle */
    TT_REMOTE_OPEN_SHARED, /* path, value: bytes -> handle */
    TT_REMOTE_READ,        /* handle, offset, value: bytes -> data, of fewer bytes at the end of the file */
    TT_REMOTE_WRITE,       /* handle, path, offset, data */
    TT_REMOTE_SYNC_CLOSE,  /* handle, path */
    TT_REMOTE_CLOSE,       /* handle */
    TT_REMOTE_RENAME,      /* path, second */
    TT_REMOTE_STAT,        /* path -> value: 0 missing, 1 there, 2 a folder */
    TT_REMOTE_LIST,        /* path -> data: names, each with a terminator */
    TT_REMOTE_MAKE_DIR,    /* path */
    TT_REMOTE_KINDS
};

/* Most bytes of one read, write or list: what either side holds in memory. */
enum { TT_REMOTE_BYTES_MAX = 4 << 20 };

struct tt_remote_call {
    enum tt_remote_kind kind;
    const char *path, *second; /* NULL: none */
    int64_t handle;            /* in, or out of a call that opens */
    uint64_t offset, value;    /* value: in and out */
    const void *send;          /* data of a write */
    size_t send_bytes;
    void *receive; /* data of a read or list: room for receive_room bytes */
    size_t receive_room, received;
};

struct tt_remote {
    void *context;
    /* Whether the path is one of the other machine. */
    bool (*covers)(void *context, const char *path);
    /* One call, from any thread. */
    tt_status (*call)(void *context, struct tt_remote_call *call);
    /* The run has failed: calls wait less for a machine that is silent. From any thread. */
    void (*hurry)(void *context);
};

/* Set while no other thread uses files; NULL: none. Lent. */
void tt_remote_set(const struct tt_remote *remote);

void tt_remote_hurry(void); /* no effect without a remote */

/* Called by base/file.c and base/dir.c. Descriptors of remote files are numbers that the system never gives. */
bool tt_remote_covers(const char *path);
bool tt_remote_owns(int descriptor);
TT_MUST_USE tt_status tt_remote_open(struct tt_remote_call *call, int *descriptor);
/* A call without a handle. */
TT_MUST_USE tt_status tt_remote_do(struct tt_remote_call *call);
/* *got is less than `bytes` at the end of the file only. */
TT_MUST_USE tt_status tt_remote_read(int descriptor, const char *path, void *data, size_t bytes,
                                     uint64_t offset, size_t *got);
TT_MUST_USE tt_status tt_remote_write(int descriptor, const char *path, const void *data, size_t bytes,
                                      uint64_t offset);
TT_MUST_USE tt_status tt_remote_sync_close(int descriptor, const char *path);
void tt_remote_close(int descriptor);
uint64_t tt_remote_stat(const char *path); /* as TT_REMOTE_STAT; 0 also after an error */
/* The names in a folder, each with a terminator. */
TT_MUST_USE tt_status tt_remote_list(const char *path, struct tt_str *names);

#endif
