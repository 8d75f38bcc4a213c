/* The phases of a training step on the host's clock. Every moment between start and the last mark belongs to one phase,
 * so their sum is the time between them. On a device that queues its work (cuda) gather, forward, backward, reduce and
 * optimizer are times of queueing, and TT_PHASE_DEVICE is the wait for all of it. */
#ifndef TT_ENGINE_PHASES_H
#define TT_ENGINE_PHASES_H

#include <stddef.h>

#include "base/clock.h"

enum tt_phase {
    TT_PHASE_DATA,   /* make and upload the micro batches */
    TT_PHASE_GATHER, /* start gathers and wait for them */
    TT_PHASE_FORWARD,
    TT_PHASE_BACKWARD, /* with recompute */
    TT_PHASE_REDUCE,
    TT_PHASE_DEVICE, /* the host waits for the device */
    TT_PHASE_RANKS,  /* sums of all ranks: the wait for the slowest */
    TT_PHASE_OPTIMIZER,
    TT_PHASE_SAVE, /* training waits for a save */
    TT_PHASE_COUNT
};

typedef void tt_phase_sink(void *context, enum tt_phase phase, double start, double seconds);

struct tt_phases {
    double seconds[TT_PHASE_COUNT];
    double mark;         /* end of the last phase */
    tt_phase_sink *sink; /* called for each part of a phase; NULL: nobody */
    void *context;
};

static inline void tt_phases_start(struct tt_phases *phases)
{
    *phases = (struct tt_phases){.mark = tt_clock_seconds()};
}

/* The time since the last mark was `phase`. Takes NULL. */
static inline void tt_phases_end(struct tt_phases *phases, enum tt_phase phase)
{
    if (phases == NULL) return;
    double now = tt_clock_seconds();
    phases->seconds[phase] += now - phases->mark;
    if (phases->sink != NULL) phases->sink(phases->context, phase, phases->mark, now - phases->mark);
    phases->mark = now;
}

#endif
