#include "backend/ops/center.h"

#include "backend/device_impl.h"
#include "backend/ops/check.h"

tt_status tt_center(struct tt_stream *stream, const struct tt_center_args *args)
{
    struct tt_check check = {.op = "center"};
    tt_check_tensor(&check, "x", args->x_ND, TT_TYPES_REAL, 2, 2);
    if (check.status != TT_OK) return check.status;
    tt_check_like(&check, "y", args->y_ND, TT_TYPES_REAL, "x", args->x_ND);
    tt_check_type(&check, "y", args->y_ND, args->x_ND.dtype);
    tt_check_same_or_apart(&check, "y", args->y_ND, "x", args->x_ND);
    if (check.status != TT_OK) return check.status;
    return tt_dispatch_center(stream, args);
}
