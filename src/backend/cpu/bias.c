/* Adding a bias to rows, and its gradient. */
#include "backend/cpu/parallel.h"
#include "backend/cpu/simd.h"

enum {
    ROWS_PER_GROUP = 64,     /* rows are summed in groups of this size, then the groups in order */
    COLUMNS_PER_BLOCK = 256, /* columns of a task: partial sums stay in registers and the first-level cache */
};

TT_SIMD_BODY tt_v8 load_some_as(const void *from, int64_t index, int64_t count, bool bf16)
{
    if (count >= TT_LANES) {
        return bf16 ? tt_v8_load_bf16((const uint16_t *)from + index)
                    : tt_v8_load((const float *)from + index);
    }
    return bf16 ? tt_v8_load_some_bf16((const uint16_t *)from + index, count)
                : tt_v8_load_some((const float *)from + index, count);
}

TT_SIMD_BODY void store_some_as(void *to, int64_t index, tt_v8 x, int64_t count, bool bf16)
{
    if (count >= TT_LANES && bf16) {
        tt_v8_store_bf16((uint16_t *)to + index, x);
    } else if (count >= TT_LANES) {
        tt_v8_store((float *)to + index, x);
    } else if (bf16) {
        tt_v8_store_some_bf16((uint16_t *)to + index, x, count);
    } else {
        tt_v8_store_some((float *)to + index, x, count);
    }
}

/* Forward: y += bias for one row. */
TT_SIMD_BODY void add_row_as(void *y, bool y_bf16, const void *bias, bool bias_bf16, int64_t count)
{
    for (int64_t j = 0; j < count; j += TT_LANES) {
        tt_v8 sum = load_some_as(y, j, count - j, y_bf16) + load_some_as(bias, j, count - j, bias_bf16);
        store_some_as(y, j, sum, count - j, y_bf16);
    }
}

TT_SIMD_BODY void add_row_body(void *y, bool y_bf16, const void *bias, bool bias_bf16, int64_t count)
{
    if (y_bf16 && bias_bf16) {
        add_row_as(y, true, bias, true, count);
    } else if (y_bf16) {
        add_row_as(y, true, bias, false, count);
    } else if (bias_bf16) {
        add_row_as(y, false, bias, true, count);
    } else {
        add_row_as(y, false, bias, false, count);
    }
}

TT_SIMD_AVX2 static void add_row_avx2(void *y, bool y_bf16, const void *bias, bool bias_bf16, int64_t count)
{
    add_row_body(y, y_bf16, bias, bias_bf16, count);
}

static void add_row_portable(void *y, bool y_bf16, const void *bias, bool bias_bf16, int64_t count)
{
    add_row_body(y, y_bf16, bias, bias_bf16, count);
}

tt_status tt_cpu_bias_forward(struct tt_stream *stream, const struct tt_bias_forward_args *args)
{
    tt_tensor y = args->y_TN;
    int64_t rows = y.dims[0], columns = y.dims[1];
    bool y_bf16 = y.dtype == TT_BF16, bias_bf16 = args->bias_N.dtype == TT_BF16;
    int64_t row_bytes = y.strides[0] * (int64_t)tt_dtype_bytes(y.dtype);
    int threads = tt_cpu_threads(stream, rows * columns);
    bool avx2 = tt_cpu_isa(stream) >= TT_CPU_AVX2;
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t row = 0; row < rows; row++) {
        (avx2 ? add_row_avx2 : add_row_portable)((char *)y.data + row * row_bytes, y_bf16, args->bias_N.data,
                                                 bias_bf16, columns);
    }
    return TT_OK;
}

/* Backward: adds the sums of `count` <= COLUMNS_PER_BLOCK columns to dbias. */
TT_SIMD_BODY void sum_rows_as(float *dbias, const void *dy, bool bf16, int64_t stride, int64_t rows,
                              int64_t count)
{
    for (int64_t j = 0; j < count; j += TT_LANES) {
        tt_v8 total = load_some_as(dbias, j, count - j, false);
        for (int64_t first = 0; first < rows; first += ROWS_PER_GROUP) {
            int64_t end = first + ROWS_PER_GROUP < rows ? first + ROWS_PER_GROUP : rows;
            tt_v8 group = tt_v8_set(0.0f);
            for (int64_t row = first; row < end; row++) {
                group += load_some_as(dy, row * stride + j, count - j, bf16);
            }
            total += group;
        }
        store_some_as(dbias, j, total, count - j, false);
    }
}

TT_SIMD_BODY void sum_rows_body(float *dbias, const void *dy, bool bf16, int64_t stride, int64_t rows,
                                int64_t count)
{
    if (bf16) {
        sum_rows_as(dbias, dy, true, stride, rows, count);
    } else {
        sum_rows_as(dbias, dy, false, stride, rows, count);
    }
}

TT_SIMD_AVX2 static void sum_rows_avx2(float *dbias, const void *dy, bool bf16, int64_t stride, int64_t rows,
                                       int64_t count)
{
    sum_rows_body(dbias, dy, bf16, stride, rows, count);
}

static void sum_rows_portable(float *dbias, const void *dy, bool bf16, int64_t stride, int64_t rows,
                              int64_t count)
{
    sum_rows_body(dbias, dy, bf16, stride, rows, count);
}

tt_status tt_cpu_bias_backward(struct tt_stream *stream, const struct tt_bias_backward_args *args)
{
    tt_tensor dy = args->dy_TN;
    int64_t rows = dy.dims[0], columns = dy.dims[1];
    bool bf16 = dy.dtype == TT_BF16, avx2 = tt_cpu_isa(stream) >= TT_CPU_AVX2;
    int threads = tt_cpu_threads(stream, rows * columns);
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t first = 0; first < columns; first += COLUMNS_PER_BLOCK) {
        int64_t count = columns - first < COLUMNS_PER_BLOCK ? columns - first : COLUMNS_PER_BLOCK;
        (avx2 ? sum_rows_avx2 : sum_rows_portable)((float *)args->dbias_N.data + first,
                                                   (const char *)dy.data + first * (bf16 ? 2 : 4), bf16,
                                                   dy.strides[0], rows, count);
    }
    return TT_OK;
}
