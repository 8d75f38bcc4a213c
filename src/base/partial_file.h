/* A file that grows while it is fetched, one process at a time: what an earlier process left of it stays, and it gets
 * its name only when it is complete. */
#ifndef TT_BASE_PARTIAL_FILE_H
#define TT_BASE_PARTIAL_FILE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"

/* Waits until no other process holds the lock (flock(2), that of Python's filelock), and creates its file and folders
 * where they are missing; the file stays. `cancelled` (may be NULL) is asked ten times a second: TT_ERR_CANCELLED.
 * `waits` (may be NULL) is called once where another process holds it. A file system without locks locks nothing.
 * tt_file_close ends it. */
TT_MUST_USE tt_status tt_flock_take(const char *path, bool (*cancelled)(void *context),
                                    void (*waits)(void *context), void *context, int *descriptor);

struct tt_partial_file {
    const char *path; /* lent */
    int descriptor;   /* -1: closed */
    uint64_t bytes;   /* its length */
};

/* Opens or creates it, for reading too. */
TT_MUST_USE tt_status tt_partial_file_open(const char *path, struct tt_partial_file *file);
TT_MUST_USE tt_status tt_partial_file_append(struct tt_partial_file *file, const void *data, size_t bytes);
TT_MUST_USE tt_status tt_partial_file_empty(struct tt_partial_file *file);
/* Makes it durable, closes it, and gives it its name. */
TT_MUST_USE tt_status tt_partial_file_finish(struct tt_partial_file *file, const char *name);
void tt_partial_file_close(struct tt_partial_file *file); /* takes a closed one */

/* Makes a symbolic link to `target` at `path`, in place of what is there unless that is the same link. */
TT_MUST_USE tt_status tt_file_link(const char *target, const char *path);

#endif
