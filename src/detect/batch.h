/* Micro batches of images in host memory, for the training of a detector. Boxes are x1, y1, x2, y2 in pixels of the
 * resized image, whose first pixel is at the canvas' first; everything right of and below an image is zero. */
#ifndef TT_DETECT_BATCH_H
#define TT_DETECT_BATCH_H

#include <stdbool.h>
#include <stdint.h>

#include "tensor/dtype.h"

/* Red, green, blue, and five zeros: convolutions of 8 channels need no padded copy. Canvases are whole multiples. */
enum { TT_DETECT_CHANNELS = 8, TT_DETECT_CANVAS_MULTIPLE = 32 };

struct tt_detect_image {
    int64_t index;         /* in the data set */
    int64_t id;            /* of the annotations: what results name */
    int32_t height, width; /* resized */
    int32_t original_height, original_width;
    bool flipped;
};

struct tt_detect_batch {
    int64_t epoch, step, micro; /* step counts from the start of the run */
    int64_t micro_count;        /* micro steps of this step, the same on all ranks */
    int64_t step_images;        /* images of the whole global step: the denominator of the losses */
    int64_t image_count; /* N; 0: this rank has no images in this micro step, but joins its collectives */
    /* The canvas: the largest resized image of the whole global micro step, rounded up; the same on all ranks. */
    int64_t height, width;
    tt_dtype pixel_dtype;                 /* TT_F32 or TT_BF16 */
    const void *pixels;                   /* [N, height, width, 8], normalised; zero outside the images */
    const struct tt_detect_image *images; /* [N] */
    int64_t box_count;                    /* M */
    const int32_t *offsets;               /* [N + 1]: boxes of image n are offsets[n] .. offsets[n + 1] - 1 */
    const float *boxes;                   /* [M, 4] */
    const int32_t *labels;                /* [M] below the number of classes of the data set */
};

#endif
