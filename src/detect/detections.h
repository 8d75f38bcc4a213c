/* Detections: from the outputs of the heads to at most 300 boxes an image, as torchvision's RetinaNet makes them
 * (models/detection/retinanet.py, postprocess_detections), on the host in fp32. Ties are by (score, index), which torch
 * leaves open, and boxes are suppressed class by class. */
#ifndef TT_DETECT_DETECTIONS_H
#define TT_DETECT_DETECTIONS_H

#include "base/error.h"
#include "detect/anchors.h"
#include "detect/batch.h"

struct tt_detection {
    float x1, y1, x2, y2; /* in pixels of the original image */
    float score;
    int32_t label;
};

struct tt_detections_config {
    int64_t class_count;     /* columns of the classifier */
    float score_threshold;   /* 0.05: a score must be larger */
    int64_t level_count_max; /* 1000: best of a level */
    float nms_threshold;     /* 0.5: a larger IoU with a better box of the class removes a box */
    int64_t count_max;       /* 300 */
};
struct tt_detections_config tt_detections_default(int64_t class_count);

/* The heads' outputs of one image at one level, on the host: rows of the grid's places. Channel a * K + k of a place is
 * the logit of anchor a and class k, channel a * 4 + j its delta j; further channels of a place are padding. */
struct tt_detect_outputs {
    const void *logits, *deltas;
    tt_dtype dtype;                       /* TT_F32, TT_BF16 or TT_F16, of both */
    int64_t logits_stride, deltas_stride; /* elements from place to place: at least 9 * K and 36 */
};

/* A zeroed struct is empty. */
struct tt_detection_list {
    struct tt_detection *items;
    int64_t count;
    size_t capacity;
};
void tt_detection_list_deinit(struct tt_detection_list *list);

/* The detections of one image, best first, in place of those in `list`. */
TT_MUST_USE tt_status tt_detections_make(const struct tt_detections_config *config,
                                         const struct tt_anchor_grid *grid,
                                         const struct tt_detect_outputs outputs[TT_ANCHOR_LEVELS],
                                         const struct tt_detect_image *image, struct tt_detection_list *list);

#endif
