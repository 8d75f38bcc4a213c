#include "nn/conv.h"

#include "backend/ops/channels.h"
#include "backend/ops/elementwise.h"
#include "backend/ops/gemm.h"

/* Whether the norm is computed in the pass: tt_conv_forward and tt_conv_run_backward are then the convolution alone. */
static bool is_alone(const struct tt_conv *conv, const struct tt_pass *pass)
{
    return conv->groups > 0 || tt_conv_has_batch_norm(conv, pass);
}

static struct tt_conv_geometry geometry_of(const struct tt_conv *conv, struct tt_image_shape x)
{
    return (struct tt_conv_geometry){.images = x.images,
                                     .height = x.height,
                                     .width = x.width,
                                     .kernel = conv->kernel,
                                     .stride = conv->stride,
                                     .padding = conv->padding};
}

struct tt_image_shape tt_conv_shape(const struct tt_conv *conv, struct tt_image_shape x)
{
    struct tt_conv_geometry geometry = geometry_of(conv, x);
    return (struct tt_image_shape){x.images, tt_conv_side(&geometry, x.height),
                                   tt_conv_side(&geometry, x.width)};
}

bool tt_conv_trains(const struct tt_conv *conv)
{
    return conv->weight->trainable || (conv->bias != NULL && conv->bias->trainable);
}

double tt_conv_flops(const struct tt_conv *conv, double places, bool full)
{
    double products = places * (double)tt_param_count(conv->weight);
    return 2.0 * products * (full || conv->weight->trainable ? 3.0 : 2.0);
}

/* The parameter as the ops read it: [O, C * kernel * kernel]. */
static tt_tensor as_matrix(const struct tt_conv *conv, tt_tensor view)
{
    return tt_tensor_2d(view.data, view.dtype, conv->out, conv->in * conv->kernel * conv->kernel);
}

/* The weight as the ops read it; a frozen one is stored in fp32. */
static tt_status read_weight(const struct tt_conv *conv, const struct tt_pass *pass, tt_tensor *w_OK)
{
    tt_tensor stored_OK = as_matrix(conv, conv->weight->value);
    *w_OK = stored_OK;
    if (stored_OK.dtype == pass->in.compute_dtype) return TT_OK;
    TT_TRY(tt_workspace_2d(pass->lent.workspace, "a weight in the compute type", pass->in.compute_dtype,
                           stored_OK.dims[0], stored_OK.dims[1], w_OK));
    return tt_cast(pass->lent.stream, &(struct tt_cast_args){.x = stored_OK, .y = *w_OK});
}

tt_status tt_conv_floats(const struct tt_pass *pass, tt_tensor value, tt_tensor *floats)
{
    *floats = value;
    if (value.dtype == TT_F32) return TT_OK;
    TT_TRY(tt_workspace_1d(pass->lent.workspace, "parameters in fp32", TT_F32, value.dims[0], floats));
    return tt_cast(pass->lent.stream, &(struct tt_cast_args){.x = value, .y = *floats});
}

/* Scale and shift behind the product, as vectors in fp32 in the workspace; empty where there are none. */
static tt_status make_vectors(const struct tt_conv *conv, const struct tt_pass *pass, tt_tensor *scale_O,
                              tt_tensor *shift_O)
{
    struct tt_workspace *workspace = pass->lent.workspace;
    *scale_O = *shift_O = (tt_tensor){0};
    if (tt_conv_has_batch_norm(conv, pass)) return TT_OK;
    if (conv->norm[TT_CONV_NORM_WEIGHT] != NULL) {
        TT_TRY(tt_workspace_1d(workspace, "scale of a norm", TT_F32, conv->out, scale_O));
        TT_TRY(tt_workspace_1d(workspace, "shift of a norm", TT_F32, conv->out, shift_O));
        struct tt_norm_fold_args args = {.mean_C = conv->norm[TT_CONV_NORM_MEAN]->value,
                                         .variance_C = conv->norm[TT_CONV_NORM_VARIANCE]->value,
                                         .eps = conv->norm_eps,
                                         .scale_C = *scale_O,
                                         .shift_C = *shift_O};
        TT_TRY(tt_conv_floats(pass, conv->norm[TT_CONV_NORM_WEIGHT]->value, &args.weight_C));
        TT_TRY(tt_conv_floats(pass, conv->norm[TT_CONV_NORM_BIAS]->value, &args.bias_C));
        return tt_norm_fold(pass->lent.stream, &args);
    }
    return conv->bias != NULL ? tt_conv_floats(pass, conv->bias->value, shift_O) : TT_OK;
}

/* Rows with room behind their channels have it for whole groups. */
static bool is_padded(tt_tensor y_QO)
{
    return y_QO.strides[0] > y_QO.dims[1];
}

tt_status tt_conv_forward_each(const struct tt_conv *conv, const struct tt_pass *pass,
                               const struct tt_conv_item *items, int count)
{
    size_t mark = tt_workspace_mark(pass->lent.workspace);
    struct tt_conv2d_forward_args args = {.relu = conv->relu && !is_alone(conv, pass)};
    TT_TRY(read_weight(conv, pass, &args.w_OK));
    TT_TRY(make_vectors(conv, pass, &args.scale_O, &args.bias_O));
    for (int i = 0; i < count; i++) {
        args.geometry = geometry_of(conv, items[i].shape);
        args.x_PC = tt_tensor_cols(items[i].x_PC, 0, conv->in);
        args.residual_QO = items[i].residual_QO;
        args.y_QO = items[i].y_QO;
        args.padded = is_padded(items[i].y_QO);
        args.again = i > 0;
        TT_TRY(tt_conv2d_forward(pass->lent.stream, &args));
    }
    tt_workspace_release(pass->lent.workspace, mark);
    return TT_OK;
}

tt_status tt_conv_forward(const struct tt_conv *conv, const struct tt_pass *pass, struct tt_image_shape shape,
                          tt_tensor x_PC, tt_tensor residual_QO, tt_tensor y_QO)
{
    const struct tt_conv_item item = {shape, x_PC, residual_QO, y_QO};
    return tt_conv_forward_each(conv, pass, &item, 1);
}

static tt_status backward_weight(const struct tt_conv *conv, const struct tt_pass *pass,
                                 const struct tt_conv_backward *args)
{
    if (!conv->weight->trainable) return TT_OK;
    size_t mark = tt_workspace_mark(pass->lent.workspace);
    struct tt_conv2d_backward_weight_args weight = {.geometry = geometry_of(conv, args->shape),
                                                    .x_PC = tt_tensor_cols(args->x_PC, 0, conv->in),
                                                    .dz_QO = args->dy_QO,
                                                    .dw_OK = as_matrix(conv, conv->weight->grad),
                                                    .padded = is_padded(args->dy_QO)};
    if (conv->kernel > 1)
        TT_TRY(tt_workspace_2d(pass->lent.workspace, "gradient of a convolution", TT_F32, conv->out,
                               conv->in * conv->kernel * conv->kernel, &weight.scratch_OK));
    TT_TRY(tt_conv2d_backward_weight(pass->lent.stream, &weight));
    tt_workspace_release(pass->lent.workspace, mark);
    return TT_OK;
}

/* Gradient through relu, residual and norm, in place, and that of the bias. */
static tt_status backward_output(const struct tt_conv *conv, const struct tt_pass *pass,
                                 const struct tt_conv_backward *args, tt_tensor scale_O)
{
    bool biased = conv->bias != NULL && conv->bias->trainable;
    struct tt_conv2d_backward_output_args output = {.y_QO = conv->relu ? args->y_QO : (tt_tensor){0},
                                                    .dy_QO = args->dy_QO,
                                                    .scale_O = scale_O,
                                                    .dresidual_QO = args->dresidual_QO,
                                                    .dz_QO = args->dy_QO,
                                                    .dbias_O = biased ? conv->bias->grad : (tt_tensor){0},
                                                    .accumulate = args->add_residual};
    bool alone = is_alone(conv, pass);
    if (!alone && (conv->relu || !tt_tensor_is_empty(scale_O) || !tt_tensor_is_empty(args->dresidual_QO)))
        return tt_conv2d_backward_output(pass->lent.stream, &output);
    if (!biased) return TT_OK;
    struct tt_bias_backward_args bias = {.dy_TN = args->dy_QO, .dbias_N = conv->bias->grad};
    return tt_bias_backward(pass->lent.stream, &bias);
}

static tt_status backward_inputs(const struct tt_conv *conv, const struct tt_pass *pass,
                                 const struct tt_conv_backward *items, int count)
{
    struct tt_conv2d_backward_input_args input = {0};
    for (int i = 0; i < count; i++) {
        if (tt_tensor_is_empty(items[i].dx_PC)) continue;
        input.again = !tt_tensor_is_empty(input.w_OK);
        if (!input.again) TT_TRY(read_weight(conv, pass, &input.w_OK));
        input.geometry = geometry_of(conv, items[i].shape);
        input.dz_QO = items[i].dy_QO;
        input.dx_PC = items[i].dx_PC;
        input.accumulate = items[i].add_x;
        input.padded = is_padded(items[i].dy_QO);
        TT_TRY(tt_conv2d_backward_input(pass->lent.stream, &input));
    }
    return TT_OK;
}

tt_status tt_conv_run_backward_each(const struct tt_conv *conv, const struct tt_pass *pass,
                                    const struct tt_conv_backward *items, int count)
{
    size_t mark = tt_workspace_mark(pass->lent.workspace);
    tt_tensor scale_O = {0}, shift_O;
    if (conv->norm[TT_CONV_NORM_WEIGHT] != NULL) TT_TRY(make_vectors(conv, pass, &scale_O, &shift_O));
    for (int i = 0; i < count; i++) TT_TRY(backward_output(conv, pass, &items[i], scale_O));
    tt_workspace_release(pass->lent.workspace, mark);
    for (int i = 0; i < count; i++) TT_TRY(backward_weight(conv, pass, &items[i]));
    TT_TRY(backward_inputs(conv, pass, items, count));
    tt_workspace_release(pass->lent.workspace, mark);
    return TT_OK;
}

tt_status tt_conv_run_backward(const struct tt_conv *conv, const struct tt_pass *pass,
                               const struct tt_conv_backward *args)
{
    return tt_conv_run_backward_each(conv, pass, args, 1);
}
