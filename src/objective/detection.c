/* Detection: the losses of a detector's heads, each a mean over the images of the step, and mean average precision.
 * The heads add their losses on the device (nn/detector_head.h); precision comes from the detections of a whole
 * evaluation (infer/detect_evaluator.h), under torchmetrics' names. -1: there is no such box to find. */
#include "objective/objective.h"

/* Metrics in the order of struct tt_detect_figures after the losses. */
enum { CLASSIFICATION, BOX_REGRESSION, BOTH, MAP };

#define PRECISION(name, place)                                                                               \
    {                                                                                                        \
        name, MAP + (place), TT_OVER_NOTHING, TT_BETTER_GREATER                                              \
    }

static const struct tt_metric metrics[] = {
    {"loss", BOTH, TT_OVER_NOTHING, TT_BETTER_SMALLER},
    {"classification", CLASSIFICATION, TT_OVER_NOTHING, TT_BETTER_SMALLER},
    {"bbox_regression", BOX_REGRESSION, TT_OVER_NOTHING, TT_BETTER_SMALLER},
    PRECISION("map", 0),
    PRECISION("map_50", 1),
    PRECISION("map_75", 2),
    PRECISION("map_small", 3),
    PRECISION("map_medium", 4),
    PRECISION("map_large", 5),
    PRECISION("mar_1", 6),
    PRECISION("mar_10", 7),
    PRECISION("mar_100", 8),
    PRECISION("mar_small", 9),
    PRECISION("mar_medium", 10),
    PRECISION("mar_large", 11),
    PRECISION("open_images_map_50", 12),
};

static const char *const pass_sums[] = {"classification", "bbox_regression", NULL};

static void derive(double sums[TT_OBJECTIVE_SUMS])
{
    sums[BOTH] = sums[CLASSIFICATION] + sums[BOX_REGRESSION];
}

const struct tt_objective_ops tt_objective_detection = {
    .name = "detection",
    .metrics = metrics,
    .metric_count = sizeof metrics / sizeof *metrics,
    .step_metric_count = 3,
    .unit = TT_COUNT_IMAGES,
    .evaluates_outputs = true,
    .pass_sums = pass_sums,
    .derive = derive,
};
