/* output_dir/run.json: what a run is and how it ended, for those who look at the folder: ranks, plan, settings with
 * their origins, state, error. Rank 0 only. A file that cannot be written is a warning. */
#ifndef TT_RUN_RUN_RECORD_H
#define TT_RUN_RUN_RECORD_H

#include "launch/world.h"
#include "run/run.h"

/* Whether the record in output_dir is of a run that did not end as it should: it was killed, or failed. */
bool tt_run_record_interrupted(const char *output_dir);
/* Called after the plan, before the first step. */
void tt_run_record_begin(struct tt_run *run, const struct tt_world *world);
/* Called after the last step, with the record of `status`. No effect where the run did not begin. */
void tt_run_record_end(struct tt_run *run, tt_status status);

#endif
