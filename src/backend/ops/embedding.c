#include "backend/ops/embedding.h"

#include "backend/device_impl.h"
#include "backend/ops/check.h"

tt_status tt_embedding_forward(struct tt_stream *stream, const struct tt_embedding_forward_args *args)
{
    struct tt_check check = {.op = "embedding_forward"};
    tt_check_tensor(&check, "table", args->table_VD, TT_TYPES_REAL, 2, 2);
    tt_check_tensor(&check, "ids", args->ids_T, TT_TYPES_I32, 1, 1);
    if (check.status != TT_OK) return check.status;
    tt_check_shape(&check, "y", args->y_TD, TT_TYPES_REAL, 2,
                   TT_DIMS(args->ids_T.dims[0], args->table_VD.dims[1]));
    tt_check_that(&check,
                  args->vocab == 0 ? args->first == 0
                                   : args->first >= 0 && args->first + args->table_VD.dims[0] <= args->vocab,
                  "a part from row %lld on is outside a table of %lld rows", (long long)args->first,
                  (long long)args->vocab);
    tt_check_apart(&check, "y", args->y_TD, "table", args->table_VD);
    tt_check_apart(&check, "y", args->y_TD, "ids", args->ids_T);
    if (check.status != TT_OK) return check.status;
    return tt_dispatch_embedding_forward(stream, args);
}

tt_status tt_embedding_backward(struct tt_stream *stream, const struct tt_embedding_backward_args *args)
{
    struct tt_check check = {.op = "embedding_backward"};
    tt_check_tensor(&check, "dtable", args->dtable_VD, TT_TYPES_F32, 2, 2);
    tt_check_tensor(&check, "ids", args->ids_T, TT_TYPES_I32, 1, 1);
    if (check.status != TT_OK) return check.status;
    tt_check_shape(&check, "dy", args->dy_TD, TT_TYPES_REAL, 2,
                   TT_DIMS(args->ids_T.dims[0], args->dtable_VD.dims[1]));
    tt_check_apart(&check, "dtable", args->dtable_VD, "dy", args->dy_TD);
    tt_check_apart(&check, "dtable", args->dtable_VD, "ids", args->ids_T);
    if (check.status != TT_OK) return check.status;
    return tt_dispatch_embedding_backward(stream, args);
}

static void check_rows(struct tt_check *check, tt_tensor whole, tt_tensor rows, const char *part_name,
                       tt_tensor part)
{
    if (check->status != TT_OK) return;
    tt_check_shape(check, part_name, part, TT_TYPES_REAL, 2, TT_DIMS(rows.dims[0], whole.dims[1]));
    tt_check_type(check, part_name, part, whole.dtype);
}

tt_status tt_gather_rows(struct tt_stream *stream, const struct tt_gather_rows_args *args)
{
    struct tt_check check = {.op = "gather_rows"};
    tt_check_tensor(&check, "x", args->x_TD, TT_TYPES_REAL, 2, 2);
    tt_check_tensor(&check, "rows", args->rows_N, TT_TYPES_I32, 1, 1);
    check_rows(&check, args->x_TD, args->rows_N, "y", args->y_ND);
    tt_check_apart(&check, "y", args->y_ND, "x", args->x_TD);
    tt_check_apart(&check, "y", args->y_ND, "rows", args->rows_N);
    if (check.status != TT_OK) return check.status;
    return tt_dispatch_gather_rows(stream, args);
}

tt_status tt_scatter_rows(struct tt_stream *stream, const struct tt_scatter_rows_args *args)
{
    struct tt_check check = {.op = "scatter_rows"};
    tt_check_tensor(&check, "y", args->y_TD, TT_TYPES_REAL, 2, 2);
    tt_check_tensor(&check, "rows", args->rows_N, TT_TYPES_I32, 1, 1);
    if (check.status != TT_OK) return check.status;
    /* they rise strictly */
    tt_check_that(&check, args->rows_N.dims[0] <= args->y_TD.dims[0],
                  "%lld rows are named, the matrix has %lld", (long long)args->rows_N.dims[0],
                  (long long)args->y_TD.dims[0]);
    check_rows(&check, args->y_TD, args->rows_N, "x", args->x_ND);
    tt_check_apart(&check, "y", args->y_TD, "x", args->x_ND);
    tt_check_apart(&check, "y", args->y_TD, "rows", args->rows_N);
    if (check.status != TT_OK) return check.status;
    return tt_dispatch_scatter_rows(stream, args);
}

/* `rows` [K, D] of the tokens, `whole` [T, D] of the ids. */
static void check_token_rows(struct tt_check *check, tt_tensor ids, tt_tensor tokens, const char *rows_name,
                             tt_tensor rows, const char *whole_name, tt_tensor whole)
{
    tt_check_tensor(check, rows_name, rows, TT_TYPES_REAL, 2, 2);
    tt_check_tensor(check, "ids", ids, TT_TYPES_I32, 1, 1);
    if (check->status != TT_OK) return;
    tt_check_shape(check, "tokens", tokens, TT_TYPES_I32, 1, TT_DIMS(rows.dims[0]));
    tt_check_shape(check, whole_name, whole, TT_TYPES_REAL, 2, TT_DIMS(ids.dims[0], rows.dims[1]));
    tt_check_apart(check, whole_name, whole, rows_name, rows);
}

tt_status tt_put_token_rows(struct tt_stream *stream, const struct tt_put_token_rows_args *args)
{
    struct tt_check check = {.op = "put_token_rows"};
    check_token_rows(&check, args->ids_T, args->tokens_K, "rows", args->rows_KD, "y", args->y_TD);
    tt_check_apart(&check, "y", args->y_TD, "tokens", args->tokens_K);
    tt_check_apart(&check, "y", args->y_TD, "ids", args->ids_T);
    if (check.status != TT_OK) return check.status;
    return tt_dispatch_put_token_rows(stream, args);
}

tt_status tt_add_token_rows(struct tt_stream *stream, const struct tt_add_token_rows_args *args)
{
    struct tt_check check = {.op = "add_token_rows"};
    check_token_rows(&check, args->ids_T, args->tokens_K, "drows", args->drows_KD, "dy", args->dy_TD);
    tt_check_type(&check, "drows", args->drows_KD, TT_F32);
    tt_check_apart(&check, "drows", args->drows_KD, "tokens", args->tokens_K);
    tt_check_apart(&check, "drows", args->drows_KD, "ids", args->ids_T);
    if (check.status != TT_OK) return check.status;
    return tt_dispatch_add_token_rows(stream, args);
}

static void check_token_columns(struct tt_check *check, tt_tensor y, tt_tensor tokens, tt_tensor x)
{
    tt_check_tensor(check, "y", y, TT_TYPES_REAL, 2, 2);
    tt_check_tensor(check, "tokens", tokens, TT_TYPES_I32, 1, 1);
    if (check->status != TT_OK) return;
    tt_check_that(check, tokens.dims[0] <= y.dims[1], "%lld columns are named, the matrix has %lld",
                  (long long)tokens.dims[0], (long long)y.dims[1]);
    tt_check_shape(check, "x", x, TT_TYPES_REAL, 2, TT_DIMS(y.dims[0], tokens.dims[0]));
    tt_check_type(check, "x", x, y.dtype);
    tt_check_apart(check, "y", y, "x", x);
    tt_check_apart(check, "y", y, "tokens", tokens);
    tt_check_apart(check, "x", x, "tokens", tokens);
}

tt_status tt_put_token_columns(struct tt_stream *stream, const struct tt_put_token_columns_args *args)
{
    struct tt_check check = {.op = "put_token_columns"};
    check_token_columns(&check, args->y_NV, args->tokens_K, args->x_NK);
    if (check.status != TT_OK) return check.status;
    return tt_dispatch_put_token_columns(stream, args);
}

tt_status tt_take_token_columns(struct tt_stream *stream, const struct tt_take_token_columns_args *args)
{
    struct tt_check check = {.op = "take_token_columns"};
    check_token_columns(&check, args->y_NV, args->tokens_K, args->x_NK);
    if (check.status != TT_OK) return check.status;
    return tt_dispatch_take_token_columns(stream, args);
}
