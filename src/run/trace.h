/* A trace of a few steps of a rank, in the format of Chrome's tracing, which Perfetto reads: a row of the step's
 * phases on the host, and rows of the ops of the device's streams. Rank 0 writes output_dir/trace.json, every other
 * rank output_dir/ranks/trace-N.json. A trace that cannot be kept or written is a warning. */
#ifndef TT_RUN_TRACE_H
#define TT_RUN_TRACE_H

#include "backend/profile.h"
#include "base/str.h"
#include "engine/phases.h"

/* Steps before the traced ones, so that they are as all later ones; and how many are traced. */
enum { TT_TRACE_SKIPPED = 2, TT_TRACE_STEPS = 3 };

struct tt_trace {
    const char *output_dir; /* lent */
    int rank;
    bool records, written;
    bool failed; /* memory ran out */
    double origin;
    struct tt_str events;
};

void tt_trace_init(struct tt_trace *trace, int rank, const char *output_dir);
/* Call before step `number`, counted from 0 in this process, of a device that profiles. */
void tt_trace_step(struct tt_trace *trace, struct tt_device *device, int64_t number);
/* The phases of the next step: NULL while nothing is recorded. */
tt_phase_sink *tt_trace_phases(const struct tt_trace *trace);
/* Writes what was recorded, if that did not happen yet. */
void tt_trace_close(struct tt_trace *trace, struct tt_device *device);

#endif
