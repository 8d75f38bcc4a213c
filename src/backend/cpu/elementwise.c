#ifndef TT_VECTOR_LANES

#include "backend/ops/elementwise.h"

#define TT_VECTOR_SOURCE "backend/cpu/elementwise.c"
#include "backend/cpu/vector_math_passes.h"

enum { PIECE = 8192 }; /* elements of a task, a multiple of all vector widths */

/* Rank 1 or 2 as rows of columns. If all tensors of an op are contiguous they are treated as one row, so that
 * short rows cost nothing. */
struct sheet {
    int64_t rows, cols, pieces; /* pieces per row */
};

static struct sheet make_sheet(const tt_tensor *x, bool contiguous)
{
    struct sheet sheet = {.rows = x->rank == 2 ? x->dims[0] : 1, .cols = x->dims[x->rank - 1]};
    if (contiguous) sheet = (struct sheet){.rows = 1, .cols = tt_tensor_count(*x)};
    sheet.pieces = (sheet.cols + PIECE - 1) / PIECE;
    return sheet;
}

/* Returns the index of a task's first element in `x`, and the number of its elements. */
static int64_t place_of(const struct sheet *sheet, const tt_tensor *x, int64_t task)
{
    int64_t row = task / sheet->pieces;
    return (row > 0 ? row * x->strides[0] : 0) + task % sheet->pieces * PIECE;
}

static int64_t length_of(const struct sheet *sheet, int64_t task)
{
    int64_t left = sheet->cols - task % sheet->pieces * PIECE;
    return left < PIECE ? left : PIECE;
}

tt_status tt_cpu_add(struct tt_stream *stream, const struct tt_add_args *args)
{
    const tt_tensor *a = &args->a, *b = &args->b, *y = &args->y;
    bool contiguous =
        tt_tensor_is_contiguous(*a) && tt_tensor_is_contiguous(*b) && tt_tensor_is_contiguous(*y);
    struct sheet sheet = make_sheet(y, contiguous);
    void (*add_piece)(const struct tt_add_args *, int64_t, int64_t, int64_t, int64_t) =
        TT_BEST(stream, add_piece);
    int threads = tt_cpu_threads(stream, sheet.rows * sheet.cols);
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t task = 0; task < sheet.rows * sheet.pieces; task++)
        add_piece(args, place_of(&sheet, a, task), place_of(&sheet, b, task), place_of(&sheet, y, task),
                  length_of(&sheet, task));
    return TT_OK;
}

tt_status tt_cpu_sum_rows(struct tt_stream *stream, const struct tt_sum_rows_args *args)
{
    const tt_tensor *y = &args->y_D;
    struct sheet sheet = make_sheet(y, true);
    void (*sum_piece)(const struct tt_sum_rows_args *, int64_t, int64_t) = TT_BEST(stream, sum_piece);
    int threads = tt_cpu_threads(stream, tt_tensor_count(args->x_RD));
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t task = 0; task < sheet.pieces; task++)
        sum_piece(args, place_of(&sheet, y, task), length_of(&sheet, task));
    return TT_OK;
}

tt_status tt_cpu_scale(struct tt_stream *stream, const struct tt_scale_args *args)
{
    const tt_tensor *x = &args->x;
    struct sheet sheet = make_sheet(x, tt_tensor_is_contiguous(*x));
    float factor = tt_tensor_is_empty(args->by_1) ? args->factor : *(const float *)args->by_1.data;
    void (*scale_piece)(const tt_tensor *, float, int64_t, int64_t) = TT_BEST(stream, scale_piece);
    int threads = tt_cpu_threads(stream, sheet.rows * sheet.cols);
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t task = 0; task < sheet.rows * sheet.pieces; task++)
        scale_piece(x, factor, place_of(&sheet, x, task), length_of(&sheet, task));
    return TT_OK;
}

tt_status tt_cpu_soft_cap(struct tt_stream *stream, const struct tt_soft_cap_args *args)
{
    const tt_tensor *x = &args->x;
    struct sheet sheet = make_sheet(x, tt_tensor_is_contiguous(*x));
    void (*cap_piece)(const tt_tensor *, float, int64_t, int64_t) = TT_BEST(stream, cap_piece);
    int threads = tt_cpu_threads(stream, sheet.rows * sheet.cols);
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t task = 0; task < sheet.rows * sheet.pieces; task++)
        cap_piece(x, args->cap, place_of(&sheet, x, task), length_of(&sheet, task));
    return TT_OK;
}

tt_status tt_cpu_cast(struct tt_stream *stream, const struct tt_cast_args *args)
{
    const tt_tensor *x = &args->x, *y = &args->y;
    struct sheet sheet = make_sheet(y, tt_tensor_is_contiguous(*x) && tt_tensor_is_contiguous(*y));
    void (*cast_piece)(const tt_tensor *, const tt_tensor *, int64_t, int64_t, int64_t) =
        TT_BEST(stream, cast_piece);
    int threads = tt_cpu_threads(stream, sheet.rows * sheet.cols);
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t task = 0; task < sheet.rows * sheet.pieces; task++)
        cast_piece(x, y, place_of(&sheet, x, task), place_of(&sheet, y, task), length_of(&sheet, task));
    return TT_OK;
}

#else

TT_INLINE void TT_PASS(add_typed)(void *y, const void *a, const void *b, int64_t y_at, int64_t a_at,
                                  int64_t b_at, int64_t count, const bool y_bf16, const bool a_bf16,
                                  const bool b_bf16)
{
    int64_t i = 0;
    for (; i + TT_VECTOR_LANES <= count; i += TT_VECTOR_LANES)
        vstore(y, y_at + i, y_bf16, vload(a, a_at + i, a_bf16) + vload(b, b_at + i, b_bf16));
    int64_t left = count - i;
    if (left == 0) return;
    vf sum = vload_some(a, a_at + i, a_bf16, left) + vload_some(b, b_at + i, b_bf16, left);
    vstore_some(y, y_at + i, y_bf16, sum, left);
}

static void TT_PASS(add_piece)(const struct tt_add_args *args, int64_t a_at, int64_t b_at, int64_t y_at,
                               int64_t count)
{
    bool a_bf16 = args->a.dtype == TT_BF16, b_bf16 = args->b.dtype == TT_BF16,
         y_bf16 = args->y.dtype == TT_BF16;
    const void *a = args->a.data, *b = args->b.data;
    void *y = args->y.data;
    if (a_bf16 && b_bf16 && y_bf16)
        TT_PASS(add_typed)(y, a, b, y_at, a_at, b_at, count, true, true, true);
    else if (!a_bf16 && !b_bf16 && !y_bf16)
        TT_PASS(add_typed)(y, a, b, y_at, a_at, b_at, count, false, false, false);
    else
        TT_PASS(add_typed)(y, a, b, y_at, a_at, b_at, count, y_bf16, a_bf16, b_bf16);
}

TT_INLINE void TT_PASS(sum_typed)(void *to, const tt_tensor *x, int64_t at, int64_t count, const bool bf16)
{
    int64_t rows = x->dims[0], stride = x->strides[0], i = at, end = at + count;
    for (; i + TT_VECTOR_LANES <= end; i += TT_VECTOR_LANES) {
        vf sum = vload(x->data, i, bf16);
        for (int64_t row = 1; row < rows; row++) sum += vload(x->data, row * stride + i, bf16);
        vstore(to, i, bf16, sum);
    }
    if (i == end) return;
    vf sum = vload_some(x->data, i, bf16, end - i);
    for (int64_t row = 1; row < rows; row++) sum += vload_some(x->data, row * stride + i, bf16, end - i);
    vstore_some(to, i, bf16, sum, end - i);
}

static void TT_PASS(sum_piece)(const struct tt_sum_rows_args *args, int64_t at, int64_t count)
{
    if (args->x_RD.dtype == TT_BF16)
        TT_PASS(sum_typed)(args->y_D.data, &args->x_RD, at, count, true);
    else
        TT_PASS(sum_typed)(args->y_D.data, &args->x_RD, at, count, false);
}

TT_INLINE void TT_PASS(scale_typed)(void *data, float factor, int64_t at, int64_t count, const bool bf16)
{
    int64_t i = 0;
    for (; i + TT_VECTOR_LANES <= count; i += TT_VECTOR_LANES)
        vstore(data, at + i, bf16, vload(data, at + i, bf16) * factor);
    int64_t left = count - i;
    if (left > 0) vstore_some(data, at + i, bf16, vload_some(data, at + i, bf16, left) * factor, left);
}

static void TT_PASS(scale_piece)(const tt_tensor *x, float factor, int64_t at, int64_t count)
{
    if (x->dtype == TT_BF16)
        TT_PASS(scale_typed)(x->data, factor, at, count, true);
    else
        TT_PASS(scale_typed)(x->data, factor, at, count, false);
}

TT_INLINE void TT_PASS(cap_typed)(void *data, float cap, int64_t at, int64_t count, const bool bf16)
{
    int64_t i = 0;
    for (; i + TT_VECTOR_LANES <= count; i += TT_VECTOR_LANES)
        vstore(data, at + i, bf16, cap * vtanh(vload(data, at + i, bf16) / cap));
    int64_t left = count - i;
    if (left > 0)
        vstore_some(data, at + i, bf16, cap * vtanh(vload_some(data, at + i, bf16, left) / cap), left);
}

static void TT_PASS(cap_piece)(const tt_tensor *x, float cap, int64_t at, int64_t count)
{
    if (x->dtype == TT_BF16)
        TT_PASS(cap_typed)(x->data, cap, at, count, true);
    else
        TT_PASS(cap_typed)(x->data, cap, at, count, false);
}

TT_INLINE void TT_PASS(cast_typed)(void *to, int64_t y, const void *from, int64_t x, int64_t count,
                                   const bool to_bf16, const bool from_bf16)
{
    int64_t i = 0;
    for (; i + TT_VECTOR_LANES <= count; i += TT_VECTOR_LANES)
        vstore(to, y + i, to_bf16, vload(from, x + i, from_bf16));
    int64_t left = count - i;
    if (left > 0) vstore_some(to, y + i, to_bf16, vload_some(from, x + i, from_bf16, left), left);
}

/* Every step converts between f32 and bf16; pairs with f16 occur only when files are read and written. */
static void TT_PASS(cast_piece)(const tt_tensor *x, const tt_tensor *y, int64_t x_at, int64_t y_at,
                                int64_t count)
{
    if (x->dtype == TT_F32 && y->dtype == TT_BF16) {
        TT_PASS(cast_typed)(y->data, y_at, x->data, x_at, count, true, false);
    } else if (x->dtype == TT_BF16 && y->dtype == TT_F32) {
        TT_PASS(cast_typed)(y->data, y_at, x->data, x_at, count, false, true);
    } else {
        char *to = (char *)y->data + y_at * (int64_t)tt_dtype_bytes(y->dtype);
        const char *from = (const char *)x->data + x_at * (int64_t)tt_dtype_bytes(x->dtype);
        if (to != from) (void)tt_dtype_convert(to, y->dtype, from, x->dtype, (size_t)count);
    }
}

#endif
