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
