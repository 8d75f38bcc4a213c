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
    return tt_feature_shape(head->in.items[level].level, tt_pass_images(pass));
}

static tt_status push(const struct tt_pass *pass, struct tt_image_shape shape, int64_t channels,
                      tt_tensor *y_PC)
{
    return tt_workspace_2d(pass->lent.workspace, "a head's outputs", pass->in.compute_dtype,
                           tt_image_pixels(shape), channels, y_PC);
}

/* Rows of whole groups of channels, except on processors, which do not need them. */
static tt_status push_predictions(const struct tt_tower *tower, const struct tt_pass *pass,
                                  struct tt_image_shape shape, tt_tensor *y_PC)
{
    int64_t columns = tower->last.out;
    bool host = tt_device_is_host(tt_stream_device(pass->lent.stream));
    TT_TRY(push(pass, shape, host ? columns : tt_conv_grouped(columns), y_PC));
    *y_PC = tt_tensor_cols(*y_PC, 0, columns);
    return TT_OK;
}

/* The levels of a pyramid that run together, convolution by convolution: a device prepares parameters once. On
 * processors, where that costs nothing and gradients would take more memory, levels run one by one. */
struct levels {
    int count;
    struct tt_image_shape shapes[TT_PYRAMID_LEVELS];
    tt_tensor x[TT_PYRAMID_LEVELS], dx[TT_PYRAMID_LEVELS];
};

static int levels_together(const struct tt_detector_head *head, const struct tt_pass *pass)
{
    return tt_device_is_host(tt_stream_device(pass->lent.stream)) ? 1 : head->in.count;
}

static struct levels take_levels(const struct tt_detector_head *head, const struct tt_pass *pass,
                                 tt_tensor x_TD, tt_tensor dx_TD, int first, int count)
{
    const struct tt_attachment *images = tt_pass_images(pass);
    struct levels levels = {.count = count};
    for (int i = 0; i < count; i++) {
        levels.shapes[i] = shape_of(head, pass, first + i);
        levels.x[i] = tt_feature_view(x_TD, &head->in, first + i, images);
        levels.dx[i] = tt_feature_view(dx_TD, &head->in, first + i, images);
    }
    return levels;
}

/* Convolution i with its norm; `branches` keep what backward reads, NULL: nothing follows. */
static tt_status forward_norms(const struct tt_conv *conv, const struct tt_pass *pass,
                               const struct tt_conv_item *items, int count, struct branch *branches, int i)
{
    for (int l = 0; l < count; l++)
        TT_TRY(tt_conv_group_forward(conv, pass, items[l].shape, items[l].x_PC, items[l].y_QO,
                                     branches != NULL ? &branches[l].norms[i] : NULL));
    return TT_OK;
}

/* `branches`: of the levels. */
static tt_status forward_tower(const struct tt_tower *tower, const struct tt_pass *pass,
                               const struct levels *levels, bool keeps, struct branch *branches)
{
    struct tt_conv_item items[TT_PYRAMID_LEVELS];
    for (int l = 0; l < levels->count; l++) {
        TT_TRY(push_predictions(tower, pass, levels->shapes[l], &branches[l].last));
        items[l] = (struct tt_conv_item){.shape = levels->shapes[l], .y_QO = levels->x[l]};
    }
    size_t mark = tt_workspace_mark(pass->lent.workspace);
    for (int i = 0; i <= TT_TOWER_CONVS; i++) {
        const struct tt_conv *conv = i < TT_TOWER_CONVS ? &tower->convs[i] : &tower->last;
        for (int l = 0; l < levels->count; l++) {
            items[l].x_PC = items[l].y_QO;
            if (i < TT_TOWER_CONVS) TT_TRY(push(pass, levels->shapes[l], conv->out, &branches[l].y[i]));
            items[l].y_QO = i < TT_TOWER_CONVS ? branches[l].y[i] : branches[l].last;
        }
        bool norms = i < TT_TOWER_CONVS && conv->groups > 0;
        if (norms) TT_TRY(forward_norms(conv, pass, items, levels->count, keeps ? branches : NULL, i));
        if (!norms) TT_TRY(tt_conv_forward_each(conv, pass, items, levels->count));
    }
    if (!keeps) tt_workspace_release(pass->lent.workspace, mark);
    return TT_OK;
}

static tt_status match_anchors(const struct tt_detector_head *head, const struct tt_pass *pass,
                               struct matches *matches)
{
    const struct tt_attachment *images = tt_pass_images(pass);
    struct tt_workspace *workspace = pass->lent.workspace;
    struct tt_anchor_match_args args = {.anchors_A4 = images->boxes.anchors_A4,
                                        .boxes_M4 = images->boxes.boxes_M4,
                                        .offsets = images->boxes.offsets,
                                        .low = head->low,
                                        .high = head->high};
    TT_TRY(tt_workspace_2d(workspace, "matches", TT_I32, images->count, images->boxes.anchors_A4.dims[0],
                           &args.match_NA));
    TT_TRY(tt_workspace_1d(workspace, "anchors with a box", TT_I32, images->count, &args.foreground_N));
    TT_TRY(tt_workspace_1d(workspace, "best overlaps", TT_F32, images->boxes.boxes_M4.dims[0], &args.best_M));
    *matches = (struct matches){.match_NA = args.match_NA, .foreground_N = args.foreground_N};
    return tt_anchor_match(pass->lent.stream, &args);
}

static tt_status run_losses(const struct tt_detector_head *head, const struct tt_pass *pass,
                            struct matches *matches, const struct branch *classes, const struct branch *boxes)
{
    const struct tt_attachment *images = tt_pass_images(pass);
    int64_t anchors = tt_tensor_count(boxes->last) / 4 / images->count, each = boxes->last.dims[1] / 4;
    tt_tensor match = tt_tensor_cols(matches->match_NA, matches->first, anchors);
    struct tt_focal_loss_args focal = {.logits_PK = classes->last,
                                       .row_anchors = each,
                                       .match_NA = match,
                                       .labels_M = images->boxes.labels_M,
                                       .foreground_N = matches->foreground_N,
                                       .alpha = head->alpha,
                                       .gamma = head->gamma,
                                       .weight = images->boxes.weight,
                                       .gradient = pass->in.gradient,
                                       .sums = tt_pass_sum(pass, TT_SUM_CLASSIFICATION)};
    struct tt_box_loss_args box = {.kind = head->box_loss,
                                   .deltas_P4 = boxes->last,
                                   .row_anchors = each,
                                   .anchors_A4 =
                                       tt_tensor_rows(images->boxes.anchors_A4, matches->first, anchors),
                                   .match_NA = match,
                                   .boxes_M4 = images->boxes.boxes_M4,
                                   .foreground_N = matches->foreground_N,
                                   .weight = images->boxes.weight,
                                   .gradient = pass->in.gradient,
                                   .sums = tt_pass_sum(pass, TT_SUM_BOX_REGRESSION)};
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
    bool losses = !tt_tensor_is_empty(tt_pass_images(pass)->boxes.anchors_A4), keeps = record != NULL;
    if (losses) TT_TRY(match_anchors(head, pass, &matches));
    int together = keeps ? levels_together(head, pass) : 1;
    for (int first = 0; first < head->in.count; first += together) {
        struct branch *classes = &saved->classes[first], *boxes = &saved->boxes[first];
        struct levels levels = take_levels(head, pass, x_TD, (tt_tensor){0}, first, together);
        size_t mark = tt_workspace_mark(pass->lent.workspace);
        TT_TRY(forward_tower(&head->classes, pass, &levels, keeps, classes));
        TT_TRY(forward_tower(&head->boxes, pass, &levels, keeps, boxes));
        for (int l = 0; l < together && losses; l++)
            TT_TRY(run_losses(head, pass, &matches, &classes[l], &boxes[l]));
        for (int l = 0; l < together && pass->in.want_logits; l++) {
            TT_TRY(tt_pass_give(pass, TT_RESULT_CLASSES, first + l, classes[l].last));
            TT_TRY(tt_pass_give(pass, TT_RESULT_BOXES, first + l, boxes[l].last));
        }
        if (!keeps && !pass->in.want_logits) tt_workspace_release(pass->lent.workspace, mark);
    }
    return TT_OK;
}

static tt_status backward_tower(const struct tt_tower *tower, const struct tt_pass *pass,
                                const struct levels *levels, const struct branch *branches, bool add)
{
    size_t mark = tt_workspace_mark(pass->lent.workspace);
    struct tt_conv_backward items[TT_PYRAMID_LEVELS];
    tt_tensor d[TT_PYRAMID_LEVELS][2];
    int count = levels->count, last = TT_TOWER_CONVS - 1;
    for (int l = 0; l < count; l++) {
        for (int i = 0; i < 2; i++) TT_TRY(push(pass, levels->shapes[l], tower->last.in, &d[l][i]));
        items[l] = (struct tt_conv_backward){.shape = levels->shapes[l],
                                             .x_PC = branches[l].y[last],
                                             .dy_QO = branches[l].last,
                                             .dx_PC = d[l][0]};
    }
    TT_TRY(tt_conv_run_backward_each(&tower->last, pass, items, count));
    for (int i = last, from = 0; i >= 0; i--, from = !from) {
        for (int l = 0; l < count; l++)
            items[l] = (struct tt_conv_backward){.shape = levels->shapes[l],
                                                 .x_PC = i > 0 ? branches[l].y[i - 1] : levels->x[l],
                                                 .y_QO = branches[l].y[i],
                                                 .dy_QO = d[l][from],
                                                 .dx_PC = i > 0 ? d[l][!from] : levels->dx[l],
                                                 .add_x = i == 0 && add};
        bool norms = tower->convs[i].groups > 0;
        for (int l = 0; l < count && norms; l++)
            TT_TRY(tt_conv_group_backward(&tower->convs[i], pass, &branches[l].norms[i], &items[l]));
        if (!norms) TT_TRY(tt_conv_run_backward_each(&tower->convs[i], pass, items, count));
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
    int together = levels_together(head, pass);
    for (int first = 0; first < head->in.count; first += together) {
        struct levels levels = take_levels(head, pass, x_TD, dx_TD, first, together);
        TT_TRY(backward_tower(&head->classes, pass, &levels, &saved->classes[first], false));
        TT_TRY(backward_tower(&head->boxes, pass, &levels, &saved->boxes[first], true));
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
    .role = TT_ROLE_OUTPUT,
    .levels = TT_LEVELS_ONE,
    .saved_bytes = sizeof(struct saved),
    .forward = forward,
    .output = output,
    .backward = backward,
    .visit_linears = tt_feature_visit_linears,
    .flops = flops,
};
