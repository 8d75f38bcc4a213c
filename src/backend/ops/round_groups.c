#include "backend/ops/round_groups.h"

#include "backend/device_impl.h"
#include "backend/ops/check.h"

tt_status tt_round_groups(struct tt_stream *stream, const struct tt_round_groups_args *args)
{
    struct tt_check check = {.op = "round_groups"};
    tt_tensor x = args->x_MK, y = args->y_MK;
    tt_check_tensor(&check, "x", x, TT_TYPES_REAL, 2, 2);
    if (check.status != TT_OK) return check.status;
    tt_check_like(&check, "y", y, TT_TYPES_REAL, "x", x);
    tt_check_type(&check, "y", y, x.dtype);
    tt_check_same_or_apart(&check, "y", y, "x", x);
    if (check.status != TT_OK) return check.status;
    if (x.dims[0] == 0 || x.dims[1] == 0) return TT_OK;
    return tt_dispatch_round_groups(stream, args);
}
