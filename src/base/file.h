/* Files: whole reads, atomic writes, directory commits. Paths are bytes, passed to the system unchanged. Every error
 * names the path. A write is complete or invisible. */
#ifndef TT_BASE_FILE_H
#define TT_BASE_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/error.h"
#include "base/str.h"

/* Reads the whole file into owned memory (`data`), with one 0 byte after it. A file of more than `max_bytes` is
 * TT_ERR_DATA. */
TT_MUST_USE tt_status tt_file_read(const char *path, size_t max_bytes, struct tt_str *data);
/* temporary file in the same folder -> write -> fsync -> rename -> fsync of the folder. */
TT_MUST_USE tt_status tt_file_write_atomic(const char *path, const void *data, size_t bytes);
/* Byte-for-byte copy, written as by tt_file_write_atomic. */
TT_MUST_USE tt_status tt_file_copy(const char *from, const char *to);
/* Creates or truncates a file of `bytes` for positioned writes. A link at `path` is not followed. */
TT_MUST_USE tt_status tt_file_create(const char *path, uint64_t bytes, int *descriptor);
/* Opens a regular file. A pipe, device, socket or folder is TT_ERR_DATA and never blocks; the same holds for every call
 * here that reads a file. `bytes` may be NULL. */
TT_MUST_USE tt_status tt_file_open_read(const char *path, int *descriptor, uint64_t *bytes);
/* The same for folder/name in a folder of unknown origin: the file must have at most `max_bytes` and must be inside
 * `folder` once all links are followed. The only link that may leave the folder is one of the hub's cache:
 * ROOT/snapshots/REVISION/name -> ROOT/blobs/HASH. */
TT_MUST_USE tt_status tt_file_open_inside(const char *folder, const char *name, uint64_t max_bytes,
                                          int *descriptor, uint64_t *bytes);
/* tt_file_copy of such a file. */
TT_MUST_USE tt_status tt_file_copy_inside(const char *folder, const char *name, uint64_t max_bytes,
                                          const char *to);
TT_MUST_USE tt_status tt_file_open_write(const char *path, int *descriptor); /* an existing file */
/* Opens a file of `bytes` that several processes write, each its own parts: creates it if missing, reserves its whole
 * length, and keeps its content. */
TT_MUST_USE tt_status tt_file_open_shared(const char *path, uint64_t bytes, int *descriptor);
/* Reads all `bytes` or fails; the error of a short read has path, offset and the bytes read. */
TT_MUST_USE tt_status tt_file_pread(int descriptor, const char *path, void *data, size_t bytes,
                                    uint64_t offset);
/* The same where the file may end earlier: *got. */
TT_MUST_USE tt_status tt_file_read_some(int descriptor, const char *path, void *data, size_t bytes,
                                        uint64_t offset, size_t *got);
TT_MUST_USE tt_status tt_file_pwrite(int descriptor, const char *path, const void *data, size_t bytes,
                                     uint64_t offset);
/* fsync + close; closes the descriptor even on failure. Negative descriptors are ignored. */
TT_MUST_USE tt_status tt_file_sync_close(int descriptor, const char *path);
void tt_file_close(int descriptor);
/* Makes what was written visible where the store cannot append (base/store.h), which may take as long as to write it
 * all
 * anew; no effect elsewhere. */
TT_MUST_USE tt_status tt_file_flush(int descriptor, const char *path);

/* rename(2). */
TT_MUST_USE tt_status tt_file_rename(const char *from, const char *to);

/* Facts of what a path leads to, links followed. */
struct tt_file_facts {
    bool is_dir, is_regular;
    uint64_t bytes, inode;
    int64_t changed, touched; /* content; content or inode: nanoseconds since 1970 */
};
/* 0, or the errno. */
int tt_file_facts(const char *path, struct tt_file_facts *facts);
bool tt_file_is_readable(const char *path); /* by this user */
/* Removes a file or a link, no folder: 0, or the errno (ENOENT: there is none). No change of tt_file_fail_at. */
int tt_file_remove(const char *path);
/* Whether the open file still has a name; true for a file of a store. Negative descriptors have none. */
bool tt_file_is_linked(int descriptor);
/* The size of an open file of the disk. */
TT_MUST_USE tt_status tt_file_bytes(int descriptor, const char *path, uint64_t *bytes);
void tt_file_truncate(int descriptor, uint64_t bytes); /* as far as it works */

bool tt_path_exists(const char *path);
bool tt_path_is_dir(const char *path);
/* "folder/name" on the stack: for the length of a function. One that the system would not take is TT_ERR_IO. */
enum { TT_PATH_BYTES = 4096 }; /* with the terminator, as Linux counts */
struct tt_path {
    char text[TT_PATH_BYTES];
};
/* The path without links, "." and ".."; empty on failure. Returns 0 or an errno (no error record). */
int tt_path_real(const char *path, struct tt_path *real);
TT_MUST_USE tt_status tt_path_set(struct tt_path *path, const char *folder, const char *name);
/* The same for keeping; returns owned memory or NULL (record set). */
char *tt_path_join(const char *folder, const char *name);
const char *tt_path_basename(const char *path);

/* Calls `visit` for each path that matches a pattern with *, ? and [...] in any of its parts, in byte order of each. A
 * wildcard at the begin of a part matches no dot. None is no error. */
TT_MUST_USE tt_status tt_path_match(const char *pattern, tt_status (*visit)(void *context, const char *path),
                                    void *context);

TT_MUST_USE tt_status tt_dir_create(const char *path); /* and its parents; an existing folder is no error */
/* One folder, for this user alone: an existing one of another user or with other rights is TT_ERR_USAGE. */
TT_MUST_USE tt_status tt_dir_create_private(const char *path);
TT_MUST_USE tt_status tt_dir_remove(const char *path); /* the whole tree; a missing folder is no error */
bool tt_dir_remove_empty(const char *path);            /* false: it has entries, or cannot be removed */
/* fsync of the folder: its entries survive a power failure. */
TT_MUST_USE tt_status tt_dir_sync(const char *path);
/* fsync of every file's folder entry, then rename(temporary, final), then fsync of the parent. An existing `final` is
 * moved aside first and removed afterwards. Where a store cannot rename, the files are stored one by one,
 * "manifest.json"
 * last, and it is the first that is removed of an existing `final`. */
TT_MUST_USE tt_status tt_dir_commit(const char *temporary, const char *final);
/* Calls `visit` for each entry name (no "." and ".."), in byte order. */
TT_MUST_USE tt_status tt_dir_list(const char *path, tt_status (*visit)(void *context, const char *name),
                                  void *context);
/* Free bytes of the file system below it; `block`, which may be NULL: the unit in which it gives room to a file. */
TT_MUST_USE tt_status tt_dir_free_bytes(const char *path, uint64_t *bytes, uint64_t *block);

/* Test hook, process-wide, for all changes to the file system made here: each creation, write, fsync, rename and
 * removal is one change. The nth change from now on, and with `sticky` all after it, fails with `error_number`; 0: the
 * process is killed there as by kill -9, in the middle of a write. nth 0 turns the hook off. The variable
 * TRIMTAB_FILE_FAULT="nth error_number sticky" does the same from the first change on. */
void tt_file_fail_at(uint64_t nth, int error_number, bool sticky);
/* Called before each change: 0, or the errno that the change fails with. */
int tt_file_fault(void);
int tt_file_fault_of_write(int descriptor, const void *data, size_t bytes, uint64_t offset);

/* Read-only memory map of a whole file. A zeroed struct is closed. */
struct tt_file_map {
    const uint8_t *data;
    uint64_t bytes;
};
TT_MUST_USE tt_status tt_file_map_open(const char *path, struct tt_file_map *map);
/* The first `bytes` of an open file, which may be closed afterwards; `path` is for messages. */
TT_MUST_USE tt_status tt_file_map_descriptor(int descriptor, const char *path, uint64_t bytes,
                                             struct tt_file_map *map);
void tt_file_map_close(struct tt_file_map *map);
/* Returns the memory of a part of a map to the system, except for small parts; a later access reads the file again. */
void tt_file_map_release(const void *data, size_t bytes);

#endif
