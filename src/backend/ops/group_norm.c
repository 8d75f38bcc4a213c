#include "backend/ops/group_norm.h"

#include "backend/device_impl.h"
#include "backend/ops/check.h"

static void check_vector(struct tt_check *check, const char *name, tt_tensor x, int64_t channels)
{
    if (check->status != TT_OK) return;
    tt_check_shape(check, name, x, TT_TYPES_F32, 1, TT_DIMS(channels));
    tt_check_contiguous(check, name, x);
}

static void check_table(struct tt_check *check, const char *name, tt_tensor x, unsigned type, int64_t rows,
                        int64_t columns)
{
    if (check->status != TT_OK) return;
    tt_check_shape(check, name, x, type, 2, TT_DIMS(rows, columns));
    tt_check_contiguous(check, name, x);
}

static void check_pixels(struct tt_check *check, const char *name, tt_tensor x, tt_tensor like)
{
    if (check->status != TT_OK) return;
    tt_check_like(check, name, x, TT_TYPES_REAL, "x", like);
    tt_check_type(check, name, x, like.dtype);
}

static void check_groups(struct tt_check *check, tt_tensor x, int64_t images, int64_t groups)
{
    tt_check_tensor(check, "x", x, TT_TYPES_REAL, 2, 2);
    if (check->status != TT_OK) return;
    tt_check_that(check, groups >= 1 && x.dims[1] % groups == 0, "%lld channels in %lld groups",
                  (long long)x.dims[1], (long long)groups);
    tt_check_that(check, images >= 1 && x.dims[0] % images == 0, "%lld pixels of %lld images",
                  (long long)x.dims[0], (long long)images);
}

tt_status tt_group_norm(struct tt_stream *stream, const struct tt_group_norm_args *args)
{
    struct tt_check check = {.op = "group_norm"};
    tt_tensor x = args->x_PC;
    check_groups(&check, x, args->images, args->groups);
    if (check.status != TT_OK) return check.status;
    check_vector(&check, "weight", args->weight_C, x.dims[1]);
    check_vector(&check, "bias", args->bias_C, x.dims[1]);
    check_table(&check, "mean", args->mean_NG, TT_TYPES_F32, args->images, args->groups);
    check_table(&check, "scale", args->scale_NG, TT_TYPES_F32, args->images, args->groups);
    check_pixels(&check, "y", args->y_PC, x);
    tt_check_same_or_apart(&check, "y", args->y_PC, "x", x);
    tt_check_apart(&check, "mean", args->mean_NG, "scale", args->scale_NG);
    if (check.status != TT_OK || x.dims[0] == 0) return check.status;
    return tt_dispatch_group_norm(stream, args);
}

tt_status tt_group_norm_backward(struct tt_stream *stream, const struct tt_group_norm_backward_args *args)
{
    struct tt_check check = {.op = "group_norm_backward"};
    tt_tensor x = args->x_PC;
    check_groups(&check, x, args->images, args->groups);
    if (check.status != TT_OK) return check.status;
    check_vector(&check, "weight", args->weight_C, x.dims[1]);
    check_table(&check, "mean", args->mean_NG, TT_TYPES_F32, args->images, args->groups);
    check_table(&check, "scale", args->scale_NG, TT_TYPES_F32, args->images, args->groups);
    check_table(&check, "factors", args->factors_NC, TT_TYPES_F32, 3 * args->images, x.dims[1]);
    check_table(&check, "parts", args->parts_NC, TT_TYPES_F64, 2 * args->images, x.dims[1]);
    if (!tt_tensor_is_empty(args->y_PC)) check_pixels(&check, "y", args->y_PC, x);
    check_pixels(&check, "dy", args->dy_PC, x);
    check_pixels(&check, "dx", args->dx_PC, x);
    tt_check_same_or_apart(&check, "dx", args->dx_PC, "dy", args->dy_PC);
    tt_check_apart(&check, "dx", args->dx_PC, "x", x);
    bool trains = !tt_tensor_is_empty(args->dweight_C);
    tt_check_that(&check, trains == !tt_tensor_is_empty(args->dbias_C), "dweight without dbias");
    if (trains) check_vector(&check, "dweight", args->dweight_C, x.dims[1]);
    if (trains) check_vector(&check, "dbias", args->dbias_C, x.dims[1]);
    if (check.status != TT_OK || x.dims[0] == 0) return check.status;
    return tt_dispatch_group_norm_backward(stream, args);
}
