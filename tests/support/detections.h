/* Detections beside those of a reference. */
#ifndef TT_TESTS_SUPPORT_DETECTIONS_H
#define TT_TESTS_SUPPORT_DETECTIONS_H

#include <math.h>

#include "base/json.h"
#include "detect/detections.h"

static inline double test_iou(const struct tt_detection *a, const double b[4])
{
    double w = fmin(a->x2, b[2]) - fmax(a->x1, b[0]), h = fmin(a->y2, b[3]) - fmax(a->y1, b[1]);
    double both = fmax(w, 0) * fmax(h, 0), area = (double)(a->x2 - a->x1) * (a->y2 - a->y1);
    return both / (area + (b[2] - b[0]) * (b[3] - b[1]) - both);
}

/* Whether `got` is the reference's [label, score, x1, y1, x2, y2]. Boxes outside the image are clipped to nothing and
 * have no IoU: it is enough that no side is off by more than `side`. */
static inline bool test_detection_is(const struct tt_detection *got, const struct tt_json_value *row,
                                     double score, double side)
{
    double box[4];
    for (size_t j = 0; j < 4; j++) box[j] = tt_json_number(tt_json_at(row, 2 + j));
    double away = fmax(fmax(fabs(got->x1 - box[0]), fabs(got->y1 - box[1])),
                       fmax(fabs(got->x2 - box[2]), fabs(got->y2 - box[3])));
    return got->label == tt_json_integer(tt_json_at(row, 0)) &&
           fabs(got->score - tt_json_number(tt_json_at(row, 1))) <= score &&
           (test_iou(got, box) >= 0.9999 || away <= side);
}

#endif
