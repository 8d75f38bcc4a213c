/* A model that generates, over the ranks of a run: for generate, chat and serve. */
#ifndef TT_RUN_GENERATE_RUN_H
#define TT_RUN_GENERATE_RUN_H

#include "engine/plan.h"
#include "infer/generation_team.h"
#include "job/inputs.h"
#include "job/settings.h"
#include "job/spec.h"

/* Calls in the process of rank 0, but for `open`; `context` is the first argument. */
struct tt_generate_hooks {
    /* A model without a folder, with random weights, in every process; NULL: the model of the job. */
    tt_status (*open)(void *context, struct tt_inputs *inputs);
    /* The model's files are open: fills in slots (of each of `ranks` ranks), length and waiting. With slots_least the
     * run chooses: from slots, which may be any number, down to that. */
    tt_status (*prepare)(void *context, const struct tt_inputs *inputs, int ranks,
                         struct tt_generation_limits *limits);
    /* The plan that the ranks follow; NULL: not asked for. */
    tt_status (*planned)(void *context, const struct tt_plan *plan, enum tt_shard_strategy strategy);
    /* The model is loaded: on the thread of rank 0, which leads the team. */
    tt_status (*lead)(void *context, const struct tt_inputs *inputs, struct tt_generation_team *team);
    void *context;
};

/* The specification of the kind of job that runs, which begins with a struct tt_job_spec. */
struct tt_generate_call {
    enum tt_job_kind kind;
    const void *spec;
    bool chooses_sharding; /* no strategy was asked for */
};

/* Where no strategy was asked for, each rank holds the whole model if the plan fits, and else the ranks split it.
 * `cancel` is NULL or lent. Collective. */
TT_MUST_USE tt_status tt_generate_run_call(const struct tt_generate_call *call,
                                           const struct tt_cancel *cancel,
                                           const struct tt_generate_hooks *hooks);
TT_MUST_USE tt_status tt_generate_run(const struct tt_generate_spec *spec, const struct tt_cancel *cancel,
                                      const struct tt_generate_hooks *hooks);

#endif
