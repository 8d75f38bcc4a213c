#include "backend/ops/elementwise.h"

#include "backend/device_impl.h"
#include "backend/ops/check.h"

tt_status tt_add(struct tt_stream *stream, const struct tt_add_args *args)
{
    struct tt_check check = {.op = "add"};
    tt_check_tensor(&check, "a", args->a, TT_TYPES_REAL, 1, 2);
    tt_check_like(&check, "b", args->b, TT_TYPES_REAL, "a", args->a);
    tt_check_like(&check, "y", args->y, TT_TYPES_REAL, "a", args->a);
    tt_check_same_or_apart(&check, "y", args->y, "a", args->a);
    tt_check_same_or_apart(&check, "y", args->y, "b", args->b);
    if (check.status != TT_OK) return check.status;
    return tt_dispatch_add(stream, args);
}

tt_status tt_sum_rows(struct tt_stream *stream, const struct tt_sum_rows_args *args)
{
    struct tt_check check = {.op = "sum_rows"};
    tt_check_tensor(&check, "x", args->x_RD, TT_TYPES_REAL, 2, 2);
    if (check.status != TT_OK) return check.status;
    tt_check_that(&check, args->x_RD.dims[0] > 0, "x has no rows");
    tt_check_shape(&check, "y", args->y_D, TT_TYPES_REAL, 1, TT_DIMS(args->x_RD.dims[1]));
    tt_check_type(&check, "y", args->y_D, args->x_RD.dtype);
    tt_check_apart(&check, "y", args->y_D, "x", args->x_RD);
    if (check.status != TT_OK) return check.status;
    return tt_dispatch_sum_rows(stream, args);
}

tt_status tt_scale(struct tt_stream *stream, const struct tt_scale_args *args)
{
    struct tt_check check = {.op = "scale"};
    tt_check_tensor(&check, "x", args->x, TT_TYPES_REAL, 1, 2);
    if (!tt_tensor_is_empty(args->by_1)) {
        tt_check_shape(&check, "by", args->by_1, TT_TYPES_F32, 1, TT_DIMS(1));
        tt_check_apart(&check, "by", args->by_1, "x", args->x);
    }
    if (check.status != TT_OK) return check.status;
    return tt_dispatch_scale(stream, args);
}

tt_status tt_soft_cap(struct tt_stream *stream, const struct tt_soft_cap_args *args)
{
    struct tt_check check = {.op = "soft_cap"};
    tt_check_tensor(&check, "x", args->x, TT_TYPES_REAL, 1, 2);
    tt_check_that(&check, args->cap > 0, "cap %g is not above 0", (double)args->cap);
    if (check.status != TT_OK) return check.status;
    return tt_dispatch_soft_cap(stream, args);
}

tt_status tt_cast(struct tt_stream *stream, const struct tt_cast_args *args)
{
    struct tt_check check = {.op = "cast"};
    tt_check_tensor(&check, "x", args->x, TT_TYPES_CAST, 1, 2);
    tt_check_like(&check, "y", args->y, TT_TYPES_CAST, "x", args->x);
    tt_check_same_or_apart(&check, "y", args->y, "x", args->x);
    if (check.status != TT_OK) return check.status;
    return tt_dispatch_cast(stream, args);
}

tt_status tt_dropout(struct tt_stream *stream, const struct tt_dropout_args *args)
{
    struct tt_check check = {.op = "dropout"};
    tt_check_tensor(&check, "x", args->x_TD, TT_TYPES_REAL, 2, 2);
    if (check.status != TT_OK) return check.status;
    tt_check_shape(&check, "row_keys", args->row_keys_T, TT_TYPES_I64, 1, TT_DIMS(args->x_TD.dims[0]));
    tt_check_like(&check, "y", args->y_TD, TT_TYPES_REAL, "x", args->x_TD);
    tt_check_that(&check, args->p >= 0 && args->p < 1, "p = %g is not in [0, 1)", args->p);
    if (args->accumulate) {
        tt_check_apart(&check, "y", args->y_TD, "x", args->x_TD);
    } else {
        tt_check_same_or_apart(&check, "y", args->y_TD, "x", args->x_TD);
    }
    tt_check_apart(&check, "y", args->y_TD, "row_keys", args->row_keys_T);
    if (check.status != TT_OK) return check.status;
    return tt_dispatch_dropout(stream, args);
}

tt_status tt_random_fill(struct tt_stream *stream, const struct tt_random_fill_args *args)
{
    struct tt_check check = {.op = "random_fill"};
    tt_check_tensor(&check, "y", args->y, TT_TYPES_REAL, 1, 2);
    tt_check_contiguous(&check, "y", args->y);
    tt_check_that(&check, args->first >= 0, "first element %lld is negative", (long long)args->first);
    tt_check_that(&check, args->y.rank != 2 || args->row_step >= args->y.dims[1],
                  "%lld columns with a row every %lld", (long long)args->y.dims[1],
                  (long long)args->row_step);
    if (check.status != TT_OK) return check.status;
    return tt_dispatch_random_fill(stream, args);
}
