/* Stores: where files lie that are not on a disk of this machine. base/file.h passes the calls for paths that a store
 * covers, and for descriptors that it opened, to its `call`; the first of the places below that covers a path has it,
 * and the disk has the rest. Callers of base/file.h see a difference only where a store cannot do what a disk can:
 *
 * - TT_STORE_CAN_RENAME missing: a folder is published by tt_dir_commit file by file, the one that makes the others
 *   valid (a manifest) last.
 * - TT_STORE_CAN_APPEND missing: a file is gathered on this machine and stored as a whole when it is closed, or at
 *   tt_file_flush.
 * - TT_STORE_CAN_LOCK missing: base/lock.h cannot hold a folder of it.
 *
 * Another machine's files are a store (comm/files.h makes it). */
#ifndef TT_BASE_STORE_H
#define TT_BASE_STORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/str.h"

enum tt_store_kind {
    TT_STORE_OPEN_READ,   /* path -> handle, value: bytes of the file */
    TT_STORE_OPEN_INSIDE, /* path: folder, second: name, value: most bytes -> handle, value */
    TT_STORE_CREATE,      /* path, value: bytes -> handle */
    TT_STORE_OPEN_SHARED, /* path, value: bytes -> handle */
    TT_STORE_READ,        /* handle, offset, value: bytes -> data, of fewer bytes at the end of the file */
    TT_STORE_WRITE,       /* handle, path, offset, data */
    TT_STORE_SYNC_CLOSE,  /* handle, path */
    TT_STORE_CLOSE,       /* handle */
    TT_STORE_RENAME,      /* path, second */
    TT_STORE_STAT,        /* path -> value: 0 missing, 1 there, 2 a folder */
    TT_STORE_LIST,        /* path -> data: names, each with a terminator */
    TT_STORE_MAKE_DIR,    /* path */
    TT_STORE_WIRE_KINDS,  /* these are what another machine is asked (comm/files.h); others not */
    TT_STORE_FACTS = TT_STORE_WIRE_KINDS, /* path -> struct tt_file_facts in `receive`, value as of STAT */
    TT_STORE_REMOVE,                      /* path: a file or a whole tree; a missing one is no error */
    TT_STORE_COMMIT,                      /* path, second: as tt_dir_commit */
    TT_STORE_FLUSH,                       /* handle, path: what was written is stored; the file stays open */
    TT_STORE_KINDS
};

/* Most bytes of one write or list, and of one read where a store says nothing else: what either side holds in
 * memory. */
enum { TT_STORE_BYTES_MAX = 4 << 20 };

struct tt_store_call {
    enum tt_store_kind kind;
    const char *path, *second; /* NULL: none */
    int64_t handle;            /* in, or out of a call that opens: below TT_STORE_HANDLES */
    bool on_disk;              /* out of a call that opens: the handle is a descriptor of the system */
    uint64_t offset, value;    /* value: in and out */
    const void *send;          /* data of a write */
    size_t send_bytes;
    void *receive; /* data of a read or list: room for receive_room bytes */
    size_t receive_room, received;
};

enum { TT_STORE_HANDLES = 1 << 28 };

enum tt_store_can { TT_STORE_CAN_RENAME = 1, TT_STORE_CAN_LOCK = 2, TT_STORE_CAN_APPEND = 4 };

struct tt_store {
    void *context;
    unsigned can;             /* enum tt_store_can */
    enum tt_store_kind kinds; /* the calls that it takes are those below; the others are the disk's */
    size_t read_bytes;        /* the most of one read; 0: TT_STORE_BYTES_MAX */
    /* Whether the path is one of the store. */
    bool (*covers)(void *context, const char *path);
    /* One call, from any thread. */
    tt_status (*call)(void *context, struct tt_store_call *call);
    /* The run has failed: calls wait less for a server that is silent. From any thread. */
    void (*hurry)(void *context);
    /* The calls of base/lock.h, with TT_STORE_CAN_LOCK; else NULL. */
    tt_status (*lock)(void *context, const char *path, const char *what, bool unlocked, void **lock);
    bool (*lock_is_held)(void *lock);
    void (*lock_release)(void *lock);
};

/* The order in which they are asked. */
enum tt_store_place { TT_STORE_MACHINE, TT_STORE_S3, TT_STORE_HUB, TT_STORE_PLACES };

/* Set while no other thread uses files; NULL: none. Lent. */
void tt_store_set(enum tt_store_place place, const struct tt_store *store);

void tt_store_hurry(void); /* all of them; no effect without a store */

/* NULL: the disk has the path. */
const struct tt_store *tt_store_of(const char *path);
bool tt_store_covers(const char *path);
/* Whether a store covers the path and takes such a call. */
bool tt_store_takes(const char *path, enum tt_store_kind kind);
/* True too for a path of the disk. */
bool tt_store_can(const char *path, enum tt_store_can can);

/* Called by base/file.c and base/dir.c. Descriptors of a store's files are numbers that the system never gives. */
bool tt_store_owns(int descriptor);
TT_MUST_USE tt_status tt_store_open(struct tt_store_call *call, int *descriptor);
/* A call without a handle. */
TT_MUST_USE tt_status tt_store_do(struct tt_store_call *call);
/* *got is less than `bytes` at the end of the file only. */
TT_MUST_USE tt_status tt_store_read(int descriptor, const char *path, void *data, size_t bytes,
                                    uint64_t offset, size_t *got);
TT_MUST_USE tt_status tt_store_write(int descriptor, const char *path, const void *data, size_t bytes,
                                     uint64_t offset);
TT_MUST_USE tt_status tt_store_sync_close(int descriptor, const char *path);
TT_MUST_USE tt_status tt_store_flush(int descriptor, const char *path);
void tt_store_close(int descriptor);
uint64_t tt_store_stat(const char *path); /* as TT_STORE_STAT; 0 also after an error, which is kept */
/* Called after an error of TT_STORE_STAT or TT_STORE_FACTS, whose caller takes the path for a missing one. */
void tt_store_keep_error(void);
/* The first error that was kept since the last call, by any thread, or TT_OK. What was concluded since then from paths
 * that are missing must not be used after an error. */
TT_MUST_USE tt_status tt_store_failure(void);
/* The names in a folder, each with a terminator. */
TT_MUST_USE tt_status tt_store_list(const char *path, struct tt_str *names);

#endif
