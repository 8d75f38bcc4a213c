/* Decoded pixels of images in files, bounded by a number of bytes: an image is decoded once for all epochs and runs. A
 * file is named by a sum of path, size and time of the image; it is written under another name and renamed. A damaged
 * or missing file costs a decoding, a full disk one line of the log. Thread safe. */
#ifndef TT_VISION_PIXEL_CACHE_H
#define TT_VISION_PIXEL_CACHE_H

#include <stdint.h>

#include "base/error.h"
#include "image/image.h"
#include "vision/image_file.h"

struct tt_pixel_cache;
/* Creates `folder`/pixels. `bytes`: the most that all files in it may have; older ones stay, new ones are not added. */
TT_MUST_USE tt_status tt_pixel_cache_open(const char *folder, uint64_t bytes, struct tt_pixel_cache **out);
void tt_pixel_cache_close(struct tt_pixel_cache *cache); /* takes NULL */
/* The pixels of a file, from the cache or decoded and added. `cache` may be NULL. */
TT_MUST_USE tt_status tt_pixel_cache_read(struct tt_pixel_cache *cache, const struct tt_image_file *file,
                                          int64_t max_pixels, struct tt_image *image);

struct tt_pixel_cache_counts {
    int64_t hits, misses, bytes;
};
struct tt_pixel_cache_counts tt_pixel_cache_counts(const struct tt_pixel_cache *cache);

#endif
