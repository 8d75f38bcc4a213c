/* Evaluation: the metrics of the rank's objective over a data set. Collective. Logits are never kept: each row yields
 * its loss, whether its arg max was right, and its entropy. */
#ifndef TT_INFER_EVALUATOR_H
#define TT_INFER_EVALUATOR_H

#include "engine/rank.h"
#include "infer/by_source.h"

struct tt_evaluation {
    double metrics[TT_OBJECTIVE_METRICS_MAX]; /* of the objective; NaN when nothing is supervised */
    double loss;                              /* the first of them */
    int64_t samples;                          /* rows of the data */
    int64_t supervised_tokens, groups, steps;
    double seconds;
};

/* Runs one epoch of `sampler`, which has the evaluation data, not shuffled. `cancel`: NULL, or the first request ends
 * the evaluation: with TT_ERR_CANCELLED on this rank, or with `stopped` not NULL, and TT_OK, on all ranks after the
 * same batch, whichever of them has the request; *result is then not filled. `by_source`: of the same data set; its
 * list is filled. */
TT_MUST_USE tt_status tt_evaluate(struct tt_rank *rank, const struct tt_sampler *sampler,
                                  const struct tt_cancel *cancel, bool *stopped,
                                  struct tt_batch_storage *storage, struct tt_by_source *by_source,
                                  struct tt_evaluation *result);
/* Private to src/infer: before batch `done` of `all`, whether the evaluation ends here on request, as `cancel` and
 * `stopped` of tt_evaluate say. Collective. */
TT_MUST_USE tt_status tt_evaluation_poll(struct tt_rank *rank, const struct tt_cancel *cancel, int64_t done,
                                         int64_t all, bool *stopped);

#endif
