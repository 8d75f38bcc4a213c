/* Folders that are not published yet. A store that cannot rename has a folder whole only when its last file is there;
 * until tt_dir_commit it lies on this machine: a path with a part that ends in ".saving", ".merging", ".quantizing" or
 * ".consolidating" is one of the folder for temporary files, for all processes of this user alike. */
#ifndef TT_STORE_S3_STAGE_H
#define TT_STORE_S3_STAGE_H

#include <stdbool.h>

#include "base/file.h"

/* Whether a part of the path has such an ending. */
bool tt_s3_stage_covers(const char *path);
/* The path on this machine. `make`: the folders above the unpublished one are made, for this user alone. */
TT_MUST_USE tt_status tt_s3_stage_path(const char *path, bool make, struct tt_path *local);
/* The folder that has the unpublished folders of `folder`; it may be missing. */
TT_MUST_USE tt_status tt_s3_stage_of(const char *folder, struct tt_path *local);

#endif
