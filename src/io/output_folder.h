/* The output folder of a command. Commands that write a whole folder (merge, quantize, consolidate) write it under a
 * temporary name beside it, and one rename publishes it; a lock protects both names from a second command. A training
 * run writes into its folder during the run (run/output_dir.h) and locks it by a file inside. */
#ifndef TT_IO_OUTPUT_FOLDER_H
#define TT_IO_OUTPUT_FOLDER_H

#include "base/lock.h"
#include "base/str.h"

/* The lock file of a training run, in its output_dir. */
#define TT_OUTPUT_LOCK_NAME ".trimtab.lock"

/* True if both paths resolve to the same existing file or folder. */
bool tt_output_folder_is(const char *folder, const char *other);
/* Locks the path of a file or folder with a lock file beside it. `what`: as in tt_lock_take. */
TT_MUST_USE tt_status tt_output_lock(const char *path, const char *what, struct tt_lock **out);

struct tt_output_folder {
    struct tt_str path, temporary;   /* without slashes at the end */
    struct tt_lock *beside, *inside; /* inside: of an existing folder, against a training run in it */
};
/* Locks the path, checks that it may be written, and creates an empty folder `path` + `ending` (".merging"), which
 * replaces the remains of a killed command. TT_ERR_USAGE for a file, for a folder with content unless `overwrite`, and
 * while another run writes `path`. */
TT_MUST_USE tt_status tt_output_folder_open(const char *path, const char *ending, bool overwrite,
                                            struct tt_output_folder *out);
/* Publishes the temporary folder; it replaces an existing folder. */
TT_MUST_USE tt_status tt_output_folder_commit(struct tt_output_folder *folder);
/* Removes an unpublished folder, releases the locks and keeps the error record. A zeroed struct is closed. */
void tt_output_folder_close(struct tt_output_folder *folder);

#endif
