/* One optimizer step on one rank: micro batches, gradient norm, clipping, update. Collective.
 *
 * The denominator of the loss is the number of supervised tokens (or images) of the whole global step, counted before
 * the step, so the split over micro batches and ranks changes only the order of additions.
 */
#ifndef TT_ENGINE_STEP_H
#define TT_ENGINE_STEP_H

#include "engine/gradient_watch.h"
#include "engine/phases.h"
#include "optim/schedule.h"

struct tt_train_step_config {
    const struct tt_optim_config *optim;
    struct tt_feed *feed;           /* this rank's, lent */
    const struct tt_cancel *cancel; /* NULL or lent */
    uint64_t seed;
    double label_smoothing;
    double embedding_noise; /* alpha of NEFTune (nn/pass.h) */
    struct tt_schedule_length length;
    /* Called after the passes and before a value changes; may be NULL. */
    tt_status (*before_update)(void *context);
    void *context;
    bool save_failed;          /* this rank's part of a save failed; reported to the other ranks */
    tt_phase_sink *phase_sink; /* of the step's phases, with phase_context; NULL: nobody */
    void *phase_context;
};

struct tt_train_step_result {
    struct tt_step_facts facts;
    double metrics[TT_OBJECTIVE_METRICS_MAX]; /* of the objective, over the global step */
    double loss;                              /* the first of them */
    double aux_loss;                          /* that balances experts, without its coefficient */
    double grad_norm;                         /* before clipping */
    double learning_rate;                     /* used in this step */
    struct tt_phases phases;                  /* of this rank */
    bool stop_requested;                      /* by any rank */
    bool save_failed;                         /* on any rank */
};

/* Runs step number `index`, from 0. A non-finite loss or gradient is TT_ERR_DATA, with the block where it first
 * appeared. */
TT_MUST_USE tt_status tt_train_step(struct tt_rank *rank, const struct tt_train_step_config *config,
                                    int64_t index, struct tt_gradient_watch *watch,
                                    struct tt_train_step_result *result);

#endif
