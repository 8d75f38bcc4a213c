/* Evaluation of a detector: losses, and mean average precision by the rules of COCO and of Open Images. The ranks share
 * the images, none is seen twice, and rank 0 counts; detections of an image do not depend on who else is evaluated.
 * Collective. */
#ifndef TT_INFER_DETECT_EVALUATOR_H
#define TT_INFER_DETECT_EVALUATOR_H

#include "detect/coco_map.h"
#include "infer/evaluator.h"

struct tt_detect_evaluator_config {
    const struct tt_detect_loader_config *loading; /* lent: of this rank, not in training order */
    double score_threshold;
    /* Sees all detections on rank 0, those of an image best first; NULL: nobody does. */
    void (*show)(void *context, const struct tt_map_detection *found, int64_t count);
    void *context;
};

/* Metrics are those of the objective "detection". `cancel` and `stopped`: as of tt_evaluate. */
TT_MUST_USE tt_status tt_detect_evaluate(struct tt_rank *rank,
                                         const struct tt_detect_evaluator_config *config,
                                         const struct tt_cancel *cancel, bool *stopped,
                                         struct tt_evaluation *result);

#endif
