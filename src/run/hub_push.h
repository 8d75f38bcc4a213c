/* push_to_hub: a run's result in a repository of the hub, and by hub_strategy before it each checkpoint: its weights at
 * the root of the repository, and whole in a folder of it. The repository is made before the first step, so that a
 * wrong name or token ends the run there. A checkpoint goes while training continues; one that comes while an earlier
 * one still goes is left out. Where that fails, a line says so. A request to stop ends an upload. */
#ifndef TT_RUN_HUB_PUSH_H
#define TT_RUN_HUB_PUSH_H

#include "run/run_job.h"

struct tt_hub_push;

/* Rank 0. NULL in *out without push_to_hub. */
TT_MUST_USE tt_status tt_hub_push_open(const struct tt_run_job *job, struct tt_hub_push **out);
/* A checkpoint is complete in `folder`. Takes NULL. */
void tt_hub_push_saved(struct tt_hub_push *push, const char *folder, int64_t step);
/* Whether the checkpoint `folder` is on its way: `remove` is then called with it when it has arrived. Any thread; takes
 * NULL. */
bool tt_hub_push_defers(struct tt_hub_push *push, const char *folder,
                        tt_status (*remove)(const char *folder));
/* Waits for a checkpoint that is on its way, writes the card (README.md) and uploads the result: of a run that was
 * complete before what the hub lacks of it. Takes NULL. */
TT_MUST_USE tt_status tt_hub_push_result(struct tt_hub_push *push, const struct tt_train_summary *summary);
void tt_hub_push_close(struct tt_hub_push *push); /* takes NULL */

#endif
