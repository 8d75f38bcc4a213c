/* The world of a job that runs over ranks. */
#ifndef TT_RUN_OPEN_WORLD_H
#define TT_RUN_OPEN_WORLD_H

#include "job/settings.h"
#include "launch/world.h"

/* tt_world_open with the parts of `spec`, which is the struct of the kind, and with its settings for the comparison
 * between processes. `cancel` is NULL or lent. */
TT_MUST_USE tt_status tt_run_open_world(enum tt_job_kind kind, const void *spec,
                                        const struct tt_cancel *cancel, struct tt_world *world);

/* Memory of this process's GPUs that nobody uses yet, of the one with the least, by NVML; UINT64_MAX: not known. */
uint64_t tt_run_unused_memory(const struct tt_world *world);

#endif
