/* An image file as it was listed: what the cache of pixels, the list of sizes and the threads that decode know of an
 * image. Boxes, texts and patches are their owners' matter. */
#ifndef TT_VISION_IMAGE_FILE_H
#define TT_VISION_IMAGE_FILE_H

#include <stdint.h>

struct tt_image_file {
    const char *path;      /* within a table: "FILE.parquet#12", its 12th row */
    const uint8_t *data;   /* within a table: the file's `bytes` bytes; NULL: it is at path */
    int64_t bytes, time;   /* the time is in nanoseconds; within a table that of the table */
    int32_t height, width; /* 0: unknown */
};

#endif
