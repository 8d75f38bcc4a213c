/* Mean average precision as Open Images counts it (storage.googleapis.com/openimages/web/evaluation.html), and as
 * OpenImagesChallengeEvaluator of TensorFlow's object detection library does (per_image_evaluation.py, metrics.py): the
 * area under the monotone precision-recall curve of each class (PASCAL VOC 2010) at an IoU of at least 0.5.
 *
 * - A detection is compared with the box that it overlaps most, the first of equals, and it is right if nothing better
 *   has found that box.
 * - Else it is compared with the group-of box (`crowd` of a truth) that has most of its area, if that is at least half:
 *   the best detection of a group is right, others are ignored; a group that nothing finds is a miss.
 * - A class counts in an image only where people verified that it is there or that it is not, or where it has a box.
 * - With a hierarchy of classes, boxes and labels of a class count for the classes above it too (detect/hierarchy.h).
 *
 * Detections of equal score keep their order; the reference leaves it open. */
#ifndef TT_DETECT_OPEN_IMAGES_MAP_H
#define TT_DETECT_OPEN_IMAGES_MAP_H

#include "detect/hierarchy.h"

/* `verified` NULL: every class counts in every image. *map: the mean over classes that have truths, -1 without one;
 * `class_ap`: NULL, or [class_count], -1 for classes without truths. */
TT_MUST_USE tt_status tt_open_images_map_compute(const struct tt_map_input *input,
                                                 const struct tt_map_label *verified, int64_t verified_count,
                                                 double *map, double *class_ap);

#endif
