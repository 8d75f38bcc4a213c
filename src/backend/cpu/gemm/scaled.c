/* FP8 products on processors, for the numbers rather than the speed: codes become bf16, which has all of them exactly,
 * and the product of bf16 matrices, whose sums are fp32, gets the scales afterwards. */
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("fp-contract=off") /* each operation is rounded on its own */
#else
#pragma STDC FP_CONTRACT OFF
#endif

#include "backend/ops/gemm_scaled.h"

#include <string.h>

#include "backend/compose.h"
#include "backend/cpu/e4m3.h"
#include "backend/cpu/gemm/scaled.h"
#include "backend/cpu/parallel.h"
#include "backend/cpu/simd.h"
#include "tensor/e4m3.h"

enum { TRANSPOSED = 64 };

/* |x| as bits: a larger size is a larger integer, and NaN is above infinity. */
TT_SIMD_BODY void quantize_row(const void *x, int64_t count, const bool bf16, uint8_t *codes, float *scale)
{
    const uint32_t *wide = x;
    const uint16_t *narrow = x;
    uint32_t largest = 0, size;
    float value, by;
    for (int64_t i = 0; i < count; i++) {
        size = (bf16 ? (uint32_t)narrow[i] << 16 : wide[i]) & 0x7fffffffu;
        largest = size > largest ? size : largest;
    }
    memcpy(&value, &largest, sizeof value);
    *scale = tt_e4m3_scale(value);
    by = *scale;
    for (int64_t i = 0; i < count; i++) {
        uint32_t bits = bf16 ? (uint32_t)narrow[i] << 16 : wide[i];
        memcpy(&value, &bits, sizeof value);
        codes[i] = tt_e4m3_from_f32(value / by);
    }
}

#define ROW(suffix, attribute)                                                                               \
    attribute static void quantize_row_##suffix(const void *x, int64_t count, bool bf16, uint8_t *codes,     \
                                                float *scale)                                                \
    {                                                                                                        \
        if (bf16)                                                                                            \
            quantize_row(x, count, true, codes, scale);                                                      \
        else                                                                                                 \
            quantize_row(x, count, false, codes, scale);                                                     \
    }
ROW(portable, )
ROW(avx2, TT_SIMD_AVX2)

tt_status tt_cpu_quantize_rows(struct tt_stream *stream, const struct tt_quantize_rows_args *args)
{
    void (*row_of)(const void *, int64_t, bool, uint8_t *, float *) =
        tt_cpu_isa(stream) >= TT_CPU_AVX2 ? quantize_row_avx2 : quantize_row_portable;
    int64_t rows = args->x_MK.dims[0], cols = args->x_MK.dims[1];
    size_t stride = (size_t)args->x_MK.strides[0] * tt_dtype_bytes(args->x_MK.dtype);
    uint8_t *codes = args->codes_MK.data;
    float *scale = args->scale_M.data;
    int threads = tt_cpu_threads(stream, rows * cols);
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t row = 0; row < rows; row++)
        row_of((const char *)args->x_MK.data + (size_t)row * stride, cols, args->x_MK.dtype == TT_BF16,
               codes + row * cols, scale + row);
    return TT_OK;
}

/* Each of sizes[i] is at least |values[i]|, as bits. */
TT_SIMD_BODY void raise_sizes(const float values[TRANSPOSED], uint32_t sizes[TRANSPOSED])
{
    for (int i = 0; i < TRANSPOSED; i++) {
        uint32_t size;
        memcpy(&size, &values[i], sizeof size);
        size &= 0x7fffffffu;
        sizes[i] = size > sizes[i] ? size : sizes[i];
    }
}

TT_SIMD_BODY void encode_values(const float values[TRANSPOSED], const float scales[TRANSPOSED],
                                uint8_t codes[TRANSPOSED])
{
    for (int i = 0; i < TRANSPOSED; i++) codes[i] = tt_e4m3_from_f32(values[i] / scales[i]);
}

/* Eight rows of eight codes, TRANSPOSED apart, become rows of `to`, `stride` apart: quarters, then quarters of these,
 * then single codes change places. */
TT_SIMD_BODY void transpose_8(const uint8_t *from, uint8_t *to, int64_t stride)
{
    uint64_t x[8];
    for (int i = 0; i < 8; i++) memcpy(&x[i], from + i * TRANSPOSED, sizeof x[i]);
    static const uint64_t masks[] = {0x00ff00ff00ff00ffu, 0x0000ffff0000ffffu, 0x00000000ffffffffu};
    for (int level = 2; level >= 0; level--) {
        int apart = 1 << level, bits = 8 << level;
        for (int i = 0; i < 8; i++) {
            if ((i & apart) != 0) continue;
            uint64_t changed = (x[i] >> bits ^ x[i + apart]) & masks[level];
            x[i] ^= changed << bits;
            x[i + apart] ^= changed;
        }
    }
    for (int i = 0; i < 8; i++) memcpy(to + i * stride, &x[i], sizeof x[i]);
}

/* A matrix whose columns become rows of codes. */
struct turning {
    tt_tensor x_MK;     /* F8_E4M3, f32 or bf16; contiguous */
    const float *scale; /* of rows of codes */
    uint8_t *transposed;
    float *transposed_scale;
    tt_cpu_e4m3_decode *decode;
};

/* Numbers first .. first + count - 1 of a row. */
TT_SIMD_BODY void load_numbers(const struct turning *turning, int64_t row, int64_t first, int64_t count,
                               float values[TRANSPOSED])
{
    const void *data = turning->x_MK.data;
    int64_t at = row * turning->x_MK.dims[1] + first;
    if (turning->scale != NULL)
        turning->decode((const uint8_t *)data + at, count, turning->scale[row], values, 0, false);
    else if (turning->x_MK.dtype == TT_F32)
        memcpy(values, (const float *)data + at, (size_t)count * sizeof *values);
    else
        for (int64_t i = 0; i < count; i++) values[i] = tt_bf16_to_f32(((const uint16_t *)data)[at + i]);
}

/* Columns first .. first + count - 1 become rows, a square of TRANSPOSED codes at a time. Reads along rows; columns
 * behind `count` are zeros. Rows and columns are multiples of 16. */
TT_SIMD_BODY void transpose_columns(const struct turning *turning, int64_t first, int64_t count)
{
    int64_t rows = turning->x_MK.dims[0];
    uint8_t *transposed = turning->transposed + first * rows;
    float *transposed_scale = turning->transposed_scale + first;
    float values[TRANSPOSED] = {0}, scales[TRANSPOSED] = {0};
    uint32_t sizes[TRANSPOSED] = {0};
    uint8_t square[TRANSPOSED][TRANSPOSED];
    for (int64_t row = 0; row < rows; row++) {
        load_numbers(turning, row, first, count, values);
        raise_sizes(values, sizes);
    }
    for (int64_t c = 0; c < count; c++) {
        float size;
        memcpy(&size, &sizes[c], sizeof size);
        transposed_scale[c] = tt_e4m3_scale(size);
        scales[c] = transposed_scale[c];
    }
    for (int64_t row = 0; row < rows; row += TRANSPOSED) {
        int64_t height = rows - row < TRANSPOSED ? rows - row : TRANSPOSED;
        for (int64_t r = 0; r < height; r++) {
            load_numbers(turning, row + r, first, count, values);
            encode_values(values, scales, square[r]);
        }
        for (int64_t c = 0; c < count; c += 8)
            for (int64_t r = 0; r < height; r += 8)
                transpose_8(&square[r][c], transposed + c * rows + row + r, rows);
    }
}

#define COLUMNS(suffix, attribute)                                                                           \
    attribute static void transpose_columns_##suffix(const struct turning *turning, int64_t first,           \
                                                     int64_t count)                                          \
    {                                                                                                        \
        transpose_columns(turning, first, count);                                                            \
    }
COLUMNS(portable, )
COLUMNS(avx2, TT_SIMD_AVX2)

static void turn(struct tt_stream *stream, const struct turning *turning)
{
    int64_t cols = turning->x_MK.dims[1];
    int threads = tt_cpu_threads(stream, turning->x_MK.dims[0] * cols);
    bool avx2 = tt_cpu_isa(stream) >= TT_CPU_AVX2;
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t first = 0; first < cols; first += TRANSPOSED)
        (avx2 ? transpose_columns_avx2 : transpose_columns_portable)(
            turning, first, cols - first < TRANSPOSED ? cols - first : TRANSPOSED);
}

tt_status tt_cpu_transpose_codes(struct tt_stream *stream, const struct tt_transpose_codes_args *args)
{
    int64_t count = args->matrices == 0 ? 1 : args->matrices, rows = args->codes_NK.dims[0] / count,
            columns = args->codes_NK.dims[1];
    for (int64_t i = 0; i < count; i++) {
        struct turning turning = {
            tt_tensor_rows(args->codes_NK, i * rows, rows), (const float *)args->scale_N.data + i * rows,
            (uint8_t *)args->transposed_KN.data + i * rows * columns,
            (float *)args->transposed_scale_K.data + i * columns, tt_cpu_e4m3_decode_of(stream)};
        turn(stream, &turning);
    }
    return TT_OK;
}

tt_status tt_cpu_quantize_columns(struct tt_stream *stream, const struct tt_quantize_columns_args *args)
{
    struct turning turning = {
        .x_MK = args->x_MK, .transposed = args->codes_KM.data, .transposed_scale = args->scale_K.data};
    turn(stream, &turning);
    return TT_OK;
}

/* Rows of codes, `stride` apart, to contiguous bf16. */
static void decode(struct tt_stream *stream, const uint8_t *codes, int64_t rows, int64_t cols, int64_t stride,
                   uint16_t *to)
{
    tt_cpu_e4m3_widen *widen = tt_cpu_e4m3_widen_of(stream);
    int threads = tt_cpu_threads(stream, rows * cols);
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t row = 0; row < rows; row++) widen(codes + row * stride, cols, to + row * cols);
}

/* One row of y from its sums. */
static void finish_row(const struct tt_gemm_scaled_args *args, int64_t row, const float *sums)
{
    const tt_tensor *y = &args->y_MN, *addend = &args->addend_MN;
    const float *b_scale = args->b_scale_N.data;
    float a_scale = ((const float *)args->a_scale_M.data)[row];
    bool bf16 = y->dtype == TT_BF16, adds = !tt_tensor_is_empty(*addend);
    int64_t first = row * y->strides[0];
    for (int64_t n = 0; n < y->dims[1]; n++) {
        float value = sums[n] * (a_scale * b_scale[n]);
        if (adds)
            value += bf16 ? tt_bf16_to_f32(((const uint16_t *)addend->data)[first + n])
                          : ((const float *)addend->data)[first + n];
        if (bf16)
            ((uint16_t *)y->data)[first + n] = tt_f32_to_bf16(value);
        else
            ((float *)y->data)[first + n] = value;
    }
}

tt_status tt_cpu_gemm_scaled(struct tt_stream *stream, const struct tt_gemm_scaled_args *args)
{
    int64_t m = args->y_MN.dims[0], n = args->y_MN.dims[1], k = args->a_MK.dims[1];
    int64_t a_stride = args->a_MK.strides[0];
    struct tt_cpu_scaled_layout layout = tt_cpu_gemm_scaled_layout(m, n, k);
    char *scratch = args->scratch.data;
    uint16_t *b = (uint16_t *)(void *)(scratch + layout.b), *a = (uint16_t *)(void *)(scratch + layout.a);
    float *sums = (float *)(void *)(scratch + layout.sums);
    decode(stream, args->b_NK.data, n, k, k, b);
    for (int64_t row = 0; row < m; row += TT_CPU_SCALED_ROWS) {
        int64_t rows = m - row < TT_CPU_SCALED_ROWS ? m - row : TT_CPU_SCALED_ROWS;
        decode(stream, (const uint8_t *)args->a_MK.data + row * a_stride, rows, k, a_stride, a);
        struct tt_gemm_args product = {.a = tt_tensor_2d(a, TT_BF16, rows, k),
                                       .b = tt_tensor_2d(b, TT_BF16, n, k),
                                       .c = tt_tensor_2d(sums, TT_F32, rows, n),
                                       .trans_b = true,
                                       .alpha = 1};
        TT_TRY(tt_cpu_gemm(stream, &product));
        int threads = tt_cpu_threads(stream, rows * n);
#pragma omp parallel for num_threads(threads) schedule(static)
        for (int64_t i = 0; i < rows; i++) finish_row(args, row + i, sums + i * n);
    }
    return TT_OK;
}

tt_status tt_cpu_swiglu_rows(struct tt_stream *stream, const struct tt_swiglu_rows_args *args)
{
    return tt_compose_swiglu_rows(stream, args);
}

tt_status tt_cpu_swiglu_rows_backward(struct tt_stream *stream,
                                      const struct tt_swiglu_rows_backward_args *args)
{
    return tt_compose_swiglu_rows_backward(stream, args);
}
