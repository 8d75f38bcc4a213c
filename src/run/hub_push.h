/* push_to_hub: a run's result in a repository of the hub, and with hub_strategy every_save each checkpoint before it.
 * The repository is made before the first step, so that a wrong name or token ends the run there. A checkpoint goes
 * while training continues, unless the one before it still does; where that fails, a line says so. */
#ifndef TT_RUN_HUB_PUSH_H
#define TT_RUN_HUB_PUSH_H

#include "run/run_job.h"

struct tt_hub_push;

/* Rank 0. NULL in *out without push_to_hub. */
TT_MUST_USE tt_status tt_hub_push_open(const struct tt_run_job *job, struct tt_hub_push **out);
/* A checkpoint is complete in `folder`. Takes NULL. */
void tt_hub_push_saved(struct tt_hub_push *push, const char *folder, int64_t step);
/* Waits for a checkpoint that is on its way, writes the card (README.md) and uploads the result. Takes NULL. */
TT_MUST_USE tt_status tt_hub_push_result(struct tt_hub_push *push, const struct tt_train_summary *summary);
void tt_hub_push_close(struct tt_hub_push *push); /* takes NULL */

#endif
