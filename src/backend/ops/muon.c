#include "backend/ops/muon.h"

#include "backend/device_impl.h"
#include "backend/ops/check.h"

tt_status tt_muon_direction(struct tt_stream *stream, const struct tt_muon_direction_args *args)
{
    struct tt_check check = {.op = "muon_direction"};
    tt_check_tensor(&check, "grad", args->grad, TT_TYPES_F32, 1, 1);
    tt_check_like(&check, "m", args->m, TT_TYPES_F32, "grad", args->grad);
    tt_check_like(&check, "y", args->y, TT_TYPES_REAL, "grad", args->grad);
    tt_check_apart(&check, "grad", args->grad, "m", args->m);
    tt_check_apart(&check, "grad", args->grad, "y", args->y);
    tt_check_apart(&check, "m", args->m, "y", args->y);
    if (check.status != TT_OK) return check.status;
    return tt_dispatch_muon_direction(stream, args);
}

tt_status tt_muon_normalize(struct tt_stream *stream, const struct tt_muon_normalize_args *args)
{
    struct tt_check check = {.op = "muon_normalize"};
    tt_check_tensor(&check, "x", args->x, TT_TYPES_REAL, 1, 1);
    tt_check_shape(&check, "squares", args->squares, TT_TYPES_F64, 1, TT_DIMS(1));
    tt_check_apart(&check, "x", args->x, "squares", args->squares);
    tt_check_that(&check, args->eps > 0, "eps %g is not above 0", args->eps);
    if (check.status != TT_OK) return check.status;
    return tt_dispatch_muon_normalize(stream, args);
}

tt_status tt_muon_apply(struct tt_stream *stream, const struct tt_muon_apply_args *args)
{
    struct tt_check check = {.op = "muon_apply"};
    tt_check_tensor(&check, "param", args->param, TT_TYPES_F32, 1, 1);
    tt_check_like(&check, "x", args->x, TT_TYPES_REAL, "param", args->param);
    tt_check_apart(&check, "param", args->param, "x", args->x);
    if (check.status != TT_OK) return check.status;
    return tt_dispatch_muon_apply(stream, args);
}
