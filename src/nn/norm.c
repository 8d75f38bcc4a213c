#include "nn/norm.h"

#include "backend/ops/center.h"
#include "backend/ops/elementwise.h"
#include "backend/ops/gemm_scaled.h"
#include "backend/ops/rmsnorm.h"

bool tt_norm_trains(const struct tt_norm *norm)
{
    return norm->weight != NULL && norm->weight->trainable;
}

tt_status tt_norm_push_result(const struct tt_norm *norm, const struct tt_linear_group *reader,
                              const struct tt_pass *pass, const char *name, tt_tensor x_ND, tt_tensor *y_ND,
                              struct tt_quantized_rows *rows)
{
    const struct tt_device *device = tt_stream_device(pass->lent.stream);
    struct tt_workspace *workspace = pass->lent.workspace;
    int64_t count = x_ND.dims[0], width = x_ND.dims[1];
    bool alone = tt_linear_takes_quantized(reader, TT_LINEAR_FORWARD) && !tt_linear_reads_values(reader) &&
                 tt_rmsnorm_may_store_rows_alone(device) && !norm->centers;
    if (tt_tensor_is_empty(*y_ND) && alone)
        *y_ND = tt_tensor_2d(NULL, pass->in.compute_dtype, count, width);
    else if (tt_tensor_is_empty(*y_ND))
        TT_TRY(tt_workspace_2d(workspace, name, pass->in.compute_dtype, count, width, y_ND));
    return tt_linear_push_quantized_for(reader, TT_LINEAR_FORWARD, pass, count, width, rows);
}

static tt_status center(const struct tt_pass *pass, tt_tensor x_ND, tt_tensor y_ND)
{
    struct tt_center_args args = {x_ND, y_ND};
    return tt_center(pass->lent.stream, &args);
}

/* The norm's input, with its residual, without the mean of each row, in y. */
static tt_status center_input(const struct tt_pass *pass, struct tt_rmsnorm_forward_args *args)
{
    struct tt_add_args add = {.a = args->x_ND, .b = args->residual_ND, .y = args->sum_ND};
    if (!tt_tensor_is_empty(args->residual_ND)) TT_TRY(tt_add(pass->lent.stream, &add));
    TT_TRY(center(pass, args->x_ND, args->y_ND));
    args->x_ND = args->y_ND;
    args->residual_ND = args->sum_ND = (tt_tensor){0};
    return TT_OK;
}

static tt_status forward(const struct tt_norm *norm, const struct tt_pass *pass,
                         struct tt_rmsnorm_forward_args *args, const struct tt_quantized_rows *rows)
{
    if (!norm->bare) args->weight_D = norm->weight->value;
    args->offset = norm->offset;
    args->eps = norm->eps;
    if (rows != NULL) {
        args->codes_ND = rows->codes_MK;
        args->scale_N = rows->scale_M;
        if (!tt_tensor_is_empty(args->codes_ND) && args->y_ND.data == NULL) args->y_ND = (tt_tensor){0};
    }
    if (norm->centers) TT_TRY(center_input(pass, args));
    return tt_rmsnorm_forward(pass->lent.stream, args);
}

tt_status tt_norm_forward(const struct tt_norm *norm, const struct tt_pass *pass, tt_tensor x_ND,
                          tt_tensor y_ND, tt_tensor rstd_N, const struct tt_quantized_rows *rows)
{
    struct tt_rmsnorm_forward_args args = {.x_ND = x_ND, .y_ND = y_ND, .rstd_N = rstd_N};
    return forward(norm, pass, &args, rows);
}

tt_status tt_norm_forward_add(const struct tt_norm *norm, const struct tt_pass *pass, tt_tensor x_ND,
                              tt_tensor residual_ND, tt_tensor y_ND, tt_tensor rstd_N,
                              const struct tt_quantized_rows *rows)
{
    struct tt_rmsnorm_forward_args args = {
        .x_ND = x_ND, .residual_ND = residual_ND, .sum_ND = x_ND, .y_ND = y_ND, .rstd_N = rstd_N};
    return forward(norm, pass, &args, rows);
}

/* The gradient of the centered rows, then of the rows; what is added to it and its codes come last. */
static tt_status backward_centered(const struct tt_pass *pass, const struct tt_rmsnorm_backward_args *whole)
{
    struct tt_rmsnorm_backward_args args = *whole;
    struct tt_stream *stream = pass->lent.stream;
    size_t mark = tt_workspace_mark(pass->lent.workspace);
    tt_tensor dx = args.dx_ND;
    TT_TRY(tt_workspace_2d(pass->lent.workspace, "centered input of a norm", args.x_ND.dtype,
                           args.x_ND.dims[0], args.x_ND.dims[1], &args.x_ND));
    TT_TRY(center(pass, whole->x_ND, args.x_ND));
    args.dres_ND = args.codes_ND = args.scale_N = (tt_tensor){0};
    TT_TRY(tt_rmsnorm_backward(stream, &args));
    TT_TRY(center(pass, dx, dx));
    tt_workspace_release(pass->lent.workspace, mark);
    struct tt_add_args add = {.a = dx, .b = whole->dres_ND, .y = dx};
    if (!tt_tensor_is_empty(whole->dres_ND)) TT_TRY(tt_add(stream, &add));
    struct tt_quantize_rows_args codes = {dx, whole->codes_ND, whole->scale_N};
    return tt_tensor_is_empty(whole->codes_ND) ? TT_OK : tt_quantize_rows(stream, &codes);
}

static tt_status backward(const struct tt_norm *norm, const struct tt_pass *pass,
                          struct tt_rmsnorm_backward_args *args, const struct tt_quantized_rows *rows)
{
    if (rows != NULL) {
        args->codes_ND = rows->codes_MK;
        args->scale_N = rows->scale_M;
    }
    if (!norm->bare) args->weight_D = norm->weight->value;
    args->offset = norm->offset;
    if (tt_norm_trains(norm)) args->dweight_D = norm->weight->grad;
    return norm->centers ? backward_centered(pass, args) : tt_rmsnorm_backward(pass->lent.stream, args);
}

tt_status tt_norm_backward(const struct tt_norm *norm, const struct tt_pass *pass, tt_tensor x_ND,
                           tt_tensor rstd_N, tt_tensor dres_ND, tt_tensor dy_ND,
                           const struct tt_quantized_rows *rows)
{
    struct tt_rmsnorm_backward_args args = {
        .dy_ND = dy_ND, .x_ND = x_ND, .rstd_N = rstd_N, .dres_ND = dres_ND, .dx_ND = dy_ND};
    return backward(norm, pass, &args, rows);
}

tt_status tt_norm_backward_to(const struct tt_norm *norm, const struct tt_pass *pass, tt_tensor x_ND,
                              tt_tensor rstd_N, tt_tensor dy_ND, tt_tensor dx_ND,
                              const struct tt_quantized_rows *rows)
{
    struct tt_rmsnorm_backward_args args = {.dy_ND = dy_ND, .x_ND = x_ND, .rstd_N = rstd_N, .dx_ND = dx_ND};
    return backward(norm, pass, &args, rows);
}
