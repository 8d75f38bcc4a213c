/* completion.json in output_dir: the run whose result lies there, written after the result. A run that is started again
 * when it is complete, as by a cluster whose pod was evicted after the end, has nothing to do.
 *
 * It is the same run if the settings (without those of a machine), input files, identity (run/resume.h) and the files
 * of the result are. Settings and identity may be those of an earlier version: a setting that only this version has
 * must have its default, and one that is gone is not compared. */
#ifndef TT_RUN_COMPLETION_H
#define TT_RUN_COMPLETION_H

#include "job/spec.h"
#include "launch/world.h"
#include "run/run.h"

#define TT_COMPLETION_NAME "completion.json"

/* Fills run->compared. Call it in every process, before the others. */
TT_MUST_USE tt_status tt_completion_prepare(struct tt_run *run);
/* Collective over the processes, when rank 0 has claimed output_dir: whether it holds the result of this run. Fills
 * run->rank0.summary and reports it. Inputs that cannot be read count as another run, whose start gives the reason. */
TT_MUST_USE tt_status tt_completion_find(struct tt_run *run, struct tt_world *world, bool *complete);
/* Called after a start that ended with the error record of `status` because the others did not come: whether
 * output_dir, as this process sees it, has the result of this run by its RUN_UID. Then the others have ended as well,
 * and it is reported. */
bool tt_completion_explains(const struct tt_run *run, tt_status status);
/* Rank 0, before a run writes into the folder. */
TT_MUST_USE tt_status tt_completion_remove(const char *output_dir);
/* Rank 0, after the result and the records. A failure is a warning: the result is complete without the file. */
void tt_completion_write(const struct tt_run *run, int data_size, int64_t steps);

#endif
