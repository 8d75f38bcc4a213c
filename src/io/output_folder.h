/* The folder that a command writes. Commands that write a folder as a whole (merge, quantize, consolidate) write it
 * under a temporary name beside it, and one rename publishes it; a lock keeps a second command away from both names. A
 * training run writes into its folder as it goes (run/output_dir.h) and locks it from the inside. */
#ifndef TT_IO_OUTPUT_FOLDER_H
#define TT_IO_OUTPUT_FOLDER_H

#include "base/lock.h"
#include "base/str.h"

/* The lock file of a training run, in its output_dir. */
#define TT_OUTPUT_LOCK_NAME ".trimtab.lock"

/* TT_OK when `folder` is not there, is empty, or may be replaced; a file, or a folder with something in it, is
 * TT_ERR_USAGE. */
TT_MUST_USE tt_status tt_output_folder_check(const char *folder, bool overwrite);
/* Whether both paths lead to one file or folder that is there. */
bool tt_output_folder_is(const char *folder, const char *other);
/* Locks the name `path`, of a file or folder, with a file beside it. `what` as tt_lock_take has it. */
TT_MUST_USE tt_status tt_output_lock(const char *path, const char *what, struct tt_lock **out);

struct tt_output_folder {
    struct tt_str path, temporary;   /* without slashes at the end */
    struct tt_lock *beside, *inside; /* inside: of an existing folder, against a training run in it */
};
/* tt_output_folder_check under a lock, then an empty folder `path` + `ending` (".merging"), in the place of one that a
 * killed command left. TT_ERR_USAGE while another run writes `path`. */
TT_MUST_USE tt_status tt_output_folder_open(const char *path, const char *ending, bool overwrite,
                                            struct tt_output_folder *out);
/* Publishes the temporary folder, which replaces an existing one. */
TT_MUST_USE tt_status tt_output_folder_commit(struct tt_output_folder *folder);
/* Removes what was not published, ends the lock and keeps the error record. A zeroed struct is closed. */
void tt_output_folder_close(struct tt_output_folder *folder);

#endif
