/* Where annotations are: the usual names of Open Images, FiftyOne and COCO. Internal to src/detect. */
#ifndef TT_DETECT_LOCATE_H
#define TT_DETECT_LOCATE_H

#include "base/file.h"
#include "detect/dataset.h"

struct tt_detect_files {
    struct tt_path annotations, classes, labels; /* classes, labels: empty when there are none */
    bool coco;                                   /* JSON of COCO; else CSV of Open Images */
    bool split;                                  /* the annotations are those of the split alone */
};

TT_MUST_USE tt_status tt_detect_locate(const struct tt_detect_dataset_config *config,
                                       struct tt_detect_files *files);
/* A split's names as folder: 0 or 1. */
const char *tt_detect_split_folder(enum tt_detect_split split, int which);

#endif
