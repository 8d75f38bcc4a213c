#include "nn/resnet.h"

#include "nn/batch_norm.h"

/* The outputs of the three convolutions of a bottleneck; the norms' state with the downsampling's last. */
struct kept {
    tt_tensor y[3];
    struct tt_batch_norm_kept norms[4];
};

struct saved {
    tt_tensor stem, pooled, which; /* of the stem */
    struct tt_batch_norm_kept stem_norm;
    struct kept blocks[TT_RESNET_BLOCKS_MAX];
};

static const struct tt_resnet_stage *stage_of(const struct tt_block *block)
{
    return block->impl;
}

static void output(const struct tt_block *block, const struct tt_pass *pass, int64_t dims[2])
{
    const struct tt_resnet_stage *stage = stage_of(block);
    dims[0] = 1;
    dims[1] = tt_feature_elements(&stage->out, stage->out.count, tt_pass_images(pass));
}

static tt_status push(const struct tt_pass *pass, struct tt_image_shape shape, int64_t channels,
                      tt_tensor *y_PC)
{
    return tt_workspace_2d(pass->lent.workspace, "a feature", pass->in.compute_dtype, tt_image_pixels(shape),
                           channels, y_PC);
}

static struct tt_conv_geometry pool_geometry(struct tt_image_shape x)
{
    return (struct tt_conv_geometry){x.images, x.height, x.width, 3, 2, 1};
}

static struct tt_image_shape stem_shape(const struct tt_resnet_stage *stage,
                                        const struct tt_attachment *images)
{
    struct tt_image_shape canvas = {images->count, images->height, images->width};
    return tt_conv_shape(&stage->stem, canvas);
}

static tt_status forward_stem(const struct tt_resnet_stage *stage, const struct tt_pass *pass,
                              struct saved *saved)
{
    const struct tt_attachment *images = tt_pass_images(pass);
    struct tt_image_shape canvas = {images->count, images->height, images->width};
    struct tt_image_shape shape = stem_shape(stage, images);
    struct tt_conv_geometry pool = pool_geometry(shape);
    int64_t places = tt_conv_pixels(&pool);
    TT_TRY(tt_workspace_2d(pass->lent.workspace, "a feature", pass->in.compute_dtype, places, stage->stem.out,
                           &saved->pooled));
    TT_TRY(tt_workspace_2d(pass->lent.workspace, "places of maxima", TT_I32, places, stage->stem.out,
                           &saved->which));
    TT_TRY(push(pass, shape, stage->stem.out, &saved->stem));
    TT_TRY(tt_conv_norm_forward(&stage->stem, pass, canvas, images->pixels_PC, (tt_tensor){0}, saved->stem,
                                &saved->stem_norm));
    struct tt_maxpool2d_forward_args args = {
        .geometry = pool, .x_PC = saved->stem, .y_QC = saved->pooled, .which_QC = saved->which};
    return tt_maxpool2d_forward(pass->lent.stream, &args);
}

/* kept->y[2] is given. */
static tt_status forward_bottleneck(const struct tt_bottleneck *block, const struct tt_pass *pass,
                                    struct tt_image_shape shape, tt_tensor x_PC, struct kept *kept)
{
    struct tt_image_shape inner = tt_conv_shape(&block->conv[1], shape);
    tt_tensor none = {0}, residual = x_PC, y = kept->y[2];
    TT_TRY(push(pass, shape, block->conv[0].out, &kept->y[0]));
    TT_TRY(push(pass, inner, block->conv[1].out, &kept->y[1]));
    if (block->downsample.weight != NULL) {
        TT_TRY(tt_conv_norm_forward(&block->downsample, pass, shape, x_PC, none, y, &kept->norms[3]));
        residual = y;
    }
    TT_TRY(tt_conv_norm_forward(&block->conv[0], pass, shape, x_PC, none, kept->y[0], &kept->norms[0]));
    TT_TRY(tt_conv_norm_forward(&block->conv[1], pass, shape, kept->y[0], none, kept->y[1], &kept->norms[1]));
    return tt_conv_norm_forward(&block->conv[2], pass, inner, kept->y[1], residual, y, &kept->norms[2]);
}

static struct tt_image_shape block_shape(const struct tt_resnet_stage *stage,
                                         const struct tt_attachment *images, int block)
{
    int level = stage->out.items[stage->out.count - 1].level;
    bool smaller = block == 0 && stage->blocks[0].conv[1].stride > 1;
    return tt_feature_shape(smaller ? level - 1 : level, images);
}

/* Copies what later blocks read. */
static tt_status pass_on(const struct tt_resnet_stage *stage, const struct tt_pass *pass, tt_tensor from,
                         tt_tensor to)
{
    if (stage->passed == 0 || tt_tensor_is_empty(to) || from.data == to.data) return TT_OK;
    int64_t elements = tt_feature_elements(&stage->in, stage->passed, tt_pass_images(pass));
    return tt_copy_on_device(pass->lent.stream, to.data, from.data,
                             (size_t)elements * tt_dtype_bytes(from.dtype));
}

/* A rank without images joins the sums of the norms, in the order of the other ranks. */
static tt_status forward_empty(const struct tt_resnet_stage *stage, const struct tt_pass *pass)
{
    if (stage->stem.weight != NULL) TT_TRY(tt_batch_norm_forward_empty(&stage->stem, pass));
    for (int i = 0; i < stage->block_count; i++) {
        const struct tt_bottleneck *each = &stage->blocks[i];
        if (each->downsample.weight != NULL) TT_TRY(tt_batch_norm_forward_empty(&each->downsample, pass));
        for (int c = 0; c < 3; c++) TT_TRY(tt_batch_norm_forward_empty(&each->conv[c], pass));
    }
    return TT_OK;
}

static tt_status forward(struct tt_block *block, const struct tt_pass *pass, tt_tensor x_TD, void *record,
                         tt_tensor y_TD)
{
    const struct tt_resnet_stage *stage = stage_of(block);
    const struct tt_attachment *images = tt_pass_images(pass);
    if (tt_device_batch_is_empty(pass->in.batch)) return forward_empty(stage, pass);
    size_t mark = tt_workspace_mark(pass->lent.workspace);
    struct saved own, *saved = record != NULL ? record : &own;
    tt_tensor x;
    if (stage->stem.weight != NULL) {
        TT_TRY(forward_stem(stage, pass, saved));
        x = saved->pooled;
    } else {
        x = tt_feature_view(x_TD, &stage->in, stage->in.count - 1, images);
        TT_TRY(pass_on(stage, pass, x_TD, y_TD));
    }
    for (int i = 0; i < stage->block_count; i++) {
        struct kept *kept = &saved->blocks[i];
        struct tt_image_shape shape = block_shape(stage, images, i);
        struct tt_image_shape out = tt_conv_shape(&stage->blocks[i].conv[1], shape);
        if (i + 1 < stage->block_count)
            TT_TRY(push(pass, out, stage->blocks[i].conv[2].out, &kept->y[2]));
        else
            kept->y[2] = tt_feature_view(y_TD, &stage->out, stage->out.count - 1, images);
        size_t inner = tt_workspace_mark(pass->lent.workspace);
        TT_TRY(forward_bottleneck(&stage->blocks[i], pass, shape, x, kept));
        if (record == NULL) tt_workspace_release(pass->lent.workspace, inner);
        x = kept->y[2];
    }
    if (record == NULL) tt_workspace_release(pass->lent.workspace, mark);
    return TT_OK;
}

struct gradients {
    struct tt_image_shape shape; /* of x */
    tt_tensor x_PC, dy_QO, dx_PC;
    bool add_x;
};

static tt_status backward_bottleneck(const struct tt_bottleneck *block, const struct tt_pass *pass,
                                     const struct kept *kept, const struct gradients *g)
{
    struct tt_image_shape inner = tt_conv_shape(&block->conv[1], g->shape);
    size_t mark = tt_workspace_mark(pass->lent.workspace);
    bool down = block->downsample.weight != NULL, has_dx = !tt_tensor_is_empty(g->dx_PC);
    tt_tensor d0, d1, dresidual = g->dx_PC;
    TT_TRY(push(pass, g->shape, block->conv[0].out, &d0));
    TT_TRY(push(pass, inner, block->conv[1].out, &d1));
    if (down) TT_TRY(push(pass, inner, block->conv[2].out, &dresidual));
    struct tt_conv_backward last = {.shape = inner,
                                    .x_PC = kept->y[1],
                                    .y_QO = kept->y[2],
                                    .dy_QO = g->dy_QO,
                                    .dresidual_QO = dresidual,
                                    .add_residual = !down && g->add_x,
                                    .dx_PC = d1};
    struct tt_conv_backward middle = {
        .shape = g->shape, .x_PC = kept->y[0], .y_QO = kept->y[1], .dy_QO = d1, .dx_PC = d0};
    struct tt_conv_backward first = {.shape = g->shape,
                                     .x_PC = g->x_PC,
                                     .y_QO = kept->y[0],
                                     .dy_QO = d0,
                                     .dx_PC = g->dx_PC,
                                     .add_x = !down || g->add_x};
    struct tt_conv_backward shortcut = {
        .shape = g->shape, .x_PC = g->x_PC, .dy_QO = dresidual, .dx_PC = g->dx_PC, .add_x = has_dx};
    TT_TRY(tt_conv_norm_backward(&block->conv[2], pass, &kept->norms[2], &last));
    TT_TRY(tt_conv_norm_backward(&block->conv[1], pass, &kept->norms[1], &middle));
    TT_TRY(tt_conv_norm_backward(&block->conv[0], pass, &kept->norms[0], &first));
    if (down) TT_TRY(tt_conv_norm_backward(&block->downsample, pass, &kept->norms[3], &shortcut));
    tt_workspace_release(pass->lent.workspace, mark);
    return TT_OK;
}

static tt_status backward_stem(const struct tt_resnet_stage *stage, const struct tt_pass *pass,
                               const struct saved *saved, tt_tensor dpooled)
{
    const struct tt_attachment *images = tt_pass_images(pass);
    struct tt_image_shape shape = stem_shape(stage, images);
    tt_tensor dstem;
    TT_TRY(push(pass, shape, stage->stem.out, &dstem));
    struct tt_maxpool2d_backward_args pool = {
        .geometry = pool_geometry(shape), .which_QC = saved->which, .dy_QC = dpooled, .dx_PC = dstem};
    TT_TRY(tt_maxpool2d_backward(pass->lent.stream, &pool));
    struct tt_conv_backward args = {.shape = {images->count, images->height, images->width},
                                    .x_PC = images->pixels_PC,
                                    .y_QO = saved->stem,
                                    .dy_QO = dstem};
    return tt_conv_norm_backward(&stage->stem, pass, &saved->stem_norm, &args);
}

static tt_status backward_empty(const struct tt_resnet_stage *stage, const struct tt_pass *pass)
{
    for (int i = stage->block_count - 1; i >= 0; i--) {
        const struct tt_bottleneck *each = &stage->blocks[i];
        for (int c = 2; c >= 0; c--) TT_TRY(tt_batch_norm_backward_empty(&each->conv[c], pass));
        if (each->downsample.weight != NULL) TT_TRY(tt_batch_norm_backward_empty(&each->downsample, pass));
    }
    bool stem_trains = stage->stem.weight != NULL && tt_conv_trains(&stage->stem);
    return stem_trains ? tt_batch_norm_backward_empty(&stage->stem, pass) : TT_OK;
}

static tt_status backward(struct tt_block *block, const struct tt_pass *pass, tt_tensor x_TD,
                          const void *record, tt_tensor dy_TD, tt_tensor dx_TD)
{
    const struct tt_resnet_stage *stage = stage_of(block);
    const struct tt_attachment *images = tt_pass_images(pass);
    const struct saved *saved = record;
    if (tt_device_batch_is_empty(pass->in.batch)) return backward_empty(stage, pass);
    size_t mark = tt_workspace_mark(pass->lent.workspace);
    bool has_stem = stage->stem.weight != NULL, stem_trains = has_stem && tt_conv_trains(&stage->stem);
    tt_tensor dy = tt_feature_view(dy_TD, &stage->out, stage->out.count - 1, images);
    tt_tensor end =
        has_stem ? (tt_tensor){0} : tt_feature_view(dx_TD, &stage->in, stage->in.count - 1, images);
    TT_TRY(pass_on(stage, pass, dy_TD, dx_TD));
    for (int i = stage->block_count - 1; i >= 0; i--) {
        struct gradients g = {.shape = block_shape(stage, images, i), .dy_QO = dy, .dx_PC = end};
        bool wanted = i > 0 || stem_trains;
        if (i > 0)
            g.x_PC = saved->blocks[i - 1].y[2];
        else
            g.x_PC =
                has_stem ? saved->pooled : tt_feature_view(x_TD, &stage->in, stage->in.count - 1, images);
        if (wanted) TT_TRY(push(pass, g.shape, stage->blocks[i].conv[0].in, &g.dx_PC));
        g.add_x = i == 0 && !wanted && stage->passed > 0;
        TT_TRY(backward_bottleneck(&stage->blocks[i], pass, &saved->blocks[i], &g));
        dy = g.dx_PC;
    }
    if (stem_trains) TT_TRY(backward_stem(stage, pass, saved, dy));
    tt_workspace_release(pass->lent.workspace, mark);
    return TT_OK;
}

static bool extends(const struct tt_block *block)
{
    const struct tt_resnet_stage *stage = stage_of(block);
    return stage->passed > 0 && stage->passed == stage->in.count;
}

static enum tt_block_exchange exchange(const struct tt_block *block)
{
    return stage_of(block)->blocks[0].conv[0].batch_norm ? TT_EXCHANGE_STATISTICS : TT_EXCHANGE_NONE;
}

static double flops(const struct tt_block *block, double length, bool full)
{
    const struct tt_resnet_stage *stage = stage_of(block);
    double places = tt_feature_places(stage->out.items[stage->out.count - 1].level, length), sum = 0;
    if (stage->stem.weight != NULL) sum += tt_conv_flops(&stage->stem, 4.0 * places, full);
    for (int i = 0; i < stage->block_count; i++) {
        const struct tt_bottleneck *each = &stage->blocks[i];
        double before = places * (double)(each->conv[1].stride * each->conv[1].stride);
        sum += tt_conv_flops(&each->conv[0], before, full);
        sum += tt_conv_flops(&each->conv[1], places, full) + tt_conv_flops(&each->conv[2], places, full);
        if (each->downsample.weight != NULL) sum += tt_conv_flops(&each->downsample, places, full);
    }
    return sum;
}

const struct tt_block_ops tt_resnet_stage_ops = {
    .kind = "residual stage",
    .role = TT_ROLE_TOWER,
    .levels = TT_LEVELS_FEATURES,
    .saved_bytes = sizeof(struct saved),
    .forward = forward,
    .output = output,
    .extends = extends,
    .backward = backward,
    .visit_linears = tt_feature_visit_linears,
    .flops = flops,
    .exchange = exchange,
};
