/* The formats behind image/image.h. Internal to src/image. A build without a library has functions that refuse. */
#ifndef TT_IMAGE_CODEC_H
#define TT_IMAGE_CODEC_H

#include "image/image.h"

/* Encoded bytes, and what messages call them. */
struct tt_image_source {
    const void *data;
    size_t bytes;
    const char *origin;
    int64_t max_pixels;
};

/* TT_ERR_DATA for sizes of 0 or beyond the limit. */
TT_MUST_USE tt_status tt_image_check_size(const struct tt_image_source *source, uint64_t height,
                                          uint64_t width);
/* `rgb` NULL: only the size. Else it is allocated, and owned by the caller. */
TT_MUST_USE tt_status tt_jpeg_decode(const struct tt_image_source *source, int32_t *height, int32_t *width,
                                     uint8_t **rgb);
TT_MUST_USE tt_status tt_png_decode(const struct tt_image_source *source, int32_t *height, int32_t *width,
                                    uint8_t **rgb);

#endif
