/* The world of a job that runs over ranks, and each of them. */
#ifndef TT_RUN_OPEN_WORLD_H
#define TT_RUN_OPEN_WORLD_H

#include "engine/plan.h"
#include "job/settings.h"
#include "launch/world.h"

/* tt_world_open with the parts of `spec`, which is the struct of the kind, and with its settings for the comparison
 * between processes. `cancel` is NULL or lent. */
TT_MUST_USE tt_status tt_run_open_world(enum tt_job_kind kind, const void *spec,
                                        const struct tt_cancel *cancel, struct tt_world *world);

/* Makes the rank at `place` by its plan, of a configuration that all share, and loads `source`. Collective: ends on
 * every rank with the same status. After an error too the caller ends the rank (tt_rank_deinit). */
TT_MUST_USE tt_status tt_run_open_rank(const struct tt_rank_config *shared, const struct tt_plan *plan,
                                       struct tt_load_source source, const struct tt_cancel *cancel,
                                       const struct tt_world_rank *place, struct tt_rank *rank);

/* Memory of this process's GPUs that nobody uses yet, of the one with the least, by NVML; UINT64_MAX: not known. */
uint64_t tt_run_unused_memory(const struct tt_world *world);

#endif
