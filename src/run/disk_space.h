/* The room that a run needs on the disk of its output_dir. */
#ifndef TT_RUN_DISK_SPACE_H
#define TT_RUN_DISK_SPACE_H

#include "model/model.h"
#include "run/run.h"

/* Checks before the first step that the disk has room for the kept checkpoints, one save in progress, the result and
 * the records: for the tensors, the tokenizer's files and the texts beside them, in whole blocks of the file system.
 * Warns where the log until the last step has no room beside them. */
TT_MUST_USE tt_status tt_disk_space_check(const struct tt_run *run, const struct tt_model *model);

#endif
