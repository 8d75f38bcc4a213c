/* Reports how far a long step is to the observer of a run, about once a second, from the phases of the step. */
#ifndef TT_RUN_STEP_PART_H
#define TT_RUN_STEP_PART_H

#include "engine/phases.h"
#include "trimtab.h"

struct tt_step_part {
    const struct tt_train_observer *observer; /* lent; NULL: no reports */
    double pieces;       /* of a step: blocks of its micro batches, backward is two pieces */
    tt_phase_sink *next; /* of this step, with next_context (lent) */
    void *next_context;
    struct tt_progress last; /* after the last step; seconds_left below 0: before the first one of this run */
    double start, reported_at; /* of the step; of the last report */
    double done;               /* pieces */
};

/* A step begins. `next`: NULL, or gets the phases of this step too. */
void tt_step_part_begin(struct tt_step_part *part, tt_phase_sink *next);
/* The sink of the step's phases; `context` is a tt_step_part. */
void tt_step_part_phase(void *context, enum tt_phase phase, double start, double seconds);

#endif
