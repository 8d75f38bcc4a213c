/* The first values of a new adapter that are computed of whole matrices (checkpoint/first_values.h): made by the
 * process of rank 0 where a run begins. run/resume.h reads them back from a checkpoint. */
#ifndef TT_RUN_FIRST_ADAPTER_H
#define TT_RUN_FIRST_ADAPTER_H

#include "run/run.h"

/* Whether they can be made, and what is saved of them be resumed; called before anything is written. */
TT_MUST_USE tt_status tt_first_adapter_check(const struct tt_run *run, const struct tt_model *model);
/* Collective over the processes; no effect where a run goes on, or where each rank draws its values. */
TT_MUST_USE tt_status tt_first_adapter_make(struct tt_run *run, struct tt_world *world);

#endif
