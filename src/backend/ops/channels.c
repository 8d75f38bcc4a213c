#include "backend/ops/channels.h"

#include "backend/device_impl.h"
#include "backend/ops/check.h"

static void check_vector(struct tt_check *check, const char *name, tt_tensor x, int64_t channels)
{
    if (check->status != TT_OK || tt_tensor_is_empty(x)) return;
    tt_check_shape(check, name, x, TT_TYPES_F32, 1, TT_DIMS(channels));
    tt_check_contiguous(check, name, x);
}

static void check_pixels(struct tt_check *check, const char *name, tt_tensor x, const char *like_name,
                         tt_tensor like)
{
    if (check->status != TT_OK) return;
    tt_check_like(check, name, x, TT_TYPES_REAL, like_name, like);
    tt_check_type(check, name, x, like.dtype);
}

tt_status tt_channel_sums(struct tt_stream *stream, const struct tt_channel_sums_args *args)
{
    struct tt_check check = {.op = "channel_sums"};
    tt_tensor x = args->x_PC;
    tt_check_tensor(&check, "x", x, TT_TYPES_REAL, 2, 2);
    if (!tt_tensor_is_empty(args->g_PC)) check_pixels(&check, "g", args->g_PC, "x", x);
    if (check.status == TT_OK)
        tt_check_shape(&check, "sums", args->sums_2C, TT_TYPES_F64, 2, TT_DIMS(2, x.dims[1]));
    tt_check_contiguous(&check, "sums", args->sums_2C);
    if (check.status != TT_OK) return check.status;
    return tt_dispatch_channel_sums(stream, args);
}

tt_status tt_channel_affine(struct tt_stream *stream, const struct tt_channel_affine_args *args)
{
    struct tt_check check = {.op = "channel_affine"};
    tt_tensor x = args->x_PC;
    tt_check_tensor(&check, "x", x, TT_TYPES_REAL, 2, 2);
    if (check.status != TT_OK) return check.status;
    check_vector(&check, "scale", args->scale_C, x.dims[1]);
    check_vector(&check, "shift", args->shift_C, x.dims[1]);
    check_pixels(&check, "y", args->y_PC, "x", x);
    tt_check_same_or_apart(&check, "y", args->y_PC, "x", x);
    if (!tt_tensor_is_empty(args->residual_PC)) {
        check_pixels(&check, "residual", args->residual_PC, "x", x);
        tt_check_same_or_apart(&check, "y", args->y_PC, "residual", args->residual_PC);
    }
    if (check.status != TT_OK) return check.status;
    return tt_dispatch_channel_affine(stream, args);
}

tt_status tt_channel_mix(struct tt_stream *stream, const struct tt_channel_mix_args *args)
{
    struct tt_check check = {.op = "channel_mix"};
    tt_tensor g = args->g_PC;
    tt_check_tensor(&check, "g", g, TT_TYPES_REAL, 2, 2);
    if (check.status != TT_OK) return check.status;
    check_pixels(&check, "x", args->x_PC, "g", g);
    check_pixels(&check, "dx", args->dx_PC, "g", g);
    tt_check_that(&check,
                  !tt_tensor_is_empty(args->a_C) && !tt_tensor_is_empty(args->b_C) &&
                      !tt_tensor_is_empty(args->c_C),
                  "a, b or c is missing");
    check_vector(&check, "a", args->a_C, g.dims[1]);
    check_vector(&check, "b", args->b_C, g.dims[1]);
    check_vector(&check, "c", args->c_C, g.dims[1]);
    tt_check_same_or_apart(&check, "dx", args->dx_PC, "g", g);
    tt_check_same_or_apart(&check, "dx", args->dx_PC, "x", args->x_PC);
    if (check.status != TT_OK) return check.status;
    return tt_dispatch_channel_mix(stream, args);
}

tt_status tt_norm_fold(struct tt_stream *stream, const struct tt_norm_fold_args *args)
{
    struct tt_check check = {.op = "norm_fold"};
    const tt_tensor all[] = {args->weight_C,   args->bias_C,  args->mean_C,
                             args->variance_C, args->scale_C, args->shift_C};
    static const char *const names[] = {"weight", "bias", "mean", "variance", "scale", "shift"};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        tt_check_tensor(&check, names[i], all[i], TT_TYPES_F32, 1, 1);
        if (check.status != TT_OK) return check.status;
        check_vector(&check, names[i], all[i], all[0].dims[0]);
    }
    tt_check_apart(&check, "scale", args->scale_C, "shift", args->shift_C);
    if (check.status != TT_OK) return check.status;
    return tt_dispatch_norm_fold(stream, args);
}

/* Vectors of one length, and sums of as many channels. */
static void check_vectors(struct tt_check *check, const tt_tensor *vectors, const char *const *names,
                          size_t count)
{
    for (size_t i = 0; i < count; i++) {
        tt_check_tensor(check, names[i], vectors[i], TT_TYPES_F32, 1, 1);
        if (check->status != TT_OK) return;
        check_vector(check, names[i], vectors[i], vectors[0].dims[0]);
    }
}

static void check_sums(struct tt_check *check, const char *name, tt_tensor sums, int64_t channels)
{
    tt_check_shape(check, name, sums, TT_TYPES_F64, 2, TT_DIMS(2, channels));
    tt_check_contiguous(check, name, sums);
}

tt_status tt_batch_statistics(struct tt_stream *stream, const struct tt_batch_statistics_args *args)
{
    struct tt_check check = {.op = "batch_statistics"};
    const tt_tensor all[] = {args->mean_C, args->variance_C, args->running_mean_C, args->running_variance_C};
    static const char *const names[] = {"mean", "variance", "running mean", "running variance"};
    check_vectors(&check, all, names, 4);
    if (check.status == TT_OK) check_sums(&check, "sums", args->sums_2C, args->mean_C.dims[0]);
    tt_check_shape(&check, "count", args->count_1, TT_TYPES_F64, 1, TT_DIMS(1));
    tt_check_apart(&check, "mean", args->mean_C, "variance", args->variance_C);
    tt_check_apart(&check, "running mean", args->running_mean_C, "running variance",
                   args->running_variance_C);
    tt_check_that(&check, args->momentum >= 0.0 && args->momentum <= 1.0, "momentum %g is not in [0, 1]",
                  args->momentum);
    if (check.status != TT_OK) return check.status;
    return tt_dispatch_batch_statistics(stream, args);
}

tt_status tt_batch_norm_gradient(struct tt_stream *stream, const struct tt_batch_norm_gradient_args *args)
{
    struct tt_check check = {.op = "batch_norm_gradient"};
    const tt_tensor all[] = {args->mean_C, args->variance_C, args->weight_C,  args->a_C,
                             args->b_C,    args->c_C,        args->dweight_C, args->dbias_C};
    static const char *const names[] = {"mean", "variance", "weight", "a", "b", "c", "dweight", "dbias"};
    check_vectors(&check, all, names, 8);
    if (check.status == TT_OK) check_sums(&check, "all", args->all_2C, args->mean_C.dims[0]);
    if (check.status == TT_OK) check_sums(&check, "own", args->own_2C, args->mean_C.dims[0]);
    tt_check_shape(&check, "count", args->count_1, TT_TYPES_F64, 1, TT_DIMS(1));
    tt_check_apart(&check, "dweight", args->dweight_C, "dbias", args->dbias_C);
    if (check.status != TT_OK) return check.status;
    return tt_dispatch_batch_norm_gradient(stream, args);
}
