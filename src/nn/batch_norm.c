#include "nn/batch_norm.h"

#include "backend/ops/channels.h"

/* Sums of the channels, and the number of pixels behind them: one vector for the exchange. */
struct sums {
    tt_tensor all; /* f64 [2 * channels + 1] */
    tt_tensor sums_2C, count_1;
};

static tt_status push_sums(const struct tt_conv *conv, const struct tt_pass *pass, struct sums *sums)
{
    TT_TRY(tt_workspace_1d(pass->lent.workspace, "sums of a norm", TT_F64, 2 * conv->out + 1, &sums->all));
    double *values = sums->all.data;
    sums->sums_2C = tt_tensor_2d(values, TT_F64, 2, conv->out);
    sums->count_1 = tt_tensor_1d(values + 2 * conv->out, TT_F64, 1);
    return tt_fill_zero(pass->lent.stream, values, tt_tensor_bytes(sums->all));
}

/* Adds the sums of all ranks. */
static tt_status exchange(const struct tt_pass *pass, tt_tensor values)
{
    const struct tt_exchange *other = pass->lent.exchange;
    return other != NULL ? other->sum(other->context, TT_AXIS_DATA, values) : TT_OK;
}

static tt_status push_statistics(const struct tt_conv *conv, const struct tt_pass *pass,
                                 struct tt_batch_norm_kept *kept)
{
    struct tt_workspace *workspace = pass->lent.workspace;
    TT_TRY(tt_workspace_1d(workspace, "mean of a batch", TT_F32, conv->out, &kept->mean_O));
    TT_TRY(tt_workspace_1d(workspace, "variance of a batch", TT_F32, conv->out, &kept->variance_O));
    return tt_workspace_1d(workspace, "pixels of a batch", TT_F64, 1, &kept->count_1);
}

/* Mean and variance of z on all ranks; z is empty on a rank without images. */
static tt_status find_statistics(const struct tt_conv *conv, const struct tt_pass *pass,
                                 const struct tt_batch_norm_kept *kept)
{
    struct tt_stream *stream = pass->lent.stream;
    struct sums sums;
    TT_TRY(push_sums(conv, pass, &sums));
    if (!tt_tensor_is_empty(kept->z_QO)) {
        double count = (double)kept->z_QO.dims[0];
        struct tt_channel_sums_args own = {.x_PC = kept->z_QO, .sums_2C = sums.sums_2C};
        TT_TRY(tt_channel_sums(stream, &own));
        TT_TRY(tt_copy_to_device(stream, sums.count_1.data, &count, sizeof count));
    }
    TT_TRY(exchange(pass, sums.all));
    struct tt_batch_statistics_args args = {
        .sums_2C = sums.sums_2C,
        .count_1 = sums.count_1,
        .momentum = TT_BATCH_NORM_MOMENTUM,
        .mean_C = kept->mean_O,
        .variance_C = kept->variance_O,
        .running_mean_C = conv->norm[TT_CONV_NORM_MEAN]->value,
        .running_variance_C = conv->norm[TT_CONV_NORM_VARIANCE]->value,
    };
    TT_TRY(tt_batch_statistics(stream, &args));
    return tt_copy_on_device(stream, kept->count_1.data, sums.count_1.data, sizeof(double));
}

/* y = relu((z - mean) / sqrt(variance + eps) * weight + bias + residual) */
static tt_status apply(const struct tt_conv *conv, const struct tt_pass *pass,
                       const struct tt_batch_norm_kept *kept, tt_tensor residual_QO, tt_tensor y_QO)
{
    struct tt_norm_fold_args fold = {
        .mean_C = kept->mean_O, .variance_C = kept->variance_O, .eps = conv->norm_eps};
    TT_TRY(tt_conv_floats(pass, conv->norm[TT_CONV_NORM_WEIGHT]->value, &fold.weight_C));
    TT_TRY(tt_conv_floats(pass, conv->norm[TT_CONV_NORM_BIAS]->value, &fold.bias_C));
    TT_TRY(tt_workspace_1d(pass->lent.workspace, "scale of a norm", TT_F32, conv->out, &fold.scale_C));
    TT_TRY(tt_workspace_1d(pass->lent.workspace, "shift of a norm", TT_F32, conv->out, &fold.shift_C));
    TT_TRY(tt_norm_fold(pass->lent.stream, &fold));
    struct tt_channel_affine_args affine = {.x_PC = kept->z_QO,
                                            .scale_C = fold.scale_C,
                                            .shift_C = fold.shift_C,
                                            .residual_PC = residual_QO,
                                            .y_PC = y_QO,
                                            .relu = conv->relu};
    return tt_channel_affine(pass->lent.stream, &affine);
}

tt_status tt_conv_norm_forward(const struct tt_conv *conv, const struct tt_pass *pass,
                               struct tt_image_shape shape, tt_tensor x_PC, tt_tensor residual_QO,
                               tt_tensor y_QO, struct tt_batch_norm_kept *kept)
{
    if (!tt_conv_has_batch_norm(conv, pass))
        return tt_conv_forward(conv, pass, shape, x_PC, residual_QO, y_QO);
    TT_TRY(tt_workspace_2d(pass->lent.workspace, "a feature before its norm", pass->in.compute_dtype,
                           y_QO.dims[0], conv->out, &kept->z_QO));
    TT_TRY(push_statistics(conv, pass, kept));
    size_t mark = tt_workspace_mark(pass->lent.workspace);
    TT_TRY(tt_conv_forward(conv, pass, shape, x_PC, (tt_tensor){0}, kept->z_QO));
    TT_TRY(find_statistics(conv, pass, kept));
    TT_TRY(apply(conv, pass, kept, residual_QO, y_QO));
    tt_workspace_release(pass->lent.workspace, mark);
    return TT_OK;
}

tt_status tt_batch_norm_forward_empty(const struct tt_conv *conv, const struct tt_pass *pass)
{
    struct tt_batch_norm_kept none = {0};
    size_t mark = tt_workspace_mark(pass->lent.workspace);
    if (!tt_conv_has_batch_norm(conv, pass)) return TT_OK;
    TT_TRY(push_statistics(conv, pass, &none));
    TT_TRY(find_statistics(conv, pass, &none));
    tt_workspace_release(pass->lent.workspace, mark);
    return TT_OK;
}

/* dz from the gradient of the norm's output, in place. */
static tt_status backward_norm(const struct tt_conv *conv, const struct tt_pass *pass,
                               const struct tt_batch_norm_kept *kept, tt_tensor g_QO)
{
    struct tt_stream *stream = pass->lent.stream;
    struct tt_workspace *workspace = pass->lent.workspace;
    struct sums own, all;
    TT_TRY(push_sums(conv, pass, &own));
    TT_TRY(push_sums(conv, pass, &all));
    struct tt_channel_sums_args sums = {.x_PC = kept->z_QO, .g_PC = g_QO, .sums_2C = own.sums_2C};
    TT_TRY(tt_channel_sums(stream, &sums));
    TT_TRY(tt_copy_on_device(stream, all.all.data, own.all.data, tt_tensor_bytes(own.all)));
    TT_TRY(exchange(pass, all.all));
    struct tt_batch_norm_gradient_args args = {
        .all_2C = all.sums_2C,
        .own_2C = own.sums_2C,
        .count_1 = kept->count_1,
        .mean_C = kept->mean_O,
        .variance_C = kept->variance_O,
        .eps = conv->norm_eps,
        .dweight_C = conv->norm[TT_CONV_NORM_WEIGHT]->grad,
        .dbias_C = conv->norm[TT_CONV_NORM_BIAS]->grad,
    };
    TT_TRY(tt_conv_floats(pass, conv->norm[TT_CONV_NORM_WEIGHT]->value, &args.weight_C));
    TT_TRY(tt_workspace_1d(workspace, "factor of a gradient", TT_F32, conv->out, &args.a_C));
    TT_TRY(tt_workspace_1d(workspace, "factor of a feature", TT_F32, conv->out, &args.b_C));
    TT_TRY(tt_workspace_1d(workspace, "mean of a gradient", TT_F32, conv->out, &args.c_C));
    TT_TRY(tt_batch_norm_gradient(stream, &args));
    struct tt_channel_mix_args mix = {g_QO, kept->z_QO, args.a_C, args.b_C, args.c_C, g_QO};
    return tt_channel_mix(stream, &mix);
}

tt_status tt_conv_norm_backward(const struct tt_conv *conv, const struct tt_pass *pass,
                                const struct tt_batch_norm_kept *kept, const struct tt_conv_backward *args)
{
    if (!tt_conv_has_batch_norm(conv, pass)) return tt_conv_run_backward(conv, pass, args);
    size_t mark = tt_workspace_mark(pass->lent.workspace);
    struct tt_conv2d_backward_output_args output = {.y_QO = conv->relu ? args->y_QO : (tt_tensor){0},
                                                    .dy_QO = args->dy_QO,
                                                    .dresidual_QO = args->dresidual_QO,
                                                    .dz_QO = args->dy_QO,
                                                    .accumulate = args->add_residual};
    TT_TRY(tt_conv2d_backward_output(pass->lent.stream, &output));
    TT_TRY(backward_norm(conv, pass, kept, args->dy_QO));
    tt_workspace_release(pass->lent.workspace, mark);
    return tt_conv_run_backward(conv, pass, args);
}

tt_status tt_batch_norm_backward_empty(const struct tt_conv *conv, const struct tt_pass *pass)
{
    struct sums sums;
    size_t mark = tt_workspace_mark(pass->lent.workspace);
    if (!tt_conv_has_batch_norm(conv, pass)) return TT_OK;
    TT_TRY(push_sums(conv, pass, &sums));
    TT_TRY(exchange(pass, sums.all));
    tt_workspace_release(pass->lent.workspace, mark);
    return TT_OK;
}
