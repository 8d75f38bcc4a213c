/* training_state.json: what a checkpoint says of the run beside weights and moments (run/resume.h). */
#ifndef TT_RUN_RESUME_TEXT_H
#define TT_RUN_RESUME_TEXT_H

#include "run/memory.h"
#include "run/run.h"

/* Appends it after `step`. Rank 0 only. */
TT_MUST_USE tt_status tt_resume_text(const struct tt_run *run, const struct tt_rank *rank, int64_t step,
                                     const struct tt_memory *memory, struct tt_str *text);

#endif
