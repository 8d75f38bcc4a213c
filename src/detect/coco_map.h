/* Mean average precision as COCO counts it: the numbers of pycocotools' COCOeval for boxes (cocoeval.py, maskApi.c), to
 * the last rounding of sums. */
#ifndef TT_DETECT_COCO_MAP_H
#define TT_DETECT_COCO_MAP_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"

/* Boxes are x, y, width, height in double. Images may be listed in any order; boxes of equal score keep theirs. */
struct tt_map_truth {
    int64_t image;
    int32_t label; /* 0 .. class_count - 1 */
    bool crowd;    /* detections inside it are neither right nor wrong */
    double x, y, w, h;
    double area; /* decides between small, medium and large: COCO's is that of the segment */
};
struct tt_map_detection {
    int64_t image;
    int32_t label;
    double x, y, w, h, score;
};

struct tt_map_input {
    const struct tt_map_truth *truths;
    int64_t truth_count;
    const struct tt_map_detection *detections;
    int64_t detection_count;
    int64_t class_count;
};

/* -1: there is no truth to find. Names are those of torchmetrics, in the order of COCOeval.stats. */
struct tt_coco_map {
    double map, map_50, map_75, map_small, map_medium, map_large;
    double mar_1, mar_10, mar_100, mar_small, mar_medium, mar_large;
};

/* `class_map` and `class_mar_100`: NULL, or [class_count] for the precision and recall of each class. */
TT_MUST_USE tt_status tt_coco_map_compute(const struct tt_map_input *input, struct tt_coco_map *out,
                                          double *class_map, double *class_mar_100);

#endif
