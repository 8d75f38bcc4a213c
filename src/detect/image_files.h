/* Sizes of image files, read once: by header, or from a list in the cache folder while file size and time are the
 * same. Internal to src/detect. */
#ifndef TT_DETECT_IMAGE_FILES_H
#define TT_DETECT_IMAGE_FILES_H

#include "detect/annotations.h"

struct tt_image_facts {
    int64_t bytes, time; /* of the file; the time in nanoseconds */
    int32_t height, width;
    bool corrupt; /* only with skip_corrupt */
    bool decoded; /* as a whole, once, without a failure */
};

/* Facts of all images that have a file and are noted, in *facts[image_count], owned by the caller. Reports corrupt
 * files in notes->report. */
TT_MUST_USE tt_status tt_image_files_check(struct tt_annotations *notes,
                                           const struct tt_detect_dataset_config *config,
                                           struct tt_image_facts **facts);

/* Fails: the file has `height` x `width` pixels, and not those of the record, which `said` names ("the annotations
 * say"). Where the sides are exchanged, a hint names the file's Exif orientation. */
TT_MUST_USE tt_status tt_image_files_fail_size(const struct tt_detect_record *record, int32_t height,
                                               int32_t width, const char *said);

#endif
