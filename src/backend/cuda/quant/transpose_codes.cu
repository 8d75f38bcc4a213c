/* The transposed matrix of E4M3 codes or of numbers, quantized by its own rows (ops/gemm_scaled.h), bound by memory:
 * the largest size of each column, its scale, then tiles that are transposed in shared memory. Sizes are compared as
 * integers, whose largest does not depend on the order. */
#include "backend/cuda/quant/rows_e4m3.cuh"

namespace
{

constexpr int TILE = 64, THREADS = 256, WORD = 4; /* codes of a word */
constexpr int TILE_WORDS = TILE / WORD, ROWS_A_STEP = THREADS / TILE_WORDS;
constexpr int SIZED_ROWS = 512; /* of a block that looks for the largest */

struct turning {
    const void *from;   /* codes, fp32 or bf16 */
    const float *scale; /* of codes */
    uint8_t *transposed;
    float *transposed_scale; /* in between: the largest sizes, as bits */
    int64_t rows, cols; /* of one of the matrices, which stand one below the other */
    int count;
};

/* The matrix of this block. */
__device__ __forceinline__ struct turning own_matrix(struct turning t, int bytes)
{
    int64_t at = blockIdx.z;
    t.from = static_cast<const char *>(t.from) + at * t.rows * t.cols * bytes;
    if (t.scale != nullptr) t.scale += at * t.rows;
    t.transposed += at * t.rows * t.cols;
    t.transposed_scale += at * t.cols;
    return t;
}

/* WORD numbers of a row. */
__device__ __forceinline__ void load_numbers(const struct turning &t, const uint8_t *codes, int64_t row, int64_t col,
                                             float (&x)[WORD])
{
    uint32_t word = *reinterpret_cast<const uint32_t *>(codes + row * t.cols + col);
    float scale = t.scale[row];
#pragma unroll
    for (int i = 0; i < WORD; i += 2) {
        float2 pair = e4m3_values(word >> 8 * i & 0xffffu);
        x[i] = __fmul_rn(pair.x, scale);
        x[i + 1] = __fmul_rn(pair.y, scale);
    }
}

template <typename T>
__device__ __forceinline__ void load_numbers(const struct turning &t, const T *numbers, int64_t row, int64_t col,
                                             float (&x)[WORD])
{
    widen(load<T, WORD>(numbers + row * t.cols + col), x);
}

/* A block has TILE columns; a thread has four of them, and every ROWS_A_STEP-th row. */
template <typename T> __global__ void __launch_bounds__(THREADS) find_largest(const struct turning all)
{
    const struct turning t = own_matrix(all, sizeof(T));
    __shared__ uint32_t shared[TILE];
    int word = threadIdx.x % TILE_WORDS;
    int64_t col = (int64_t)blockIdx.x * TILE + word * WORD, end = ((int64_t)blockIdx.y + 1) * SIZED_ROWS;
    uint32_t largest[WORD] = {};
    if (threadIdx.x < TILE) shared[threadIdx.x] = 0;
    __syncthreads();
    if (end > t.rows) end = t.rows;
    if (col < t.cols) {
        for (int64_t row = (int64_t)blockIdx.y * SIZED_ROWS + threadIdx.x / TILE_WORDS; row < end; row += ROWS_A_STEP) {
            float x[WORD];
            load_numbers(t, static_cast<const T *>(t.from), row, col, x);
#pragma unroll
            for (int i = 0; i < WORD; i++) largest[i] = max(largest[i], size_of(x[i]));
        }
#pragma unroll
        for (int i = 0; i < WORD; i++) atomicMax(&shared[word * WORD + i], largest[i]);
    }
    __syncthreads();
    int64_t own = (int64_t)blockIdx.x * TILE + threadIdx.x;
    if (threadIdx.x < TILE && own < t.cols)
        atomicMax(reinterpret_cast<uint32_t *>(t.transposed_scale) + own, shared[threadIdx.x]);
}

__global__ void __launch_bounds__(THREADS) make_scales(const struct turning t)
{
    int64_t col = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (col < t.count * t.cols) t.transposed_scale[col] = row_scale(__float_as_uint(t.transposed_scale[col]));
}

template <typename T> __global__ void __launch_bounds__(THREADS) turn_tiles(const struct turning all)
{
    const struct turning t = own_matrix(all, sizeof(T));
    __shared__ uint8_t tile[TILE][TILE + WORD];
    int64_t first_col = (int64_t)blockIdx.x * TILE, first_row = (int64_t)blockIdx.y * TILE;
    int word = threadIdx.x % TILE_WORDS, step = threadIdx.x / TILE_WORDS;
    int64_t col = first_col + word * WORD;
    if (col < t.cols) {
        struct row_divisor by[WORD];
#pragma unroll
        for (int i = 0; i < WORD; i++) by[i] = divisor_of(t.transposed_scale[col + i]);
        for (int r = step; r < TILE && first_row + r < t.rows; r += ROWS_A_STEP) {
            float x[WORD];
            load_numbers(t, static_cast<const T *>(t.from), first_row + r, col, x);
#pragma unroll
            for (int i = 0; i < WORD; i += 2) {
                uint32_t pair = codes_of(x[i], x[i + 1], by[i], by[i + 1]);
                tile[word * WORD + i][r] = (uint8_t)pair;
                tile[word * WORD + i + 1][r] = (uint8_t)(pair >> 8);
            }
        }
    }
    __syncthreads();
    int64_t row = first_row + word * WORD;
    if (row >= t.rows) return;
    for (int c = step; c < TILE && first_col + c < t.cols; c += ROWS_A_STEP)
        *reinterpret_cast<uint32_t *>(t.transposed + (first_col + c) * t.rows + row) =
            *reinterpret_cast<const uint32_t *>(&tile[c][word * WORD]);
}

template <typename T> tt_status transpose(struct tt_stream *stream, const struct turning &t)
{
    cudaStream_t on = tt_cuda_handle(stream);
    unsigned columns = (unsigned)((t.cols + TILE - 1) / TILE);
    unsigned count = (unsigned)t.count;
    int64_t scales = t.count * t.cols;
    dim3 sized(columns, (unsigned)((t.rows + SIZED_ROWS - 1) / SIZED_ROWS), count),
        tiles(columns, (unsigned)((t.rows + TILE - 1) / TILE), count);
    TT_TRY(tt_cuda_check(cudaMemsetAsync(t.transposed_scale, 0, (size_t)scales * sizeof(float), on), stream,
                         "the largest sizes of columns"));
    find_largest<T><<<sized, THREADS, 0, on>>>(t);
    make_scales<<<(unsigned)((scales + THREADS - 1) / THREADS), THREADS, 0, on>>>(t);
    turn_tiles<T><<<tiles, THREADS, 0, on>>>(t);
    return TT_OK;
}

} // namespace

extern "C" tt_status tt_cuda_transpose_codes(struct tt_stream *stream, const struct tt_transpose_codes_args *args)
{
    const tt_tensor &codes = args->codes_NK;
    int count = args->matrices == 0 ? 1 : (int)args->matrices;
    struct turning t = {codes.data,
                        static_cast<const float *>(args->scale_N.data),
                        static_cast<uint8_t *>(args->transposed_KN.data),
                        static_cast<float *>(args->transposed_scale_K.data),
                        codes.dims[0] / count,
                        codes.dims[1],
                        count};
    TT_TRY(transpose<uint8_t>(stream, t));
    return tt_cuda_launched(stream, "transpose_codes", &codes);
}

extern "C" tt_status tt_cuda_quantize_columns(struct tt_stream *stream, const struct tt_quantize_columns_args *args)
{
    const tt_tensor &x = args->x_MK;
    struct turning t = {x.data,
                        nullptr,
                        static_cast<uint8_t *>(args->codes_KM.data),
                        static_cast<float *>(args->scale_K.data),
                        x.dims[0],
                        x.dims[1],
                        1};
    TT_TRY(x.dtype == TT_BF16 ? transpose<bf16>(stream, t) : transpose<float>(stream, t));
    return tt_cuda_launched(stream, "quantize_columns", &x);
}
