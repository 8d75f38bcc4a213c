#include "nn/group_norm.h"

#include "backend/ops/group_norm.h"

static tt_status push_statistics(const struct tt_conv *conv, const struct tt_pass *pass, int64_t images,
                                 struct tt_group_norm_kept *kept)
{
    struct tt_workspace *workspace = pass->lent.workspace;
    TT_TRY(tt_workspace_2d(workspace, "means of groups", TT_F32, images, conv->groups, &kept->mean_NG));
    return tt_workspace_2d(workspace, "scales of groups", TT_F32, images, conv->groups, &kept->scale_NG);
}

static tt_status normalize(const struct tt_conv *conv, const struct tt_pass *pass, int64_t images,
                           const struct tt_group_norm_kept *kept, tt_tensor y_QO)
{
    struct tt_group_norm_args args = {.x_PC = kept->z_QO,
                                      .images = images,
                                      .groups = conv->groups,
                                      .eps = conv->norm_eps,
                                      .mean_NG = kept->mean_NG,
                                      .scale_NG = kept->scale_NG,
                                      .y_PC = y_QO,
                                      .relu = conv->relu};
    size_t mark = tt_workspace_mark(pass->lent.workspace);
    TT_TRY(tt_conv_floats(pass, conv->group_weight->value, &args.weight_C));
    TT_TRY(tt_conv_floats(pass, conv->group_bias->value, &args.bias_C));
    TT_TRY(tt_group_norm(pass->lent.stream, &args));
    tt_workspace_release(pass->lent.workspace, mark);
    return TT_OK;
}

tt_status tt_conv_group_forward(const struct tt_conv *conv, const struct tt_pass *pass,
                                struct tt_image_shape shape, tt_tensor x_PC, tt_tensor y_QO,
                                struct tt_group_norm_kept *kept)
{
    struct tt_group_norm_kept own = {.z_QO = y_QO}, *used = kept != NULL ? kept : &own;
    size_t mark = tt_workspace_mark(pass->lent.workspace);
    if (conv->groups == 0) return tt_conv_forward(conv, pass, shape, x_PC, (tt_tensor){0}, y_QO);
    if (kept != NULL)
        TT_TRY(tt_workspace_2d(pass->lent.workspace, "a feature before its norm", pass->in.compute_dtype,
                               y_QO.dims[0], conv->out, &kept->z_QO));
    TT_TRY(push_statistics(conv, pass, shape.images, used));
    TT_TRY(tt_conv_forward(conv, pass, shape, x_PC, (tt_tensor){0}, used->z_QO));
    TT_TRY(normalize(conv, pass, shape.images, used, y_QO));
    if (kept == NULL) tt_workspace_release(pass->lent.workspace, mark);
    return TT_OK;
}

tt_status tt_conv_group_backward(const struct tt_conv *conv, const struct tt_pass *pass,
                                 const struct tt_group_norm_kept *kept, const struct tt_conv_backward *args)
{
    struct tt_workspace *workspace = pass->lent.workspace;
    int64_t images = args->shape.images;
    if (conv->groups == 0) return tt_conv_run_backward(conv, pass, args);
    struct tt_group_norm_backward_args norm = {.x_PC = kept->z_QO,
                                               .images = images,
                                               .groups = conv->groups,
                                               .mean_NG = kept->mean_NG,
                                               .scale_NG = kept->scale_NG,
                                               .y_PC = conv->relu ? args->y_QO : (tt_tensor){0},
                                               .dy_PC = args->dy_QO,
                                               .dx_PC = args->dy_QO};
    if (conv->group_weight->trainable) {
        norm.dweight_C = conv->group_weight->grad;
        norm.dbias_C = conv->group_bias->grad;
    }
    size_t mark = tt_workspace_mark(workspace);
    TT_TRY(tt_conv_floats(pass, conv->group_weight->value, &norm.weight_C));
    TT_TRY(tt_workspace_2d(workspace, "factors of a norm", TT_F32, 3 * images, conv->out, &norm.factors_NC));
    TT_TRY(tt_workspace_2d(workspace, "parts of a gradient", TT_F64, 2 * images, conv->out, &norm.parts_NC));
    TT_TRY(tt_group_norm_backward(pass->lent.stream, &norm));
    tt_workspace_release(workspace, mark);
    return tt_conv_run_backward(conv, pass, args);
}
