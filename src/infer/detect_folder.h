/* Detections of a folder of images, or of the images of tables: COCO's results, mean average precision where there are
 * annotations, pictures with boxes drawn. One process on its CPUs. */
#ifndef TT_INFER_DETECT_FOLDER_H
#define TT_INFER_DETECT_FOLDER_H

#include "base/thread.h"
#include "detect/dataset.h"
#include "detect/results.h"
#include "infer/detector.h"

struct tt_detect_folder_config {
    struct tt_detector_config detector;
    struct tt_detect_dataset_config data; /* of the images; unannotated_classes is set by `evaluate` */
    bool evaluate;                        /* the images have annotations to compare with */
    int64_t min_size, max_size;           /* of the shorter and the longer side */
    int64_t workers;                      /* threads that decode */
    uint64_t cache_bytes;                 /* of decoded pixels in data.cache_dir; 0: none */
    double score_threshold;
    const char *results_path; /* JSON; NULL: none */
    const char *picture_dir;  /* NULL: none */
    double picture_score;     /* of the boxes that are drawn */
    int64_t picture_count;    /* most pictures, the first by id */
};

struct tt_detect_summary {
    struct tt_detect_report data;
    int64_t detections, pictures;
    double seconds;                   /* of all passes, without loading */
    struct tt_detect_figures figures; /* with `evaluate` */
};

/* TT_ERR_CANCELLED after a request to stop. */
TT_MUST_USE tt_status tt_detect_folder(const struct tt_detect_folder_config *config,
                                       const struct tt_cancel *cancel, struct tt_detect_summary *summary);

#endif
