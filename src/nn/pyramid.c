#include "nn/pyramid.h"

#include "backend/ops/channels.h"

enum { P5 = TT_PYRAMID_INPUTS - 1, P6, P7, LEVELS };
_Static_assert((int)LEVELS == (int)TT_PYRAMID_LEVELS, "a pyramid has five levels");

struct saved {
    tt_tensor merged[TT_PYRAMID_INPUTS], relu6, y;
};

static const struct tt_pyramid *pyramid_of(const struct tt_block *block)
{
    return block->impl;
}

static void output(const struct tt_block *block, const struct tt_pass *pass, int64_t dims[2])
{
    const struct tt_pyramid *pyramid = pyramid_of(block);
    dims[0] = 1;
    dims[1] = tt_feature_elements(&pyramid->out, pyramid->out.count, tt_pass_images(pass));
}

static struct tt_image_shape shape_of(const struct tt_pyramid *pyramid, const struct tt_pass *pass, int level)
{
    return tt_feature_shape(pyramid->out.items[level].level, tt_pass_images(pass));
}

static tt_tensor view_of(const struct tt_pyramid *pyramid, const struct tt_pass *pass, tt_tensor y, int level)
{
    return tt_feature_view(y, &pyramid->out, level, tt_pass_images(pass));
}

static tt_status push(const struct tt_pyramid *pyramid, const struct tt_pass *pass, int level, tt_tensor *to)
{
    return tt_workspace_2d(pass->lent.workspace, "a level of the pyramid", pass->in.compute_dtype,
                           tt_image_pixels(shape_of(pyramid, pass, level)),
                           pyramid->out.items[level].channels, to);
}

/* Levels run from C5 down to C3. */
static tt_status forward_merged(const struct tt_pyramid *pyramid, const struct tt_pass *pass, tt_tensor x,
                                tt_tensor merged[TT_PYRAMID_INPUTS])
{
    for (int i = 0; i < TT_PYRAMID_INPUTS; i++) TT_TRY(push(pyramid, pass, i, &merged[i]));
    for (int i = P5; i >= 0; i--) {
        tt_tensor from = tt_feature_view(x, &pyramid->in, i, tt_pass_images(pass));
        TT_TRY(tt_conv_forward(&pyramid->inner[i], pass, shape_of(pyramid, pass, i), from, (tt_tensor){0},
                               merged[i]));
        if (i == P5) continue;
        struct tt_image_shape small = shape_of(pyramid, pass, i + 1);
        struct tt_upsample_add_args add = {small.images, small.height, small.width, merged[i + 1], merged[i]};
        TT_TRY(tt_upsample_add(pass->lent.stream, &add));
    }
    return TT_OK;
}

/* C5 and P5 have the same places. Also of their gradients. */
static tt_tensor input_of_p6(const struct tt_pyramid *pyramid, const struct tt_pass *pass, tt_tensor x,
                             tt_tensor y)
{
    return pyramid->p6_of_c5 ? tt_feature_view(x, &pyramid->in, P5, tt_pass_images(pass))
                             : view_of(pyramid, pass, y, P5);
}

static tt_status forward(struct tt_block *block, const struct tt_pass *pass, tt_tensor x_TD, void *record,
                         tt_tensor y_TD)
{
    const struct tt_pyramid *pyramid = pyramid_of(block);
    const tt_tensor none = {0};
    size_t mark = tt_workspace_mark(pass->lent.workspace);
    struct saved own, *saved = record != NULL ? record : &own;
    saved->y = y_TD;
    TT_TRY(forward_merged(pyramid, pass, x_TD, saved->merged));
    for (int i = 0; i < TT_PYRAMID_INPUTS; i++)
        TT_TRY(tt_conv_forward(&pyramid->layer[i], pass, shape_of(pyramid, pass, i), saved->merged[i], none,
                               view_of(pyramid, pass, y_TD, i)));
    tt_tensor p6 = view_of(pyramid, pass, y_TD, P6);
    TT_TRY(tt_conv_forward(&pyramid->p6, pass, shape_of(pyramid, pass, P5),
                           input_of_p6(pyramid, pass, x_TD, y_TD), none, p6));
    TT_TRY(push(pyramid, pass, P6, &saved->relu6));
    struct tt_channel_affine_args relu = {.x_PC = p6, .y_PC = saved->relu6, .relu = true};
    TT_TRY(tt_channel_affine(pass->lent.stream, &relu));
    TT_TRY(tt_conv_forward(&pyramid->p7, pass, shape_of(pyramid, pass, P6), saved->relu6, none,
                           view_of(pyramid, pass, y_TD, P7)));
    if (record == NULL) tt_workspace_release(pass->lent.workspace, mark);
    return TT_OK;
}

/* Adds the gradient of the input of P6: to that of P5 in dy, or to that of C5 in dx. */
static tt_status backward_p6(const struct tt_pyramid *pyramid, const struct tt_pass *pass,
                             const struct saved *saved, tt_tensor x, tt_tensor dy, tt_tensor dx)
{
    struct tt_conv_backward p6 = {.shape = shape_of(pyramid, pass, P5),
                                  .x_PC = input_of_p6(pyramid, pass, x, saved->y),
                                  .dy_QO = view_of(pyramid, pass, dy, P6),
                                  .dx_PC = input_of_p6(pyramid, pass, dx, dy),
                                  .add_x = true};
    return tt_conv_run_backward(&pyramid->p6, pass, &p6);
}

/* The gradient of P7 is added to that of P6, in dy. */
static tt_status backward_p7(const struct tt_pyramid *pyramid, const struct tt_pass *pass,
                             const struct saved *saved, tt_tensor dy)
{
    size_t mark = tt_workspace_mark(pass->lent.workspace);
    tt_tensor dp6 = view_of(pyramid, pass, dy, P6), drelu6;
    TT_TRY(push(pyramid, pass, P6, &drelu6));
    struct tt_conv_backward p7 = {.shape = shape_of(pyramid, pass, P6),
                                  .x_PC = saved->relu6,
                                  .dy_QO = view_of(pyramid, pass, dy, P7),
                                  .dx_PC = drelu6};
    TT_TRY(tt_conv_run_backward(&pyramid->p7, pass, &p7));
    struct tt_conv2d_backward_output_args relu = {
        .y_QO = saved->relu6, .dy_QO = drelu6, .dresidual_QO = dp6, .dz_QO = drelu6, .accumulate = true};
    TT_TRY(tt_conv2d_backward_output(pass->lent.stream, &relu));
    tt_workspace_release(pass->lent.workspace, mark);
    return TT_OK;
}

/* Levels run from P3 up: the gradient of a merged level is that through its own convolution, and that of the level
 * below. */
static tt_status backward(struct tt_block *block, const struct tt_pass *pass, tt_tensor x_TD,
                          const void *record, tt_tensor dy_TD, tt_tensor dx_TD)
{
    const struct tt_pyramid *pyramid = pyramid_of(block);
    const struct tt_attachment *images = tt_pass_images(pass);
    const struct saved *saved = record;
    size_t mark = tt_workspace_mark(pass->lent.workspace);
    tt_tensor dmerged[TT_PYRAMID_INPUTS];
    TT_TRY(backward_p7(pyramid, pass, saved, dy_TD));
    if (!pyramid->p6_of_c5) TT_TRY(backward_p6(pyramid, pass, saved, x_TD, dy_TD, dx_TD));
    for (int i = 0; i < TT_PYRAMID_INPUTS; i++) {
        TT_TRY(push(pyramid, pass, i, &dmerged[i]));
        struct tt_conv_backward layer = {.shape = shape_of(pyramid, pass, i),
                                         .x_PC = saved->merged[i],
                                         .dy_QO = view_of(pyramid, pass, dy_TD, i),
                                         .dx_PC = dmerged[i]};
        TT_TRY(tt_conv_run_backward(&pyramid->layer[i], pass, &layer));
        struct tt_image_shape small = shape_of(pyramid, pass, i);
        struct tt_upsample_backward_args up = {small.images, small.height, small.width,
                                               i > 0 ? dmerged[i - 1] : dmerged[i], dmerged[i]};
        if (i > 0) TT_TRY(tt_upsample_backward(pass->lent.stream, &up));
    }
    /* The inner convolutions overwrite nothing that another level reads: there is no relu. */
    for (int i = 0; i < TT_PYRAMID_INPUTS; i++) {
        struct tt_conv_backward inner = {.shape = shape_of(pyramid, pass, i),
                                         .x_PC = tt_feature_view(x_TD, &pyramid->in, i, images),
                                         .dy_QO = dmerged[i],
                                         .dx_PC = tt_feature_view(dx_TD, &pyramid->in, i, images)};
        TT_TRY(tt_conv_run_backward(&pyramid->inner[i], pass, &inner));
    }
    if (pyramid->p6_of_c5) TT_TRY(backward_p6(pyramid, pass, saved, x_TD, dy_TD, dx_TD));
    tt_workspace_release(pass->lent.workspace, mark);
    return TT_OK;
}

static double flops(const struct tt_block *block, double length, bool full)
{
    const struct tt_pyramid *pyramid = pyramid_of(block);
    double sum = 0;
    for (int i = 0; i < TT_PYRAMID_INPUTS; i++) {
        double places = tt_feature_places(pyramid->out.items[i].level, length);
        sum +=
            tt_conv_flops(&pyramid->inner[i], places, full) + tt_conv_flops(&pyramid->layer[i], places, full);
    }
    sum += tt_conv_flops(&pyramid->p6, tt_feature_places(pyramid->out.items[P6].level, length), full);
    return sum + tt_conv_flops(&pyramid->p7, tt_feature_places(pyramid->out.items[P7].level, length), full);
}

const struct tt_block_ops tt_pyramid_ops = {
    .kind = "pyramid",
    .role = TT_ROLE_TOWER,
    .levels = TT_LEVELS_FEATURES,
    .saved_bytes = sizeof(struct saved),
    .forward = forward,
    .output = output,
    .backward = backward,
    .visit_linears = tt_feature_visit_linears,
    .flops = flops,
};
