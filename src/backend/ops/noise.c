#include "backend/ops/noise.h"

#include "backend/device_impl.h"
#include "backend/ops/check.h"

tt_status tt_add_noise(struct tt_stream *stream, const struct tt_add_noise_args *args)
{
    struct tt_check check = {.op = "add_noise"};
    tt_check_tensor(&check, "x", args->x_TD, TT_TYPES_REAL, 2, 2);
    tt_check_tensor(&check, "cu_seqlens", args->cu_seqlens, TT_TYPES_I32, 1, 1);
    if (check.status != TT_OK) return check.status;
    tt_check_shape(&check, "row_keys", args->row_keys_T, TT_TYPES_I64, 1, TT_DIMS(args->x_TD.dims[0]));
    tt_check_that(&check, args->cu_seqlens.dims[0] >= 2, "cu_seqlens has no sequence");
    tt_check_that(&check, args->alpha >= 0, "alpha %g is negative", (double)args->alpha);
    tt_check_apart(&check, "x", args->x_TD, "row_keys", args->row_keys_T);
    tt_check_apart(&check, "x", args->x_TD, "cu_seqlens", args->cu_seqlens);
    if (check.status != TT_OK) return check.status;
    return tt_dispatch_add_noise(stream, args);
}
