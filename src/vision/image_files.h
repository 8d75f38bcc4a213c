/* Sizes of image files, read once: by header, or from a list in the cache folder while file size and time are the
 * same. */
#ifndef TT_VISION_IMAGE_FILES_H
#define TT_VISION_IMAGE_FILES_H

#include <stdbool.h>
#include <stddef.h>

#include "base/error.h"
#include "vision/image_file.h"

/* A file to check: path, and within a table data, bytes and time; height and width, where the annotations have them.
 * The check fills in the rest. */
struct tt_checked_image {
    struct tt_image_file file; /* path NULL: passed over */
    bool corrupt;              /* only with skip_corrupt */
    bool decoded;              /* as a whole, once, without a failure */
};

struct tt_pixel_cache;
struct tt_image_files_config {
    const char *cache_dir; /* the folder of the list; NULL: none is kept */
    /* decode every image once, and mark those that fail; else a failure is an error */
    bool skip_corrupt;
    struct tt_pixel_cache *cache; /* keeps the decoded images; borrowed; NULL: none */
    int64_t max_pixels;           /* of an image; 0: TT_IMAGE_PIXELS_MAX */
    int threads;
};

struct tt_image_files_report {
    int64_t corrupt;
    char first_corrupt[400]; /* the failure of the first of them */
};

TT_MUST_USE tt_status tt_image_files_check(const struct tt_image_files_config *config,
                                           struct tt_checked_image *images, size_t count,
                                           struct tt_image_files_report *report);

/* Fails: the file has `height` x `width` pixels, and not those of `file`, which `said` names ("the annotations say").
 * Where the sides are exchanged, a hint names the file's Exif orientation. */
TT_MUST_USE tt_status tt_image_files_fail_size(const struct tt_image_file *file, int32_t height,
                                               int32_t width, const char *said);

#endif
