#ifndef TT_VECTOR_LANES

#include <string.h>

#include "backend/ops/embedding.h"

#define TT_VECTOR_SOURCE "backend/cpu/embedding.c"
#include "backend/cpu/vector_math_passes.h"

/* The least number of columns of a thread in the backward pass: four cache lines. */
enum { COLUMNS_MIN = 64 };

static tt_status check_ids(const char *op, const tt_tensor *ids, int64_t bound, tt_status kind)
{
    const int32_t *id = ids->data;
    for (int64_t i = 0; i < ids->dims[0]; i++) {
        if (id[i] < 0 || id[i] >= bound)
            return tt_fail(kind, "%s: entry %lld is %d, which is outside 0..%lld", op, (long long)i, id[i],
                           (long long)bound - 1);
    }
    return TT_OK;
}

static char *row_of(const tt_tensor *x, int64_t row)
{
    return (char *)x->data + row * x->strides[0] * (int64_t)tt_dtype_bytes(x->dtype);
}

tt_status tt_cpu_embedding_forward(struct tt_stream *stream, const struct tt_embedding_forward_args *args)
{
    const tt_tensor *table = &args->table_VD, *y = &args->y_TD;
    int64_t vocab = args->vocab > 0 ? args->vocab : table->dims[0];
    TT_TRY(check_ids("embedding_forward", &args->ids_T, vocab, TT_ERR_DATA));
    int64_t tokens = y->dims[0], width = y->dims[1], first = args->first, rows = table->dims[0];
    const int32_t *ids = args->ids_T.data;
    void (*convert_row)(void *, tt_dtype, const void *, tt_dtype, int64_t) = TT_BEST(stream, convert_row);
    int threads = tt_cpu_threads(stream, tokens * width);
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t t = 0; t < tokens; t++) {
        int64_t row = ids[t] - first;
        if (row < 0 || row >= rows) continue; /* of another part */
        convert_row(row_of(y, t), y->dtype, row_of(table, row), table->dtype, width);
    }
    return TT_OK;
}

/* Threads share the columns, not the tokens: one thread adds up all of an element, in order of t. */
tt_status tt_cpu_embedding_backward(struct tt_stream *stream, const struct tt_embedding_backward_args *args)
{
    const tt_tensor *dy = &args->dy_TD, *dtable = &args->dtable_VD;
    TT_TRY(check_ids("embedding_backward", &args->ids_T, dtable->dims[0], TT_ERR_DATA));
    int64_t tokens = dy->dims[0], width = dy->dims[1], strips = (width + COLUMNS_MIN - 1) / COLUMNS_MIN;
    const int32_t *ids = args->ids_T.data;
    void (*add_row)(float *, const void *, bool, int64_t, int64_t) = TT_BEST(stream, add_row);
    int threads = tt_cpu_threads(stream, tokens * width);
    if (threads > strips) threads = strips > 0 ? (int)strips : 1;
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t part = 0; part < threads; part++) {
        int64_t first = strips * part / threads * COLUMNS_MIN,
                end = strips * (part + 1) / threads * COLUMNS_MIN;
        if (end > width) end = width;
        for (int64_t t = 0; t < tokens; t++)
            add_row((float *)row_of(dtable, ids[t]), row_of(dy, t), dy->dtype == TT_BF16, first, end);
    }
    return TT_OK;
}

tt_status tt_cpu_gather_rows(struct tt_stream *stream, const struct tt_gather_rows_args *args)
{
    const tt_tensor *x = &args->x_TD, *y = &args->y_ND;
    TT_TRY(check_ids("gather_rows", &args->rows_N, x->dims[0], TT_ERR_INTERNAL));
    int64_t rows = y->dims[0], width = y->dims[1];
    const int32_t *from = args->rows_N.data;
    int threads = tt_cpu_threads(stream, rows * width);
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t n = 0; n < rows; n++)
        memcpy(row_of(y, n), row_of(x, from[n]), (size_t)width * tt_dtype_bytes(x->dtype));
    return TT_OK;
}

/* The task of row n also clears the rows between the target of row n - 1 and its own. */
tt_status tt_cpu_scatter_rows(struct tt_stream *stream, const struct tt_scatter_rows_args *args)
{
    const tt_tensor *x = &args->x_ND, *y = &args->y_TD;
    TT_TRY(check_ids("scatter_rows", &args->rows_N, y->dims[0], TT_ERR_INTERNAL));
    int64_t rows = x->dims[0], all = y->dims[0];
    size_t bytes = (size_t)y->dims[1] * tt_dtype_bytes(y->dtype);
    const int32_t *to = args->rows_N.data;
    int threads = tt_cpu_threads(stream, (args->keep ? rows : all) * y->dims[1]);
    if (args->keep) {
#pragma omp parallel for num_threads(threads) schedule(static)
        for (int64_t n = 0; n < rows; n++) memcpy(row_of(y, to[n]), row_of(x, n), bytes);
        return TT_OK;
    }
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t n = 0; n <= rows; n++) {
        int64_t target = n < rows ? to[n] : all;
        for (int64_t row = n > 0 ? to[n - 1] + 1 : 0; row < target; row++) memset(row_of(y, row), 0, bytes);
        if (n < rows) memcpy(row_of(y, target), row_of(x, n), bytes);
    }
    return TT_OK;
}

/* The number of the token with this id; -1: it is none of them. */
static int64_t find_token(const tt_tensor *tokens, int32_t id)
{
    const int32_t *token = tokens->data;
    for (int64_t k = 0; k < tokens->dims[0]; k++)
        if (token[k] == id) return k;
    return -1;
}

tt_status tt_cpu_put_token_rows(struct tt_stream *stream, const struct tt_put_token_rows_args *args)
{
    const tt_tensor *rows = &args->rows_KD, *y = &args->y_TD;
    int64_t tokens = y->dims[0], width = y->dims[1];
    const int32_t *ids = args->ids_T.data;
    void (*convert_row)(void *, tt_dtype, const void *, tt_dtype, int64_t) = TT_BEST(stream, convert_row);
    int threads = tt_cpu_threads(stream, tokens * rows->dims[0]);
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t t = 0; t < tokens; t++) {
        int64_t k = find_token(&args->tokens_K, ids[t]);
        if (k >= 0) convert_row(row_of(y, t), y->dtype, row_of(rows, k), rows->dtype, width);
    }
    return TT_OK;
}

/* Threads share the trained rows: one thread adds up all of a row, in order of t. */
tt_status tt_cpu_add_token_rows(struct tt_stream *stream, const struct tt_add_token_rows_args *args)
{
    const tt_tensor *dy = &args->dy_TD, *drows = &args->drows_KD;
    int64_t tokens = dy->dims[0], width = dy->dims[1], count = drows->dims[0];
    const int32_t *ids = args->ids_T.data, *token = args->tokens_K.data;
    void (*add_row)(float *, const void *, bool, int64_t, int64_t) = TT_BEST(stream, add_row);
    int threads = tt_cpu_threads(stream, tokens * count);
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t k = 0; k < count; k++)
        for (int64_t t = 0; t < tokens; t++)
            if (ids[t] == token[k])
                add_row((float *)row_of(drows, k), row_of(dy, t), dy->dtype == TT_BF16, 0, width);
    return TT_OK;
}

/* Values move between columns of y and those of x, as whole words of either type. */
static tt_status move_columns(struct tt_stream *stream, const char *op, const tt_tensor *y,
                              const tt_tensor *tokens, const tt_tensor *x, bool take)
{
    TT_TRY(check_ids(op, tokens, y->dims[1], TT_ERR_INTERNAL));
    int64_t rows = y->dims[0], count = x->dims[1];
    size_t bytes = tt_dtype_bytes(y->dtype);
    const int32_t *token = tokens->data;
    int threads = tt_cpu_threads(stream, rows * count);
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t n = 0; n < rows; n++) {
        char *whole = row_of(y, n), *part = row_of(x, n);
        for (int64_t k = 0; k < count; k++) {
            char *at = whole + (size_t)token[k] * bytes, *own = part + (size_t)k * bytes;
            memcpy(take ? own : at, take ? at : own, bytes);
            if (take) memset(at, 0, bytes);
        }
    }
    return TT_OK;
}

tt_status tt_cpu_put_token_columns(struct tt_stream *stream, const struct tt_put_token_columns_args *args)
{
    return move_columns(stream, "put_token_columns", &args->y_NV, &args->tokens_K, &args->x_NK, false);
}

tt_status tt_cpu_take_token_columns(struct tt_stream *stream, const struct tt_take_token_columns_args *args)
{
    return move_columns(stream, "take_token_columns", &args->y_NV, &args->tokens_K, &args->x_NK, true);
}

#else

static void TT_PASS(convert_row)(void *to, tt_dtype to_dtype, const void *from, tt_dtype from_dtype,
                                 int64_t count)
{
    if (to_dtype == from_dtype) {
        memcpy(to, from, (size_t)count * tt_dtype_bytes(to_dtype));
        return;
    }
    bool to_bf16 = to_dtype == TT_BF16;
    int64_t d = 0;
    for (; d + TT_VECTOR_LANES <= count; d += TT_VECTOR_LANES)
        vstore(to, d, to_bf16, vload(from, d, !to_bf16));
    vstore_some(to, d, to_bf16, vload_some(from, d, !to_bf16, count - d), count - d);
}

static void TT_PASS(add_row)(float *to, const void *from, bool bf16, int64_t first, int64_t end)
{
    int64_t d = first;
    for (; d + TT_VECTOR_LANES <= end; d += TT_VECTOR_LANES)
        vstore(to, d, false, vload(to, d, false) + vload(from, d, bf16));
    vstore_some(to, d, false, vload_some(to, d, false, end - d) + vload_some(from, d, bf16, end - d),
                end - d);
}

#endif
