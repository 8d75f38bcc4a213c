/* How long a run is, in optimizer steps. */
#ifndef TT_RUN_RUN_LENGTH_H
#define TT_RUN_RUN_LENGTH_H

#include <stdbool.h>
#include "job/parts.h"

struct tt_run_length {
    int64_t steps_per_epoch, total_steps;
    int64_t first_step;                            /* steps done by the earlier part of a resumed run */
    int64_t logging_steps, eval_steps, save_steps; /* intervals; 0: never */
};

/* A number of steps, which has no upper bound as a setting. */
int64_t tt_run_to_steps(double steps);
/* Sets the steps of all epochs, or max_steps. */
void tt_run_length_count(struct tt_run_length *length, const struct tt_run_spec *run,
                         int64_t steps_per_epoch);
/* Sets the intervals: shares of all steps become steps. */
void tt_run_length_resolve(struct tt_run_length *length, const struct tt_watch_spec *watch);
/* Whether something is to be done after `step`. */
bool tt_run_is_due(int64_t every, int64_t step);

#endif
