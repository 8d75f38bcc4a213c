#include "backend/ops/gated_norm.h"

#include "backend/device_impl.h"
#include "backend/ops/check.h"

static void check_rows(struct tt_check *check, const char *name, tt_tensor rows, tt_tensor x)
{
    tt_check_like(check, name, rows, TT_TYPES_REAL, "x", x);
    tt_check_type(check, name, rows, x.dtype);
}

static void check_inputs(struct tt_check *check, tt_tensor x, tt_tensor z, tt_tensor weight, int64_t groups)
{
    tt_check_tensor(check, "x", x, TT_TYPES_REAL, 2, 2);
    if (check->status != TT_OK) return;
    check_rows(check, "z", z, x);
    tt_check_that(check, groups >= 1 && x.dims[1] % groups == 0, "%lld columns have no %lld equal groups",
                  (long long)x.dims[1], (long long)groups);
    tt_check_tensor(check, "weight", weight, TT_TYPES_REAL, 1, 1);
    if (check->status != TT_OK) return;
    tt_check_that(check, weight.dims[0] == x.dims[1] || weight.dims[0] == x.dims[1] / groups,
                  "a weight of %lld is neither for %lld columns nor for one of %lld groups",
                  (long long)weight.dims[0], (long long)x.dims[1], (long long)groups);
}

static void check_rstd(struct tt_check *check, tt_tensor rstd, tt_tensor x, int64_t groups)
{
    if (check->status != TT_OK) return;
    tt_check_shape(check, "rstd", rstd, TT_TYPES_F32, 2, TT_DIMS(x.dims[0], groups));
    tt_check_contiguous(check, "rstd", rstd);
}

/* Rows in FP8 are written while others of x and z are still to be read. */
static void check_codes(struct tt_check *check, const struct tt_gated_norm_forward_args *args)
{
    const struct {
        const char *name;
        tt_tensor tensor;
    } others[] = {{"x", args->x_TN}, {"z", args->z_TN}, {"y", args->y_TN}};
    tt_check_quantized_rows(check, args->x_TN.dims[0], args->x_TN.dims[1], args->codes_TN, args->scale_T);
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        tt_check_apart(check, "codes", args->codes_TN, others[i].name, others[i].tensor);
        tt_check_apart(check, "scale", args->scale_T, others[i].name, others[i].tensor);
    }
}

tt_status tt_gated_norm_forward(struct tt_stream *stream, const struct tt_gated_norm_forward_args *args)
{
    struct tt_check check = {.op = "gated_norm_forward"};
    tt_tensor x = args->x_TN;
    check_inputs(&check, x, args->z_TN, args->weight_N, args->groups);
    if (check.status != TT_OK) return check.status;
    tt_check_that(&check, args->eps >= 0, "eps %g is negative", args->eps);
    check_rows(&check, "y", args->y_TN, x);
    tt_check_same_or_apart(&check, "y", args->y_TN, "x", x);
    tt_check_same_or_apart(&check, "y", args->y_TN, "z", args->z_TN);
    if (!tt_tensor_is_empty(args->rstd_TG)) check_rstd(&check, args->rstd_TG, x, args->groups);
    if (!tt_tensor_is_empty(args->codes_TN)) check_codes(&check, args);
    if (check.status != TT_OK) return check.status;
    return tt_dispatch_gated_norm_forward(stream, args);
}

tt_status tt_gated_norm_backward(struct tt_stream *stream, const struct tt_gated_norm_backward_args *args)
{
    struct tt_check check = {.op = "gated_norm_backward"};
    tt_tensor x = args->x_TN;
    check_inputs(&check, x, args->z_TN, args->weight_N, args->groups);
    if (check.status != TT_OK) return check.status;
    check_rstd(&check, args->rstd_TG, x, args->groups);
    check_rows(&check, "dy", args->dy_TN, x);
    check_rows(&check, "dx", args->dx_TN, x);
    check_rows(&check, "dz", args->dz_TN, x);
    tt_check_same_or_apart(&check, "dx", args->dx_TN, "dy", args->dy_TN);
    tt_check_same_or_apart(&check, "dx", args->dx_TN, "x", x);
    tt_check_apart(&check, "dx", args->dx_TN, "z", args->z_TN);
    tt_check_same_or_apart(&check, "dz", args->dz_TN, "z", args->z_TN);
    tt_check_apart(&check, "dz", args->dz_TN, "x", x);
    tt_check_apart(&check, "dz", args->dz_TN, "dy", args->dy_TN);
    tt_check_apart(&check, "dx", args->dx_TN, "dz", args->dz_TN);
    if (!tt_tensor_is_empty(args->dweight_N)) {
        tt_check_like(&check, "dweight", args->dweight_N, TT_TYPES_F32, "weight", args->weight_N);
        tt_check_contiguous(&check, "dweight", args->dweight_N);
    }
    if (check.status != TT_OK) return check.status;
    return tt_dispatch_gated_norm_backward(stream, args);
}
