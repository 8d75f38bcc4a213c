/* Pictures of an evaluation of a detector: the first images of the evaluation data by id, with annotated and found
 * boxes. They are in TensorBoard as PNG, and in output_dir/pictures as JPEG, which pictures.jsonl lists for the
 * dashboard. No number of the training depends on them, and a picture that cannot be made does not end it. Rank 0
 * only. */
#ifndef TT_RUN_SHOWN_PICTURES_H
#define TT_RUN_SHOWN_PICTURES_H

#include "detect/coco_map.h"
#include "run/record_file.h"

struct tt_detect_inputs;
struct tt_inputs;
struct tt_journal;

/* A zeroed struct shows nothing. */
struct tt_shown_pictures {
    struct tt_record_file *file;           /* pictures.jsonl; NULL: no pictures */
    bool failed;                           /* a picture that could not be made was reported */
    const struct tt_detect_inputs *inputs; /* lent, as are the others */
    const char *output_dir;
    struct tt_journal *journal;
};
struct tt_shown_pictures_config {
    const struct tt_inputs *inputs; /* of a detection; lent, as are the others */
    const char *output_dir;
    struct tt_journal *journal;
    int64_t first_step;
};

/* Opens output_dir/pictures.jsonl, with the lines up to the first step of the run, where the job has images to show. */
TT_MUST_USE tt_status tt_shown_pictures_open(const struct tt_shown_pictures_config *config,
                                             struct tt_shown_pictures *pictures);
void tt_shown_pictures_deinit(struct tt_shown_pictures *pictures);
/* Draws the pictures of the evaluation after `step`. `found`: all detections, those of an image best first. */
void tt_shown_pictures_draw(struct tt_shown_pictures *pictures, int64_t step,
                            const struct tt_map_detection *found, int64_t count);

#endif
