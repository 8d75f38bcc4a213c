/* Rows to E4M3 with a scale each (tensor/e4m3.h), bound by memory. A thread block has a row: it holds the row in
 * registers between the search for the largest size and the conversion, so that the row is read once. */
#include <cuda_fp8.h>

#include "backend/cuda/device_math.cuh"
#include "tensor/e4m3.h"

namespace
{

constexpr int WARP = 32;

/* The largest of the block's values, in every thread; sizes of floats as bits, so NaN is above infinity. */
__device__ __forceinline__ uint32_t block_largest(uint32_t value, uint32_t (&partial)[WARP])
{
    uint32_t lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, warps = blockDim.x / WARP;
    value = __reduce_max_sync(0xffffffffu, value);
    if (lane == 0) partial[warp] = value;
    __syncthreads();
    value = lane < warps ? partial[lane] : 0;
    return __reduce_max_sync(0xffffffffu, value);
}

__device__ __forceinline__ float scale_of(uint32_t largest)
{
    float size = __uint_as_float(largest);
    return __fdiv_rn(size < TT_E4M3_LEAST_ROW ? TT_E4M3_LEAST_ROW : size, TT_E4M3_MOST);
}

__device__ __forceinline__ uint32_t size_of(float x)
{
    return __float_as_uint(x) & 0x7fffffffu;
}

__device__ __forceinline__ uint8_t code_of(float x, float factor)
{
    return (uint8_t)__nv_cvt_float_to_fp8(__fmul_rn(x, factor), __NV_SATFINITE, __NV_E4M3);
}

/* W codes, four to a word. */
template <int W> __device__ __forceinline__ void store_codes(uint8_t *to, const float (&x)[W], float factor)
{
    uint32_t word[W / 4];
#pragma unroll
    for (int i = 0; i < W / 4; i++) {
        float2 low = make_float2(__fmul_rn(x[4 * i], factor), __fmul_rn(x[4 * i + 1], factor)),
               high = make_float2(__fmul_rn(x[4 * i + 2], factor), __fmul_rn(x[4 * i + 3], factor));
        word[i] = (uint32_t)__nv_cvt_float2_to_fp8x2(low, __NV_SATFINITE, __NV_E4M3) |
                  (uint32_t)__nv_cvt_float2_to_fp8x2(high, __NV_SATFINITE, __NV_E4M3) << 16;
    }
    if constexpr (W == 8)
        *reinterpret_cast<uint2 *>(to) = make_uint2(word[0], word[1]);
    else
        *reinterpret_cast<uint32_t *>(to) = word[0];
}

struct matrix {
    const void *x;
    uint8_t *codes;
    float *scale;
    int64_t stride, cols;
};

template <typename T, int CHUNKS> __global__ void __launch_bounds__(512) quantize_held(const struct matrix m)
{
    constexpr int W = wide<T>();
    __shared__ uint32_t partial[WARP];
    int64_t row = blockIdx.x;
    int first = (int)threadIdx.x * W, step = (int)blockDim.x * W, cols = (int)m.cols;
    const T *x = static_cast<const T *>(m.x) + row * m.stride;
    uint8_t *codes = m.codes + row * m.cols;
    vec<T, W> held[CHUNKS];
    uint32_t largest = 0;
#pragma unroll
    for (int k = 0; k < CHUNKS; k++)
        if (first + k * step < cols) held[k] = load<T, W>(x + first + k * step);
#pragma unroll
    for (int k = 0; k < CHUNKS; k++) {
        if (first + k * step >= cols) break;
        float p[W];
        widen(held[k], p);
#pragma unroll
        for (int i = 0; i < W; i++) largest = max(largest, size_of(p[i]));
    }
    float scale = scale_of(block_largest(largest, partial)), factor = __frcp_rn(scale);
    if (threadIdx.x == 0) m.scale[row] = scale;
#pragma unroll
    for (int k = 0; k < CHUNKS; k++) {
        if (first + k * step >= cols) break;
        float p[W];
        widen(held[k], p);
        store_codes(codes + first + k * step, p, factor);
    }
}

/* Any width and alignment; reads the row twice. */
template <typename T> __global__ void __launch_bounds__(512) quantize_any(const struct matrix m)
{
    __shared__ uint32_t partial[WARP];
    int64_t row = blockIdx.x;
    const T *x = static_cast<const T *>(m.x) + row * m.stride;
    uint8_t *codes = m.codes + row * m.cols;
    uint32_t largest = 0;
    for (int64_t d = threadIdx.x; d < m.cols; d += blockDim.x) largest = max(largest, size_of(load_one(x + d)));
    float scale = scale_of(block_largest(largest, partial)), factor = __frcp_rn(scale);
    if (threadIdx.x == 0) m.scale[row] = scale;
    for (int64_t d = threadIdx.x; d < m.cols; d += blockDim.x) codes[d] = code_of(load_one(x + d), factor);
}

template <typename T> void launch(cudaStream_t stream, const struct matrix &m, int64_t rows, bool aligned)
{
    constexpr int W = wide<T>(), MOST = 8;
    int64_t vectors = (m.cols + W - 1) / W;
    int threads = vectors <= 128 ? 64 : vectors <= 1024 ? 256 : 512, blocks = (int)rows;
    int64_t chunks = (vectors + threads - 1) / threads;
    if (!aligned || chunks > MOST)
        quantize_any<T><<<blocks, 512, 0, stream>>>(m);
    else if (chunks <= 2)
        quantize_held<T, 2><<<blocks, threads, 0, stream>>>(m);
    else if (chunks <= 4)
        quantize_held<T, 4><<<blocks, threads, 0, stream>>>(m);
    else
        quantize_held<T, MOST><<<blocks, threads, 0, stream>>>(m);
}

} // namespace

extern "C" tt_status tt_cuda_quantize_rows(struct tt_stream *stream, const struct tt_quantize_rows_args *args)
{
    const tt_tensor &x = args->x_MK;
    int64_t each = x.dtype == TT_BF16 ? 8 : 4; /* elements of a vector */
    struct matrix m = {x.data, static_cast<uint8_t *>(args->codes_MK.data),
                       static_cast<float *>(args->scale_M.data), x.strides[0], x.dims[1]};
    bool aligned = x.dims[1] % each == 0 && (x.dims[0] <= 1 || x.strides[0] % each == 0) &&
                   (uintptr_t)x.data % 16 == 0 && (uintptr_t)m.codes % 8 == 0;
    if (x.dtype == TT_BF16)
        launch<bf16>(tt_cuda_handle(stream), m, x.dims[0], aligned);
    else
        launch<float>(tt_cuda_handle(stream), m, x.dims[0], aligned);
    return tt_cuda_launched(stream, "quantize_rows", &x);
}
