/* Resizing of 8-bit pixels to the input of a detector (torchvision, models/detection/transform.py): u8 / 255, minus
 * mean, divided by deviation, then bilinear without antialiasing and without aligned corners, in fp32. */
#ifndef TT_IMAGE_RESIZE_H
#define TT_IMAGE_RESIZE_H

#include <stdbool.h>
#include <stdint.h>

#include "image/image.h"
#include "tensor/dtype.h"

/* The size of an image whose shorter side becomes `min_size`, unless the longer one would exceed `max_size`. */
void tt_image_resized_size(int32_t height, int32_t width, int32_t min_size, int32_t max_size,
                           int32_t *out_height, int32_t *out_width);

/* Where resized pixels go: rows of pixels of `channels` (at least 3) values; only the first three are written. */
struct tt_image_target {
    void *pixels;
    tt_dtype dtype;     /* TT_F32 or TT_BF16 (rounded from fp32) */
    int64_t row_stride; /* elements from row to row */
    int64_t channels;
    int32_t height, width; /* of the resized image */
    bool flipped;          /* horizontally, before resizing */
};
/* `rgb` is [height, width, 3]. */
TT_MUST_USE tt_status tt_image_normalize_resize(const uint8_t *rgb, int32_t height, int32_t width,
                                                const struct tt_image_target *target);

#endif
