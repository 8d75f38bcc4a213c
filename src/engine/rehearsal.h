/* Convolutions before their first pass. A GPU compiles a kernel for each convolution of each new canvas of a detector,
 * and a pass that does so at each call takes minutes. So the pass runs on the plan device first, which only
 * records its convolutions, and the device prepares all of them at once (tt_conv2d_prepare). */
#ifndef TT_ENGINE_REHEARSAL_H
#define TT_ENGINE_REHEARSAL_H

#include "backend/ops/conv.h"
#include "engine/rank.h"

/* The properties of a pass that its convolutions depend on, besides the model. */
struct tt_canvas {
    int64_t images, height, width;
    bool trains; /* with a backward pass and the statistics of a training */
};

/* The canvases whose convolutions are prepared. */
struct tt_rehearsals {
    struct tt_canvas *items;
    size_t count, capacity;
};

/* Adds the convolutions of a pass of the rank's model. `stands_for`: the chip of the plan device. */
TT_MUST_USE tt_status tt_rehearse(const struct tt_rank *rank, const char *stands_for,
                                  const struct tt_canvas *canvas, struct tt_conv2d_requests *requests);

/* Prepares the convolutions of a canvas that is not among those of `known`, which then has it. No effect without
 * images, and where the device is the host. */
TT_MUST_USE tt_status tt_rehearsals_prepare(struct tt_rehearsals *known, const struct tt_rank *rank,
                                            const struct tt_canvas *canvas);
void tt_rehearsals_deinit(struct tt_rehearsals *rehearsals);

#endif
