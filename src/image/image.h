/* Images as 8-bit red, green, blue: JPEG and PNG files, read with the pixels of PIL's Image.open(path).convert("RGB")
 * (the EXIF orientation is ignored). A build without the libraries refuses the files by name of the format. */
#ifndef TT_IMAGE_IMAGE_H
#define TT_IMAGE_IMAGE_H

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/str.h"

/* The default limit for the pixels of an image: a file that claims more is refused before memory is allocated. */
#define TT_IMAGE_PIXELS_MAX ((int64_t)178956970)

/* A zeroed struct is empty. */
struct tt_image {
    int32_t height, width;
    uint8_t *rgb; /* [height, width, 3], owned */
};
void tt_image_deinit(struct tt_image *image);
/* Black, height x width. */
TT_MUST_USE tt_status tt_image_create(int32_t height, int32_t width, struct tt_image *image);

/* A copy whose longer side has at most `longest` pixels, each the mean of those that it stands for. */
TT_MUST_USE tt_status tt_image_shrink(const struct tt_image *image, int32_t longest, struct tt_image *out);

/* Height and width from the head of a file, which is not decoded. */
TT_MUST_USE tt_status tt_image_size(const char *path, int64_t max_pixels, int32_t *height, int32_t *width);
/* Errors are TT_ERR_DATA with the path: a format other than JPEG and PNG, more than `max_pixels`, damage (also
 * missing data, of which libjpeg only warns and PIL says nothing). `max_pixels` 0: the default. */
TT_MUST_USE tt_status tt_image_read(const char *path, int64_t max_pixels, struct tt_image *image);
/* The same from memory; `origin` is for messages. */
TT_MUST_USE tt_status tt_image_decode(const void *data, size_t bytes, const char *origin, int64_t max_pixels,
                                      struct tt_image *image);
TT_MUST_USE tt_status tt_image_decode_size(const void *data, size_t bytes, const char *origin,
                                           int64_t max_pixels, int32_t *height, int32_t *width);

/* Exif's orientation of a JPEG or PNG file, 1 to 8: how a viewer turns the pixels, which are read as they are stored.
 * 1: as they are, also where the file says nothing or is damaged; 5 to 8 exchange height and width. */
int tt_image_orientation(const void *data, size_t bytes);

enum { TT_JPEG_SIDE_MAX = 65500 }; /* pixels of a side that libjpeg writes */
/* Writes a file, atomically: PNG, or JPEG of quality 90, by the name's ending (.png, .jpg, .jpeg). */
TT_MUST_USE tt_status tt_image_write(const char *path, const struct tt_image *image);
/* Appends the file's bytes. */
TT_MUST_USE tt_status tt_image_encode_png(const struct tt_image *image, struct tt_str *file);
TT_MUST_USE tt_status tt_image_encode_jpeg(const struct tt_image *image, int quality, struct tt_str *file);

#endif
