#include "backend/ops/rmsnorm.h"

#include "backend/device_impl.h"
#include "backend/ops/check.h"

/* Rows are all dimensions but the last. */
static int64_t row_count(tt_tensor x)
{
    return x.rank == 3 ? x.dims[0] * x.dims[1] : x.dims[0];
}

/* A missing weight stands for zeros. */
static void check_weight(struct tt_check *check, tt_tensor weight, int64_t width)
{
    if (tt_tensor_is_empty(weight)) return;
    tt_check_shape(check, "weight", weight, TT_TYPES_REAL, 1, TT_DIMS(width));
}

static void check_rstd(struct tt_check *check, tt_tensor rstd, tt_tensor x)
{
    tt_check_shape(check, "rstd", rstd, TT_TYPES_F32, 1, TT_DIMS(row_count(x)));
    tt_check_contiguous(check, "rstd", rstd);
}

bool tt_rmsnorm_may_store_rows_alone(const struct tt_device *device)
{
    return !tt_device_is_host(device);
}

/* Rows of the result in FP8, which must not lie in the place of an input. */
static void check_codes(struct tt_check *check, tt_tensor codes, tt_tensor scale, tt_tensor x,
                        tt_tensor other)
{
    if (tt_tensor_is_empty(codes)) return;
    tt_check_that(check, x.rank == 2, "rows in FP8 of x with rank %d", x.rank);
    tt_check_quantized_rows(check, x.dims[0], x.dims[1], codes, scale);
    tt_check_apart(check, "codes", codes, "x", x);
    tt_check_apart(check, "scale", scale, "x", x);
    tt_check_apart(check, "codes", codes, "another tensor", other);
    tt_check_apart(check, "scale", scale, "another tensor", other);
}

/* The result where it is stored. */
static void check_y(struct tt_check *check, const struct tt_rmsnorm_forward_args *args)
{
    tt_tensor x = args->x_ND, y = args->y_ND;
    tt_check_like(check, "y", y, TT_TYPES_REAL, "x", x);
    tt_check_type(check, "y", y, x.dtype);
    if (tt_tensor_is_empty(args->residual_ND)) {
        tt_check_same_or_apart(check, "y", y, "x", x);
    } else {
        tt_check_apart(check, "y", y, "sum", args->sum_ND);
        tt_check_apart(check, "y", y, "x", x);
        tt_check_apart(check, "y", y, "residual", args->residual_ND);
    }
    tt_check_apart(check, "y", y, "weight", args->weight_D);
    tt_check_apart(check, "y", y, "rstd", args->rstd_N);
}

tt_status tt_rmsnorm_forward(struct tt_stream *stream, const struct tt_rmsnorm_forward_args *args)
{
    struct tt_check check = {.op = "rmsnorm_forward"};
    tt_tensor x = args->x_ND;
    tt_check_tensor(&check, "x", x, TT_TYPES_REAL, 2, 3);
    if (check.status != TT_OK) return check.status;
    check_weight(&check, args->weight_D, x.dims[x.rank - 1]);
    if (!tt_tensor_is_empty(args->rstd_N)) check_rstd(&check, args->rstd_N, x);
    if (!tt_tensor_is_empty(args->residual_ND)) {
        tt_check_like(&check, "residual", args->residual_ND, TT_TYPES_REAL, "x", x);
        tt_check_type(&check, "residual", args->residual_ND, x.dtype);
        tt_check_like(&check, "sum", args->sum_ND, TT_TYPES_REAL, "x", x);
        tt_check_type(&check, "sum", args->sum_ND, x.dtype);
        tt_check_same_or_apart(&check, "sum", args->sum_ND, "x", x);
        tt_check_same_or_apart(&check, "sum", args->sum_ND, "residual", args->residual_ND);
    } else {
        tt_check_that(&check, tt_tensor_is_empty(args->sum_ND), "sum is given without residual");
    }
    bool alone = !tt_tensor_is_empty(args->codes_ND) && tt_tensor_is_empty(args->y_ND) &&
                 tt_rmsnorm_may_store_rows_alone(tt_stream_device(stream));
    if (!alone) check_y(&check, args);
    check_codes(&check, args->codes_ND, args->scale_N, x, args->y_ND);
    if (check.status != TT_OK) return check.status;
    return tt_dispatch_rmsnorm_forward(stream, args);
}

tt_status tt_rmsnorm_backward(struct tt_stream *stream, const struct tt_rmsnorm_backward_args *args)
{
    struct tt_check check = {.op = "rmsnorm_backward"};
    tt_tensor x = args->x_ND;
    tt_check_tensor(&check, "x", x, TT_TYPES_REAL, 2, 3);
    if (check.status != TT_OK) return check.status;
    int64_t width = x.dims[x.rank - 1];
    check_weight(&check, args->weight_D, width);
    tt_check_like(&check, "dy", args->dy_ND, TT_TYPES_REAL, "x", x);
    tt_check_like(&check, "dx", args->dx_ND, TT_TYPES_REAL, "x", x);
    tt_check_type(&check, "dy", args->dy_ND, x.dtype);
    tt_check_type(&check, "dx", args->dx_ND, x.dtype);
    check_rstd(&check, args->rstd_N, x);
    if (!tt_tensor_is_empty(args->dres_ND)) {
        tt_check_like(&check, "dres", args->dres_ND, TT_TYPES_REAL, "x", x);
        tt_check_type(&check, "dres", args->dres_ND, x.dtype);
        tt_check_same_or_apart(&check, "dx", args->dx_ND, "dres", args->dres_ND);
    }
    if (!tt_tensor_is_empty(args->dweight_D)) {
        tt_check_shape(&check, "dweight", args->dweight_D, TT_TYPES_F32, 1, TT_DIMS(width));
        tt_check_apart(&check, "dweight", args->dweight_D, "dx", args->dx_ND);
        tt_check_apart(&check, "dweight", args->dweight_D, "weight", args->weight_D);
    }
    tt_check_same_or_apart(&check, "dx", args->dx_ND, "dy", args->dy_ND);
    tt_check_apart(&check, "dx", args->dx_ND, "x", x);
    tt_check_apart(&check, "dx", args->dx_ND, "rstd", args->rstd_N);
    tt_check_apart(&check, "dx", args->dx_ND, "weight", args->weight_D);
    check_codes(&check, args->codes_ND, args->scale_N, x, args->dx_ND);
    if (check.status != TT_OK) return check.status;
    return tt_dispatch_rmsnorm_backward(stream, args);
}
