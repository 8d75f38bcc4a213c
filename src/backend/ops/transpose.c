#include "backend/ops/transpose.h"

#include "backend/device_impl.h"
#include "backend/ops/check.h"

tt_status tt_transpose(struct tt_stream *stream, const struct tt_transpose_args *args)
{
    struct tt_check check = {.op = "transpose"};
    tt_tensor x = args->x_MN;
    tt_check_tensor(&check, "x", x, TT_TYPES_REAL, 2, 2);
    if (check.status != TT_OK) return check.status;
    tt_check_shape(&check, "y", args->y_NM, TT_TYPES_REAL, 2, TT_DIMS(x.dims[1], x.dims[0]));
    tt_check_type(&check, "y", args->y_NM, x.dtype);
    tt_check_apart(&check, "y", args->y_NM, "x", x);
    if (check.status != TT_OK || tt_tensor_count(x) == 0) return check.status;
    return tt_dispatch_transpose(stream, args);
}
