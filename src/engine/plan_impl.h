/* Private header of the files of a plan: plan.c (device, levels of the blocks), plan_attempt.c (a rank on the plan
 * device), plan_advice.c (changes that make a run fit). */
#ifndef TT_ENGINE_PLAN_IMPL_H
#define TT_ENGINE_PLAN_IMPL_H

#include "engine/plan.h"

/* A rank to run on the plan device. */
struct tt_plan_attempt {
    struct tt_rank_config rank;
    struct tt_plan_ranks ranks;
    int64_t micro_steps;
    struct tt_batch_limits train, eval;
};

/* plan_attempt.c: runs one step and one evaluation of the rank on the plan device, with the levels of `plan`, and fills
 * the members of `plan` that follow from them: memory, time, whether it fits. */
TT_MUST_USE tt_status tt_plan_run(const struct tt_plan_attempt *attempt, struct tt_plan *plan);
/* plan.c: chooses the levels of the blocks, and runs them. Splits the vocabulary only where nothing else fits, and only
 * if it fits then. */
TT_MUST_USE tt_status tt_plan_choose(const struct tt_plan_attempt *attempt, struct tt_plan *plan);
/* plan_advice.c: tries changes of an attempt that does not fit, each alone, then several together, and writes the
 * successful ones to plan->advice. */
TT_MUST_USE tt_status tt_plan_advise(const struct tt_plan_attempt *tight, struct tt_plan *plan);

#endif
