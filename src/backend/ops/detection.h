/* Anchors against boxes, and the losses of a detector's heads (RetinaNet: Lin et al. 2017, arXiv 1708.02002), with the
 * arithmetic of torchvision's models/detection (_utils.py: Matcher, BoxCoder; retinanet.py), in fp32.
 *
 * Boxes are x1, y1, x2, y2. The boxes of image n are offsets[n] .. offsets[n + 1] - 1 of all boxes of the batch. */
#ifndef TT_BACKEND_OPS_DETECTION_H
#define TT_BACKEND_OPS_DETECTION_H

#include "backend/device.h"
#include "tensor/tensor.h"

enum { TT_MATCH_BACKGROUND = -1, TT_MATCH_IGNORED = -2 };
#define TT_BOX_LOG_MAX 4.135166556742356f /* ln(1000 / 16) */
#define TT_GIOU_EPS 1e-7f

/* The number of the box within the batch for each image and anchor, or one of the two above. The best box of an anchor
 * is the first with the largest intersection over union; below `low` it is background, below `high` ignored. Then every
 * anchor that has the largest overlap of some box (all ties, and an overlap of 0 too) gets back its own best box. */
struct tt_anchor_match_args {
    tt_tensor anchors_A4; /* f32 */
    tt_tensor boxes_M4;   /* f32; M may be 0 */
    tt_tensor offsets;    /* i32 [images + 1] */
    float low, high;
    tt_tensor match_NA;     /* i32 */
    tt_tensor foreground_N; /* i32: anchors with a box */
    tt_tensor best_M;       /* f32, scratch: the largest overlap of each box */
};
TT_MUST_USE tt_status tt_anchor_match(struct tt_stream *stream, const struct tt_anchor_match_args *args);

/* Predictions of both losses are rows of places, each of `row_anchors` anchors (0 is 1), one after the other; row q has
 * anchors q * row_anchors and following of the P = images * the level's anchors. Rows may be strided. */

/* Sigmoid focal loss of the anchors of one level that are not ignored, over all K columns; the target is 1 in the
 * column of the matched box's label. With w[n] = weight / max(1, foreground[n]):
 *     sums[0] += sum of w[n] * L;   logits become w[n] * dL/dlogit (0 where ignored), unless `gradient` is false.
 * The sum is fp64, in fixed groups. */
struct tt_focal_loss_args {
    tt_tensor logits_PK; /* f32 | bf16, in place: [P / row_anchors, row_anchors * K] */
    int64_t row_anchors;
    tt_tensor match_NA;     /* the level's columns: rows strided */
    tt_tensor labels_M;     /* i32 */
    tt_tensor foreground_N; /* i32 */
    float alpha, gamma, weight;
    bool gradient;
    tt_tensor sums; /* f64 [1], device memory */
};
TT_MUST_USE tt_status tt_focal_loss(struct tt_stream *stream, const struct tt_focal_loss_args *args);

enum tt_box_loss { TT_BOX_L1, TT_BOX_SMOOTH_L1, TT_BOX_GIOU }; /* smooth: beta is 1 */
/* Loss of the encoded boxes of anchors with a box, weighted as in tt_focal_loss. L1: the sum over four of
 * |delta - target|, target = ((gx - ax) / aw, (gy - ay) / ah, ln(gw / aw), ln(gh / ah)) of centres and sides.
 * GIoU (Rezatofighi et al. 2019, arXiv 1902.09630): with the box that the deltas mean (the logarithms of its sides at
 * most ln(1000 / 16)), intersection I, union U and the area C of the smallest box around both,
 *     1 - I / (U + 1e-7) + (C - U) / (C + 1e-7)
 * Where two sides are equal, each has half of the gradient, as in torch. */
struct tt_box_loss_args {
    enum tt_box_loss kind;
    tt_tensor deltas_P4; /* f32 | bf16, in place: [P / row_anchors, row_anchors * 4] */
    int64_t row_anchors;
    tt_tensor anchors_A4; /* f32, the level's rows */
    tt_tensor match_NA;
    tt_tensor boxes_M4;
    tt_tensor foreground_N;
    float weight;
    bool gradient;
    tt_tensor sums;
};
TT_MUST_USE tt_status tt_box_loss(struct tt_stream *stream, const struct tt_box_loss_args *args);

#endif
