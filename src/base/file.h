/* Files: whole reads, atomic writes, directory commits. Paths are UTF-8 bytes as the system takes them.
 * Every error names the path. A write is complete or invisible. */
#ifndef TT_BASE_FILE_H
#define TT_BASE_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/error.h"
#include "base/str.h"

/* Reads the whole file (returns owned memory through `data`, with one 0 byte after it). A file of more than
 * `max_bytes` is TT_ERR_DATA. */
TT_MUST_USE tt_status tt_file_read(const char *path, size_t max_bytes, struct tt_str *data);
/* temporary file in the same folder -> write -> fsync -> rename -> fsync of the folder. */
TT_MUST_USE tt_status tt_file_write_atomic(const char *path, const void *data, size_t bytes);
/* Byte-for-byte copy, same care as tt_file_write_atomic. */
TT_MUST_USE tt_status tt_file_copy(const char *from, const char *to);
/* Creates a file, or truncates it, for positioned writes; the descriptor is returned. A link at `path` is not
 * followed. */
TT_MUST_USE tt_status tt_file_create(const char *path, uint64_t bytes, int *descriptor);
/* Opens a regular file. Anything else (a pipe, a device, a socket, a folder) is TT_ERR_DATA, and never waited for; the
 * same holds for every call here that reads a file. `bytes` may be NULL. */
TT_MUST_USE tt_status tt_file_open_read(const char *path, int *descriptor, uint64_t *bytes);
/* The same for folder/name, a file that is to be copied from a folder of unknown origin: at most `max_bytes` long, and
 * inside `folder` once all links are followed. The one link that may leave it is that of the hub's cache:
 * ROOT/snapshots/REVISION/name -> ROOT/blobs/HASH. */
TT_MUST_USE tt_status tt_file_open_inside(const char *folder, const char *name, uint64_t max_bytes,
                                          int *descriptor, uint64_t *bytes);
/* tt_file_copy from there. */
TT_MUST_USE tt_status tt_file_copy_inside(const char *folder, const char *name, uint64_t max_bytes,
                                          const char *to);
TT_MUST_USE tt_status tt_file_open_write(const char *path, int *descriptor); /* an existing file */
/* A file of `bytes` that several write to, each its own parts: creates it unless it is there, reserves its whole
 * length, and leaves alone what others have written. */
TT_MUST_USE tt_status tt_file_open_shared(const char *path, uint64_t bytes, int *descriptor);
/* All of it or an error; a short read names path, offset and how much was there. */
TT_MUST_USE tt_status tt_file_pread(int descriptor, const char *path, void *data, size_t bytes,
                                    uint64_t offset);
TT_MUST_USE tt_status tt_file_pwrite(int descriptor, const char *path, const void *data, size_t bytes,
                                     uint64_t offset);
/* fsync + close; the descriptor is closed even when it fails. Negative descriptors are ignored. */
TT_MUST_USE tt_status tt_file_sync_close(int descriptor, const char *path);
void tt_file_close(int descriptor);

/* rename(2). */
TT_MUST_USE tt_status tt_file_rename(const char *from, const char *to);

bool tt_path_exists(const char *path);
bool tt_path_is_dir(const char *path);
/* "folder/name" on the stack: for the length of a function. One that the system would not take is TT_ERR_IO. */
enum { TT_PATH_BYTES = 4096 }; /* with the terminator, as Linux counts */
struct tt_path {
    char text[TT_PATH_BYTES];
};
TT_MUST_USE tt_status tt_path_set(struct tt_path *path, const char *folder, const char *name);
/* The same for keeping; returns owned memory or NULL (record set). */
char *tt_path_join(const char *folder, const char *name);
const char *tt_path_basename(const char *path);

TT_MUST_USE tt_status tt_dir_create(const char *path); /* and its parents; existing is fine */
TT_MUST_USE tt_status tt_dir_remove(const char *path); /* the whole tree; a missing one is fine */
/* fsync of the folder: its entries survive a loss of power */
TT_MUST_USE tt_status tt_dir_sync(const char *path);
/* fsync of every file's folder entry, then rename(temporary, final), then fsync of the parent. An existing
 * `final` is replaced: it is moved aside first and removed after. */
TT_MUST_USE tt_status tt_dir_commit(const char *temporary, const char *final);
/* Calls `visit` for each entry name (no "." and ".."), in byte order. */
TT_MUST_USE tt_status tt_dir_list(const char *path, tt_status (*visit)(void *context, const char *name),
                                  void *context);
TT_MUST_USE tt_status tt_dir_free_bytes(const char *path, uint64_t *bytes); /* of the file system below it */

/* Test hook, process-wide, for whatever changes the file system here: each creation, write, fsync, rename and removal
 * is one change. The nth from now on, and with `sticky` all after it, fails with `error_number`; 0: the process is
 * killed there as kill -9 would, a write half done. nth 0 turns it off. TRIMTAB_FILE_FAULT="nth error_number sticky"
 * in the environment does the same from the first change on. */
void tt_file_fail_at(uint64_t nth, int error_number, bool sticky);
uint64_t tt_file_changes(void); /* so far */
/* To be asked before a change: 0, or the errno that it fails with. */
int tt_file_fault(void);
int tt_file_fault_of_write(int descriptor, const void *data, size_t bytes, uint64_t offset);

/* Read-only memory map of a whole file. A zeroed struct is closed. */
struct tt_file_map {
    const uint8_t *data;
    uint64_t bytes;
};
TT_MUST_USE tt_status tt_file_map_open(const char *path, struct tt_file_map *map);
void tt_file_map_close(struct tt_file_map *map);
/* Gives the memory of a part of a map back to the system, except for small parts; what is read there again comes from
 * the file. */
void tt_file_map_release(const void *data, size_t bytes);

#endif
