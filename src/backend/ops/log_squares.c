#include "backend/ops/log_squares.h"

#include "backend/device_impl.h"
#include "backend/ops/check.h"

tt_status tt_log_squares(struct tt_stream *stream, const struct tt_log_squares_args *args)
{
    struct tt_check check = {.op = "log_squares"};
    tt_check_tensor(&check, "logits", args->logits_NV, TT_TYPES_REAL, 2, 2);
    if (check.status != TT_OK) return check.status;
    int64_t rows = args->logits_NV.dims[0];
    tt_check_that(&check, rows == 0 || args->logits_NV.dims[1] > 0, "the vocabulary is empty");
    tt_check_shape(&check, "y", args->y_N, TT_TYPES_F32, 1, TT_DIMS(rows));
    tt_check_that(&check, args->soft_cap >= 0, "soft_cap %g is negative", (double)args->soft_cap);
    tt_check_apart(&check, "logits", args->logits_NV, "y", args->y_N);
    if (check.status != TT_OK) return check.status;
    return tt_dispatch_log_squares(stream, args);
}
