/* Which images make which micro batch: a pure function of (data set, configuration, epoch). The split over ranks and
 * micro steps changes neither the images of a global step nor their order.
 *
 * Images of like shape share a micro step where that is possible: a portrait and a landscape need a canvas of 2.8
 * times the pixels of either. The groups are torchvision's (references/detection/group_by_aspect_ratio.py): borders of
 * width/height at 2^-1, 2^-2/3 ... 2^1. The rests of the groups at the end of an epoch are mixed. */
#ifndef TT_DETECT_ORDER_H
#define TT_DETECT_ORDER_H

#include "detect/dataset.h"

enum { TT_DETECT_MIN_SIZES_MAX = 16 };

/* Changes of an image before it enters the network. */
struct tt_detect_view {
    int min_size_count;
    /* of the shorter side; training draws one, evaluation takes the last */
    int min_sizes[TT_DETECT_MIN_SIZES_MAX];
    int max_size;                  /* of the longer side */
    int fixed_height, fixed_width; /* both or neither: exactly this size instead */
    double flip;                   /* probability of a horizontal flip; 0 in evaluation */
};

struct tt_detect_order_config {
    struct tt_detect_view view;
    int64_t batch_size; /* of a rank in a micro step */
    int world_size;
    int64_t accumulation; /* micro steps of a step */
    uint64_t seed;
    bool train;           /* shuffles, draws sizes and flips; false: by index, each image once */
    bool group_by_aspect; /* in training */
    bool own_canvas;      /* of a rank's images alone, and not of the micro step's on all ranks */
};

/* One epoch. Immutable: any number of threads may read it. */
struct tt_detect_order;
/* Borrows the data set. */
TT_MUST_USE tt_status tt_detect_order_create(const struct tt_detect_dataset *dataset,
                                             const struct tt_detect_order_config *config, int64_t epoch,
                                             struct tt_detect_order **out);
void tt_detect_order_destroy(struct tt_detect_order *order);        /* takes NULL */
int64_t tt_detect_order_steps(const struct tt_detect_order *order); /* the same in every epoch */

struct tt_detect_step_facts {
    int64_t micro_count, images;
    int64_t pixels; /* of their canvases */
};
struct tt_detect_step_facts tt_detect_order_step(const struct tt_detect_order *order, int64_t step);

/* The images of a rank in a micro step. Images that do not divide by the ranks are spread evenly. */
struct tt_detect_share {
    int64_t count;
    const int64_t *images; /* [count] indices in the data set; the order owns them */
    int64_t height, width; /* the canvas; of all ranks but with own_canvas */
};
struct tt_detect_share tt_detect_order_share(const struct tt_detect_order *order, int64_t step, int64_t micro,
                                             int rank);

/* How image `index` enters the network in an epoch: a function of (seed, epoch, index) only. */
struct tt_detect_placement {
    int32_t height, width; /* resized */
    bool flipped;
};
struct tt_detect_placement tt_detect_place(const struct tt_detect_record *record, int64_t index,
                                           const struct tt_detect_order_config *config, int64_t epoch);

/* The largest canvas (as pixels, and by side) and the most images and boxes of a rank's micro batch in any epoch, for
 * the memory plan. */
struct tt_detect_limits {
    int64_t images, boxes, pixels, height, width;
};
void tt_detect_order_limits(const struct tt_detect_dataset *dataset,
                            const struct tt_detect_order_config *config, struct tt_detect_limits *out);

#endif
