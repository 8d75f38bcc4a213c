#include "backend/ops/columns.h"

#include "backend/device_impl.h"
#include "backend/ops/check.h"

tt_status tt_row_norms(struct tt_stream *stream, const struct tt_row_norms_args *args)
{
    struct tt_check check = {.op = "row_norms"};
    tt_check_tensor(&check, "w", args->w_NK, TT_TYPES_REAL, 2, 2);
    if (check.status != TT_OK) return check.status;
    const tt_tensor results[] = {args->norm_N, args->inverse_N};
    static const char *const names[] = {"norm", "inverse"};
    for (int i = 0; i < 2; i++) {
        if (tt_tensor_is_empty(results[i])) continue;
        tt_check_shape(&check, names[i], results[i], TT_TYPES_F32, 1, TT_DIMS(args->w_NK.dims[0]));
        tt_check_apart(&check, names[i], results[i], "w", args->w_NK);
    }
    if (check.status != TT_OK) return check.status;
    return tt_dispatch_row_norms(stream, args);
}

tt_status tt_scale_columns(struct tt_stream *stream, const struct tt_scale_columns_args *args)
{
    struct tt_check check = {.op = "scale_columns"};
    tt_tensor x = args->x_TN, y = args->y_TN;
    tt_check_tensor(&check, "x", x, TT_TYPES_REAL, 2, 2);
    if (check.status != TT_OK) return check.status;
    tt_check_shape(&check, "a", args->a_N, TT_TYPES_F32, 1, TT_DIMS(x.dims[1]));
    if (!tt_tensor_is_empty(args->b_N)) {
        tt_check_shape(&check, "b", args->b_N, TT_TYPES_F32, 1, TT_DIMS(x.dims[1]));
        tt_check_apart(&check, "y", y, "b", args->b_N);
    }
    tt_check_like(&check, "y", y, TT_TYPES_REAL, "x", x);
    tt_check_same_or_apart(&check, "y", y, "x", x);
    tt_check_apart(&check, "y", y, "a", args->a_N);
    if (!tt_tensor_is_empty(args->addend_TN)) {
        tt_check_like(&check, "addend", args->addend_TN, TT_TYPES_REAL, "x", x);
        tt_check_same_or_apart(&check, "y", y, "addend", args->addend_TN);
    }
    if (check.status != TT_OK) return check.status;
    return tt_dispatch_scale_columns(stream, args);
}

tt_status tt_column_dots(struct tt_stream *stream, const struct tt_column_dots_args *args)
{
    struct tt_check check = {.op = "column_dots"};
    tt_tensor x = args->x_TN;
    tt_check_tensor(&check, "x", x, TT_TYPES_REAL, 2, 2);
    if (check.status != TT_OK) return check.status;
    tt_check_like(&check, "g", args->g_TN, TT_TYPES_REAL, "x", x);
    tt_check_shape(&check, "b", args->b_N, TT_TYPES_F32, 1, TT_DIMS(x.dims[1]));
    tt_check_shape(&check, "dots", args->dots_N, TT_TYPES_F32, 1, TT_DIMS(x.dims[1]));
    tt_check_apart(&check, "dots", args->dots_N, "x", x);
    tt_check_apart(&check, "dots", args->dots_N, "g", args->g_TN);
    tt_check_apart(&check, "dots", args->dots_N, "b", args->b_N);
    if (check.status != TT_OK) return check.status;
    return tt_dispatch_column_dots(stream, args);
}

tt_status tt_keep_columns(struct tt_stream *stream, const struct tt_keep_columns_args *args)
{
    struct tt_check check = {.op = "keep_columns"};
    tt_tensor x = args->x_TN, group = args->group_R, row = args->row_T;
    tt_check_tensor(&check, "x", x, TT_TYPES_REAL, 2, 2);
    tt_check_tensor(&check, "group", group, TT_TYPES_I32, 1, 1);
    if (check.status != TT_OK) return check.status;
    tt_check_that(&check, args->first >= 0 && args->count >= 1 && args->each >= 1,
                  "groups of %lld columns, %lld of them from %lld on", (long long)args->each,
                  (long long)args->count, (long long)args->first);
    if (check.status != TT_OK) return check.status;
    tt_check_that(&check, x.dims[1] % (args->count * args->each) == 0, "%lld columns of %lld groups of %lld",
                  (long long)x.dims[1], (long long)args->count, (long long)args->each);
    if (tt_tensor_is_empty(row))
        tt_check_that(&check, args->share == 1 && group.dims[0] == x.dims[0],
                      "groups of %lld rows, and x has %lld", (long long)group.dims[0], (long long)x.dims[0]);
    else
        tt_check_shape(&check, "row", row, TT_TYPES_I32, 1, TT_DIMS(x.dims[0]));
    tt_check_that(&check, args->share >= 1, "share %lld", (long long)args->share);
    tt_check_apart(&check, "x", x, "group", group);
    if (!tt_tensor_is_empty(row)) tt_check_apart(&check, "x", x, "row", row);
    if (check.status != TT_OK) return check.status;
    return tt_dispatch_keep_columns(stream, args);
}
