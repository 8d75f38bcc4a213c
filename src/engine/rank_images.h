/* The memory of a rank's micro batches of images. Internal to src/engine. */
#ifndef TT_ENGINE_RANK_IMAGES_H
#define TT_ENGINE_RANK_IMAGES_H

#include <stdatomic.h>

#include "engine/rank.h"
#include "engine/rehearsal.h"

/* Micro batches of images on their way to a device that is not the host: threads write them into page-locked pieces of
 * `ring`, and a stream of its own copies each into one of two slots, the next one while the passes read the last. */
enum { TT_IMAGE_SLOTS = 2 };
struct tt_image_upload {
    struct tt_buffer *ring; /* in a plan the memory of batches on the host too */
    atomic_bool lent[TT_IMAGE_SLOTS];
    struct tt_stream *stream; /* NULL where the device is the host */
    struct tt_event *filled[TT_IMAGE_SLOTS], *released[TT_IMAGE_SLOTS]; /* released: no pass reads the slot */
    int slot;                                                           /* that the passes read */
    const struct tt_detect_batch *ahead;                                /* in the other slot; NULL: none */
};

/* Owned by rank_images.c. */
struct tt_rank_images {
    struct tt_buffer *buffer; /* anchors, and where the device is not the host the slots */
    int64_t height, width;    /* the canvas of the anchors; 0: none yet */
    struct tt_image_upload upload;
    struct tt_rehearsals rehearsals;
};

#endif
