#include "backend/ops/add_logits.h"

#include "backend/device_impl.h"
#include "backend/ops/check.h"

tt_status tt_add_logits(struct tt_stream *stream, const struct tt_add_logits_args *args)
{
    struct tt_check check = {.op = "add_logits"};
    tt_check_tensor(&check, "logits", args->logits_NV, TT_TYPES_F32, 2, 2);
    tt_check_tensor(&check, "rows", args->rows_E, TT_TYPES_I32, 1, 1);
    if (check.status != TT_OK) return check.status;
    int64_t entries = args->rows_E.dims[0];
    tt_check_shape(&check, "ids", args->ids_E, TT_TYPES_I32, 1, TT_DIMS(entries));
    tt_check_shape(&check, "values", args->values_E, TT_TYPES_F32, 1, TT_DIMS(entries));
    tt_check_apart(&check, "logits", args->logits_NV, "rows", args->rows_E);
    tt_check_apart(&check, "logits", args->logits_NV, "ids", args->ids_E);
    tt_check_apart(&check, "logits", args->logits_NV, "values", args->values_E);
    if (check.status != TT_OK) return check.status;
    return tt_dispatch_add_logits(stream, args);
}
