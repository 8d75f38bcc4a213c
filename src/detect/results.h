/* Detections as COCO's results in JSON, the input of mean average precision. */
#ifndef TT_DETECT_RESULTS_H
#define TT_DETECT_RESULTS_H

#include "base/str.h"
#include "detect/coco_map.h"
#include "detect/dataset.h"
#include "detect/detections.h"

/* [{"image_id": 1, "category_id": 2, "bbox": [x, y, width, height], "score": 0.9}, ...]. A zeroed struct is empty. */
struct tt_coco_results {
    struct tt_str text;
    int64_t count;
};
/* Adds the detections of one image, with the ids of the annotations. */
TT_MUST_USE tt_status tt_coco_results_add(struct tt_coco_results *results,
                                          const struct tt_detect_dataset *dataset, int64_t image_id,
                                          const struct tt_detection_list *list);
/* Writes the file, atomically. */
TT_MUST_USE tt_status tt_coco_results_write(struct tt_coco_results *results, const char *path);
void tt_coco_results_deinit(struct tt_coco_results *results);

/* Detections of one image as mean average precision takes them, in to[list->count]. */
void tt_map_detections_of(int64_t image_id, const struct tt_detection_list *list,
                          struct tt_map_detection *to);
/* All boxes of a data set, owned by the caller. */
TT_MUST_USE tt_status tt_map_truths_of(const struct tt_detect_dataset *dataset, struct tt_map_truth **truths,
                                       int64_t *count);

/* Both kinds of mean average precision; -1: there is no such box to find. */
struct tt_detect_figures {
    struct tt_coco_map coco;
    /* with the verified labels and the hierarchy of the data set, where it has them */
    double open_images_map_50;
};
/* Labels of the detections are below the data set's class count. */
TT_MUST_USE tt_status tt_detect_measure(const struct tt_detect_dataset *dataset,
                                        const struct tt_map_detection *found, int64_t count,
                                        struct tt_detect_figures *figures);

#endif
