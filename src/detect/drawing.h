/* Boxes drawn on pictures of a data set's images: those that were found, and those of the annotations. */
#ifndef TT_DETECT_DRAWING_H
#define TT_DETECT_DRAWING_H

#include "detect/dataset.h"
#include "detect/detections.h"
#include "image/image.h"

struct tt_box_style {
    double scale;          /* pixels of the picture for one of the image, whose boxes are in its own pixels */
    double min_score;      /* detections below it are not drawn */
    const uint8_t *colour; /* [3] of all boxes; NULL: one for each class */
};

/* Draws the detections, the best on top, each with name and score. Returns how many. */
int64_t tt_detections_draw(struct tt_image *image, const struct tt_detect_dataset *dataset,
                           const struct tt_detection_list *list, const struct tt_box_style *style);
/* Draws the annotated boxes of image `index`, each with its name below it. Returns how many. */
int64_t tt_truths_draw(struct tt_image *image, const struct tt_detect_dataset *dataset, int64_t index,
                       const struct tt_box_style *style);

#endif
