/* Mean average precision as Open Images counts it (storage.googleapis.com/openimages/web/evaluation.html): the area
 * under the monotone precision-recall curve of each class (PASCAL VOC 2010) at an IoU of at least 0.5.
 *
 * - A class counts in an image only where people verified that it is there or that it is not, or where it has a box.
 * - A group-of box (`crowd` of a truth) is found by a detection with more than half of its area inside it: the best
 * such detection is right, the others are ignored; a group that nothing finds is a miss. - With a hierarchy of
 * classes, boxes and labels of a class count for its ancestors too (`tt_open_images_expand`). */
#ifndef TT_DETECT_OPEN_IMAGES_MAP_H
#define TT_DETECT_OPEN_IMAGES_MAP_H

#include "detect/coco_map.h"

/* A class that people checked in an image. */
struct tt_map_verified {
    int64_t image;
    int32_t label;
};

/* `verified` NULL: every class counts in every image. *map: the mean over classes that have truths, -1 without one;
 * `class_ap`: NULL, or [class_count], -1 for classes without truths. */
TT_MUST_USE tt_status tt_open_images_map_compute(const struct tt_map_input *input,
                                                 const struct tt_map_verified *verified,
                                                 int64_t verified_count, double *map, double *class_ap);

/* Adds to `truths` a copy of each box for every ancestor of its class: parents[label] is the class above, -1 at the
 * top. Returns owned memory in *expanded. */
TT_MUST_USE tt_status tt_open_images_expand(const struct tt_map_truth *truths, int64_t count,
                                            const int32_t *parents, int64_t class_count,
                                            struct tt_map_truth **expanded, int64_t *expanded_count);

#endif
