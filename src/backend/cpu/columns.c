/* Norms of rows; columns that are scaled, and their dot products with the columns of a gradient. */
#ifndef TT_VECTOR_LANES

#include <math.h>
#include <string.h>

#include "backend/cpu/cpu_ops.h"
#include "backend/ops/columns.h"

enum {
    GROUP_ROWS = 64, /* rows are summed in groups of this size, then the groups in order */
    STRIP = 256,     /* columns of a task: sums stay in the first-level cache */
};

#define TT_VECTOR_SOURCE "backend/cpu/columns.c"
#include "backend/cpu/vector_math_passes.h"

tt_status tt_cpu_row_norms(struct tt_stream *stream, const struct tt_row_norms_args *args)
{
    int64_t rows = args->w_NK.dims[0];
    float *norm = args->norm_N.data, *inverse = args->inverse_N.data;
    float (*squares)(const tt_tensor *, int64_t) = TT_BEST(stream, squares_of_row);
    int threads = tt_cpu_threads(stream, tt_tensor_count(args->w_NK));
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t n = 0; n < rows; n++) {
        float length = sqrtf(squares(&args->w_NK, n));
        if (norm != NULL) norm[n] = length;
        if (inverse != NULL) inverse[n] = length > 0 ? 1.0f / length : 0.0f;
    }
    return TT_OK;
}

tt_status tt_cpu_scale_columns(struct tt_stream *stream, const struct tt_scale_columns_args *args)
{
    int64_t rows = args->x_TN.dims[0];
    void (*scale_row)(const struct tt_scale_columns_args *, int64_t) = TT_BEST(stream, scale_row);
    int threads = tt_cpu_threads(stream, tt_tensor_count(args->x_TN));
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t t = 0; t < rows; t++) scale_row(args, t);
    return TT_OK;
}

tt_status tt_cpu_keep_columns(struct tt_stream *stream, const struct tt_keep_columns_args *args)
{
    const tt_tensor *x = &args->x_TN;
    const int32_t *group = args->group_R.data, *row = args->row_T.data;
    int64_t rows = x->dims[0], width = args->count * args->each;
    size_t element = tt_dtype_bytes(x->dtype);
    int threads = tt_cpu_threads(stream, tt_tensor_count(*x));
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t t = 0; t < rows; t++) {
        int64_t own = (int64_t)group[row != NULL ? row[t] / args->share : t] - args->first;
        bool has = own >= 0 && own < args->count;
        char *from = (char *)x->data + (size_t)(t * x->strides[0]) * element;
        size_t before = (size_t)(has ? own * args->each : width) * element,
               behind = has ? (size_t)((args->count - own - 1) * args->each) * element : 0;
        for (int64_t c = 0; c < x->dims[1]; c += width, from += (size_t)width * element) {
            memset(from, 0, before);
            memset(from + (size_t)width * element - behind, 0, behind);
        }
    }
    return TT_OK;
}

tt_status tt_cpu_column_dots(struct tt_stream *stream, const struct tt_column_dots_args *args)
{
    int64_t columns = args->x_TN.dims[1];
    void (*dot_strip)(const struct tt_column_dots_args *, int64_t, int64_t) = TT_BEST(stream, dot_strip);
    int threads = tt_cpu_threads(stream, tt_tensor_count(args->x_TN));
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t first = 0; first < columns; first += STRIP)
        dot_strip(args, first, columns - first < STRIP ? columns - first : STRIP);
    return TT_OK;
}

#else

TT_INLINE float TT_PASS(squares_typed)(const void *w, int64_t at, int64_t width, const bool bf16)
{
    vf sums[4] = {{0}, {0}, {0}, {0}};
    int64_t k = 0;
    for (; k + 4 * TT_VECTOR_LANES <= width; k += 4 * TT_VECTOR_LANES)
        for (int i = 0; i < 4; i++) {
            vf part = vload(w, at + k + i * TT_VECTOR_LANES, bf16);
            sums[i] = vmultiply_add(part, part, sums[i]);
        }
    for (; k < width; k += TT_VECTOR_LANES) {
        vf part = vload_part(w, at + k, bf16, width - k < TT_VECTOR_LANES ? width - k : TT_VECTOR_LANES);
        sums[0] = vmultiply_add(part, part, sums[0]);
    }
    return vsum((sums[0] + sums[1]) + (sums[2] + sums[3]));
}

static float TT_PASS(squares_of_row)(const tt_tensor *w, int64_t row)
{
    int64_t at = row * w->strides[0], width = w->dims[1];
    return w->dtype == TT_BF16 ? TT_PASS(squares_typed)(w->data, at, width, true)
                               : TT_PASS(squares_typed)(w->data, at, width, false);
}

TT_INLINE void TT_PASS(scale_typed)(const struct tt_scale_columns_args *args, int64_t row, const bool x_bf16,
                                    const bool y_bf16)
{
    const tt_tensor *x = &args->x_TN, *y = &args->y_TN, *addend = &args->addend_TN;
    int64_t width = x->dims[1], x_at = row * x->strides[0], y_at = row * y->strides[0];
    bool adds = !tt_tensor_is_empty(*addend), addend_bf16 = addend->dtype == TT_BF16;
    int64_t addend_at = adds ? row * addend->strides[0] : 0;
    for (int64_t n = 0; n < width; n += TT_VECTOR_LANES) {
        int64_t left = width - n < TT_VECTOR_LANES ? width - n : TT_VECTOR_LANES;
        vf factor = vload_part(args->a_N.data, n, false, left);
        if (args->b_N.data != NULL) factor *= vload_part(args->b_N.data, n, false, left);
        vf value = vload_part(x->data, x_at + n, x_bf16, left);
        if (adds) {
            vf more = vload_part(addend->data, addend_at + n, addend_bf16, left);
            vstore_part(y->data, y_at + n, y_bf16, vmultiply_add(value, factor, more), left);
        } else {
            vstore_part(y->data, y_at + n, y_bf16, value * factor, left);
        }
    }
}

static void TT_PASS(scale_row)(const struct tt_scale_columns_args *args, int64_t row)
{
    bool x_bf16 = args->x_TN.dtype == TT_BF16, y_bf16 = args->y_TN.dtype == TT_BF16;
    if (x_bf16 && y_bf16)
        TT_PASS(scale_typed)(args, row, true, true);
    else if (!x_bf16 && !y_bf16)
        TT_PASS(scale_typed)(args, row, false, false);
    else
        TT_PASS(scale_typed)(args, row, x_bf16, y_bf16);
}

TT_INLINE void TT_PASS(dot_typed)(const struct tt_column_dots_args *args, int64_t n, int64_t left,
                                  const bool x_bf16, const bool g_bf16)
{
    const tt_tensor *x = &args->x_TN, *g = &args->g_TN;
    int64_t rows = x->dims[0];
    vf total = {0};
    for (int64_t first = 0; first < rows; first += GROUP_ROWS) {
        int64_t end = first + GROUP_ROWS < rows ? first + GROUP_ROWS : rows;
        vf group = {0};
        for (int64_t t = first; t < end; t++)
            group = vmultiply_add(vload_part(x->data, t * x->strides[0] + n, x_bf16, left),
                                  vload_part(g->data, t * g->strides[0] + n, g_bf16, left), group);
        total += group;
    }
    vf before = vload_part(args->dots_N.data, n, false, left);
    vf scale = vload_part(args->b_N.data, n, false, left);
    vstore_part(args->dots_N.data, n, false, vmultiply_add(scale, total, before), left);
}

static void TT_PASS(dot_strip)(const struct tt_column_dots_args *args, int64_t first, int64_t count)
{
    bool x_bf16 = args->x_TN.dtype == TT_BF16, g_bf16 = args->g_TN.dtype == TT_BF16;
    for (int64_t n = first; n < first + count; n += TT_VECTOR_LANES) {
        int64_t left = first + count - n < TT_VECTOR_LANES ? first + count - n : TT_VECTOR_LANES;
        if (x_bf16 && g_bf16)
            TT_PASS(dot_typed)(args, n, left, true, true);
        else if (!x_bf16 && !g_bf16)
            TT_PASS(dot_typed)(args, n, left, false, false);
        else
            TT_PASS(dot_typed)(args, n, left, x_bf16, g_bf16);
    }
}

#endif
