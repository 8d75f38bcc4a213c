/* The heads of RetinaNet (Lin et al. 2017, arXiv 1708.02002), shared by the levels of the pyramid: four convolutions
 * with relu (in the second version of torchvision's with a norm before it) and a last one, for classes and for boxes;
 * then matching and the losses (backend/ops/detection.h). `impl` of the block is a struct tt_detector_head.
 *
 * Forward adds the losses of the batch to its two sums (nn/pass.h), unless there are no anchors. When a backward pass
 * follows, it leaves the gradient of logits and deltas in their place. Kept for backward: these, and the outputs of the
 * four convolutions, before and after a norm. */
#ifndef TT_NN_DETECTOR_HEAD_H
#define TT_NN_DETECTOR_HEAD_H

#include "backend/ops/detection.h"
#include "nn/block.h"
#include "nn/feature.h"

enum { TT_TOWER_CONVS = 4 };

struct tt_tower {
    struct tt_conv convs[TT_TOWER_CONVS], last;
};

struct tt_detector_head {
    struct tt_tower classes, boxes;
    int64_t class_count; /* K: columns, the first of which has no class */
    float alpha, gamma;  /* focal loss: 0.25, 2 */
    float low, high;     /* overlaps below which anchors are background, above which foreground: 0.4, 0.5 */
    enum tt_box_loss box_loss;
    struct tt_feature_list in;
};

extern const struct tt_block_ops tt_detector_head_ops;

#endif
