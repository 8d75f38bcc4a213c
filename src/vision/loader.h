/* Makes the pixels of batches ahead of their use: threads decode, resize and normalise images into a ring of slots. The
 * owner says which images a batch has; the pixels are the same bits for any number of threads. */
#ifndef TT_VISION_LOADER_H
#define TT_VISION_LOADER_H

#include <stdbool.h>
#include <stddef.h>

#include "base/error.h"
#include "tensor/dtype.h"
#include "vision/image_file.h"
#include "vision/pixel_cache.h"

/* An image in a batch. Its file has the size that is expected: another one is an error. */
struct tt_image_place {
    const struct tt_image_file *file; /* lent until the batch is given back */
    int32_t height, width;            /* resized */
    bool flipped;                     /* horizontally */
};

/* The images of a batch: each at the first pixel of a canvas of its own, zero outside. */
struct tt_image_canvas {
    int64_t count, height, width;
    const struct tt_image_place *places; /* [count] */
    void *pixels; /* [count, height, width, channels]; written by the loader's threads */
};

struct tt_image_loader_config {
    int workers;          /* threads; at least 1 */
    int ahead;            /* finished batches that may wait; at least 1 */
    tt_dtype pixel_dtype; /* TT_F32 or TT_BF16 */
    int channels;
    int64_t max_pixels;           /* of an image file; 0: TT_IMAGE_PIXELS_MAX */
    struct tt_pixel_cache *cache; /* borrowed; NULL: none */
    /* Memory of the batches' pixels (page-locked, for copies to a GPU); NULL: the heap's. */
    void *(*allocate)(void *context, size_t bytes); /* NULL with the error record set */
    void (*release)(void *context, void *block);
    void *memory;
    /* Sets all of the next batch's canvas but its pixels, and whatever the owner keeps in slot `slot` for it. Called by
     * the loader's threads, one at a time. */
    tt_status (*open)(void *owner, int slot, struct tt_image_canvas *canvas);
    void *owner;
};

/* Slots of a ring: batches ahead and the one that is lent. */
int tt_image_loader_slots(int ahead);

struct tt_image_loader;
TT_MUST_USE tt_status tt_image_loader_create(const struct tt_image_loader_config *config,
                                             struct tt_image_loader **out);
/* The next batch and its slot, lent until the next call. An image that cannot be decoded is an error that names its
 * file; the call after it gives the next batch. */
TT_MUST_USE tt_status tt_image_loader_next(struct tt_image_loader *loader, int *slot,
                                           const struct tt_image_canvas **canvas);
/* Seconds that tt_image_loader_next has waited for threads. */
double tt_image_loader_waited(const struct tt_image_loader *loader);
void tt_image_loader_destroy(struct tt_image_loader *loader); /* takes NULL */

#endif
