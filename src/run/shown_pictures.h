/* Pictures of an evaluation of a detector: the first images of the evaluation data by id, with annotated and found
 * boxes. They are in TensorBoard as PNG, and in output_dir/pictures as JPEG, which pictures.jsonl lists for the
 * dashboard. No number of the training depends on them, and a picture that cannot be made does not end it. Rank 0
 * only. */
#ifndef TT_RUN_SHOWN_PICTURES_H
#define TT_RUN_SHOWN_PICTURES_H

#include "detect/coco_map.h"
#include "run/record_file.h"

struct tt_run;

/* A zeroed struct shows nothing. */
struct tt_shown_pictures {
    struct tt_record_file *file; /* pictures.jsonl; NULL: no pictures */
    bool failed;                 /* a picture that could not be made was reported */
};

/* Opens output_dir/pictures.jsonl, with the lines up to the first step of the run, where the job has images to show. */
TT_MUST_USE tt_status tt_shown_pictures_open(struct tt_run *run);
void tt_shown_pictures_deinit(struct tt_shown_pictures *pictures);
/* Draws the pictures of the evaluation after `step`. `found`: all detections, those of an image best first. */
void tt_shown_pictures_draw(struct tt_run *run, int64_t step, const struct tt_map_detection *found,
                            int64_t count);

#endif
