#include "nn/detector_head.h"

#include "nn/group_norm.h"

/* One tower at one level. */
struct branch {
    tt_tensor y[TT_TOWER_CONVS], last;
    struct tt_group_norm_kept norms[TT_TOWER_CONVS];
};

struct saved {
    struct branch classes[TT_PYRAMID_LEVELS], boxes[TT_PYRAMID_LEVELS];
};

struct matches {
    tt_tensor match_NA, foreground_N;
    int64_t first; /* anchor of the level */
};

static const struct tt_detector_head *head_of(const struct tt_block *block)
{
    return block->impl;
}

static void output(const struct tt_block *block, const struct tt_pass *pass, int64_t dims[2])
{
    (void)block, (void)pass;
    dims[0] = dims[1] = 0;
}

static struct tt_image_shape shape_of(const struct tt_detector_head *head, const struct tt_pass *pass,
                                      int level)
{
    return tt_feature_shape(head->in.items[level].level, pass->in.batch->images);
}

static tt_status push(const struct tt_pass *pass, struct tt_image_shape shape, int64_t channels,
                      tt_tensor *y_PC)
{
    return tt_workspace_2d(pass->lent.workspace, "a head's outputs", pass->in.compute_dtype,
                           tt_image_pixels(shape), channels, y_PC);
}

static tt_status forward_tower(const struct tt_tower *tower, const struct tt_pass *pass,
                               struct tt_image_shape shape, tt_tensor x_PC, bool keeps, struct branch *branch)
{
    const tt_tensor none = {0};
    TT_TRY(push(pass, shape, tower->last.out, &branch->last));
    size_t mark = tt_workspace_mark(pass->lent.workspace);
    for (int i = 0; i < TT_TOWER_CONVS; i++) {
        TT_TRY(push(pass, shape, tower->convs[i].out, &branch->y[i]));
        TT_TRY(tt_conv_group_forward(&tower->convs[i], pass, shape, x_PC, branch->y[i],
                                     keeps ? &branch->norms[i] : NULL));
        x_PC = branch->y[i];
    }
    TT_TRY(tt_conv_forward(&tower->last, pass, shape, x_PC, none, branch->last));
    if (!keeps) tt_workspace_release(pass->lent.workspace, mark);
    return TT_OK;
}

static tt_status match_anchors(const struct tt_detector_head *head, const struct tt_pass *pass,
                               struct matches *matches)
{
    const struct tt_device_images *images = pass->in.batch->images;
    struct tt_workspace *workspace = pass->lent.workspace;
    struct tt_anchor_match_args args = {.anchors_A4 = images->anchors_A4,
                                        .boxes_M4 = images->boxes_M4,
                                        .offsets = images->offsets,
                                        .low = head->low,
                                        .high = head->high};
    TT_TRY(tt_workspace_2d(workspace, "matches", TT_I32, images->count, images->anchors_A4.dims[0],
                           &args.match_NA));
    TT_TRY(tt_workspace_1d(workspace, "anchors with a box", TT_I32, images->count, &args.foreground_N));
    TT_TRY(tt_workspace_1d(workspace, "best overlaps", TT_F32, images->boxes_M4.dims[0], &args.best_M));
    *matches = (struct matches){.match_NA = args.match_NA, .foreground_N = args.foreground_N};
    return tt_anchor_match(pass->lent.stream, &args);
}

/* Rows of places with nine anchors each, as rows of anchors. */
static tt_tensor by_anchor(tt_tensor rows, int64_t columns)
{
    return tt_tensor_2d(rows.data, rows.dtype, tt_tensor_count(rows) / columns, columns);
}

static tt_status run_losses(const struct tt_detector_head *head, const struct tt_pass *pass,
                            struct matches *matches, const struct branch *classes, const struct branch *boxes)
{
    const struct tt_device_images *images = pass->in.batch->images;
    int64_t anchors = tt_tensor_count(boxes->last) / 4 / images->count;
    tt_tensor match = tt_tensor_cols(matches->match_NA, matches->first, anchors);
    struct tt_focal_loss_args focal = {.logits_PK = by_anchor(classes->last, head->class_count),
                                       .match_NA = match,
                                       .labels_M = images->labels_M,
                                       .foreground_N = matches->foreground_N,
                                       .alpha = head->alpha,
                                       .gamma = head->gamma,
                                       .weight = images->weight,
                                       .gradient = pass->in.gradient,
                                       .sums = tt_tensor_rows(images->sums, 0, 1)};
    struct tt_box_loss_args box = {.kind = head->box_loss,
                                   .deltas_P4 = by_anchor(boxes->last, 4),
                                   .anchors_A4 = tt_tensor_rows(images->anchors_A4, matches->first, anchors),
                                   .match_NA = match,
                                   .boxes_M4 = images->boxes_M4,
                                   .foreground_N = matches->foreground_N,
                                   .weight = images->weight,
                                   .gradient = pass->in.gradient,
                                   .sums = tt_tensor_rows(images->sums, 1, 1)};
    matches->first += anchors;
    TT_TRY(tt_focal_loss(pass->lent.stream, &focal));
    return tt_box_loss(pass->lent.stream, &box);
}

static tt_status forward(struct tt_block *block, const struct tt_pass *pass, tt_tensor x_TD, void *record,
                         tt_tensor y_TD)
{
    (void)y_TD;
    const struct tt_detector_head *head = head_of(block);
    struct saved own, *saved = record != NULL ? record : &own;
    struct matches matches = {0};
    bool losses = !tt_tensor_is_empty(pass->in.batch->images->anchors_A4);
    if (losses) TT_TRY(match_anchors(head, pass, &matches));
    for (int level = 0; level < head->in.count; level++) {
        struct tt_image_shape shape = shape_of(head, pass, level);
        tt_tensor x = tt_feature_view(x_TD, &head->in, level, pass->in.batch->images);
        struct branch *classes = &saved->classes[level], *boxes = &saved->boxes[level];
        size_t mark = tt_workspace_mark(pass->lent.workspace);
        TT_TRY(forward_tower(&head->classes, pass, shape, x, record != NULL, classes));
        TT_TRY(forward_tower(&head->boxes, pass, shape, x, record != NULL, boxes));
        if (losses) TT_TRY(run_losses(head, pass, &matches, classes, boxes));
        if (pass->in.want_logits) {
            pass->out->class_logits[level] = classes->last;
            pass->out->box_deltas[level] = boxes->last;
            continue;
        }
        if (record == NULL) tt_workspace_release(pass->lent.workspace, mark);
    }
    return TT_OK;
}

static tt_status backward_tower(const struct tt_tower *tower, const struct tt_pass *pass,
                                struct tt_image_shape shape, const struct branch *branch, tt_tensor x_PC,
                                tt_tensor dx_PC, bool add)
{
    size_t mark = tt_workspace_mark(pass->lent.workspace);
    tt_tensor d[2];
    for (int i = 0; i < 2; i++) TT_TRY(push(pass, shape, tower->last.in, &d[i]));
    struct tt_conv_backward last = {
        .shape = shape, .x_PC = branch->y[TT_TOWER_CONVS - 1], .dy_QO = branch->last, .dx_PC = d[0]};
    TT_TRY(tt_conv_run_backward(&tower->last, pass, &last));
    for (int i = TT_TOWER_CONVS - 1, from = 0; i >= 0; i--, from = !from) {
        struct tt_conv_backward args = {.shape = shape,
                                        .x_PC = i > 0 ? branch->y[i - 1] : x_PC,
                                        .y_QO = branch->y[i],
                                        .dy_QO = d[from],
                                        .dx_PC = i > 0 ? d[!from] : dx_PC,
                                        .add_x = i == 0 && add};
        TT_TRY(tt_conv_group_backward(&tower->convs[i], pass, &branch->norms[i], &args));
    }
    tt_workspace_release(pass->lent.workspace, mark);
    return TT_OK;
}

static tt_status backward(struct tt_block *block, const struct tt_pass *pass, tt_tensor x_TD,
                          const void *record, tt_tensor dy_TD, tt_tensor dx_TD)
{
    (void)dy_TD;
    const struct tt_detector_head *head = head_of(block);
    const struct saved *saved = record;
    for (int level = 0; level < head->in.count; level++) {
        struct tt_image_shape shape = shape_of(head, pass, level);
        tt_tensor x = tt_feature_view(x_TD, &head->in, level, pass->in.batch->images);
        tt_tensor dx = tt_feature_view(dx_TD, &head->in, level, pass->in.batch->images);
        TT_TRY(backward_tower(&head->classes, pass, shape, &saved->classes[level], x, dx, false));
        TT_TRY(backward_tower(&head->boxes, pass, shape, &saved->boxes[level], x, dx, true));
    }
    return TT_OK;
}

static double flops(const struct tt_block *block, double length, bool full)
{
    const struct tt_detector_head *head = head_of(block);
    const struct tt_tower *towers[] = {&head->classes, &head->boxes};
    double sum = 0;
    for (int level = 0; level < head->in.count; level++) {
        double places = tt_feature_places(head->in.items[level].level, length);
        for (int t = 0; t < 2; t++) {
            for (int i = 0; i < TT_TOWER_CONVS; i++) sum += tt_conv_flops(&towers[t]->convs[i], places, full);
            sum += tt_conv_flops(&towers[t]->last, places, full);
        }
    }
    return sum;
}

const struct tt_block_ops tt_detector_head_ops = {
    .kind = "detector head",
    .saved_bytes = sizeof(struct saved),
    .forward = forward,
    .output = output,
    .backward = backward,
    .visit_linears = tt_feature_visit_linears,
    .flops = flops,
};
