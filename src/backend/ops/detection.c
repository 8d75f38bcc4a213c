#include "backend/ops/detection.h"

#include "backend/device_impl.h"
#include "backend/ops/check.h"

tt_status tt_anchor_match(struct tt_stream *stream, const struct tt_anchor_match_args *args)
{
    struct tt_check check = {.op = "anchor_match"};
    tt_check_tensor(&check, "match", args->match_NA, TT_TYPES_I32, 2, 2);
    tt_check_tensor(&check, "boxes", args->boxes_M4, TT_TYPES_F32, 2, 2);
    if (check.status != TT_OK) return check.status;
    int64_t images = args->match_NA.dims[0], anchors = args->match_NA.dims[1], boxes = args->boxes_M4.dims[0];
    tt_check_shape(&check, "anchors", args->anchors_A4, TT_TYPES_F32, 2, TT_DIMS(anchors, 4));
    tt_check_shape(&check, "boxes", args->boxes_M4, TT_TYPES_F32, 2, TT_DIMS(boxes, 4));
    tt_check_shape(&check, "offsets", args->offsets, TT_TYPES_I32, 1, TT_DIMS(images + 1));
    tt_check_shape(&check, "foreground", args->foreground_N, TT_TYPES_I32, 1, TT_DIMS(images));
    tt_check_shape(&check, "best", args->best_M, TT_TYPES_F32, 1, TT_DIMS(boxes));
    tt_check_contiguous(&check, "anchors", args->anchors_A4);
    tt_check_contiguous(&check, "boxes", args->boxes_M4);
    tt_check_contiguous(&check, "match", args->match_NA);
    tt_check_apart(&check, "best", args->best_M, "boxes", args->boxes_M4);
    tt_check_that(&check, args->low <= args->high, "low is %g, high %g", (double)args->low,
                  (double)args->high);
    if (check.status != TT_OK) return check.status;
    return tt_dispatch_anchor_match(stream, args);
}

/* Checks that both losses share: predictions of images x anchors in place, matches, the images' counts, one sum. */
static void check_loss(struct tt_check *check, tt_tensor rows_PK, int64_t row_anchors, tt_tensor match,
                       tt_tensor foreground, tt_tensor sums)
{
    int64_t each = row_anchors > 0 ? row_anchors : 1;
    tt_check_tensor(check, "match", match, TT_TYPES_I32, 2, 2);
    tt_check_tensor(check, "predictions", rows_PK, TT_TYPES_REAL, 2, 2);
    if (check->status != TT_OK) return;
    tt_check_shape(check, "predictions", rows_PK, TT_TYPES_REAL, 2,
                   TT_DIMS(match.dims[0] * match.dims[1] / each, rows_PK.dims[1]));
    tt_check_that(check, match.dims[1] % each == 0 && rows_PK.dims[1] % each == 0,
                  "%lld anchors with %lld columns in rows of %lld anchors", (long long)match.dims[1],
                  (long long)rows_PK.dims[1], (long long)each);
    tt_check_shape(check, "foreground", foreground, TT_TYPES_I32, 1, TT_DIMS(match.dims[0]));
    tt_check_shape(check, "sums", sums, TT_TYPES_F64, 1, TT_DIMS(1));
}

tt_status tt_focal_loss(struct tt_stream *stream, const struct tt_focal_loss_args *args)
{
    struct tt_check check = {.op = "focal_loss"};
    check_loss(&check, args->logits_PK, args->row_anchors, args->match_NA, args->foreground_N, args->sums);
    tt_check_tensor(&check, "labels", args->labels_M, TT_TYPES_I32, 1, 1);
    if (check.status != TT_OK) return check.status;
    return tt_dispatch_focal_loss(stream, args);
}

tt_status tt_box_loss(struct tt_stream *stream, const struct tt_box_loss_args *args)
{
    struct tt_check check = {.op = "box_loss"};
    int64_t each = args->row_anchors > 0 ? args->row_anchors : 1;
    check_loss(&check, args->deltas_P4, args->row_anchors, args->match_NA, args->foreground_N, args->sums);
    if (check.status != TT_OK) return check.status;
    tt_check_shape(&check, "deltas", args->deltas_P4, TT_TYPES_REAL, 2,
                   TT_DIMS(args->deltas_P4.dims[0], 4 * each));
    tt_check_shape(&check, "anchors", args->anchors_A4, TT_TYPES_F32, 2, TT_DIMS(args->match_NA.dims[1], 4));
    tt_check_tensor(&check, "boxes", args->boxes_M4, TT_TYPES_F32, 2, 2);
    tt_check_contiguous(&check, "anchors", args->anchors_A4);
    tt_check_contiguous(&check, "boxes", args->boxes_M4);
    if (check.status != TT_OK) return check.status;
    return tt_dispatch_box_loss(stream, args);
}
