/* Device code for rows in E4M3 (tensor/e4m3.h): the largest size of a row by a thread block, its scale, and codes. */
#ifndef TT_BACKEND_CUDA_QUANT_ROWS_E4M3_CUH
#define TT_BACKEND_CUDA_QUANT_ROWS_E4M3_CUH

#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include "backend/cuda/device_math.cuh"
#include "tensor/e4m3.h"

namespace
{

constexpr int ROW_WARP = 32;

/* Contiguous rows in FP8. */
struct coded_rows {
    uint8_t *codes; /* NULL: not wanted */
    float *scale;
};

inline struct coded_rows coded_of(const tt_tensor &codes, const tt_tensor &scale)
{
    if (tt_tensor_is_empty(codes)) return {nullptr, nullptr};
    return {static_cast<uint8_t *>(codes.data), static_cast<float *>(scale.data)};
}

/* Threads of a block that holds a row of so many vectors. */
inline int row_threads(int64_t vectors)
{
    return vectors <= 128 ? 64 : vectors <= 1024 ? 256 : 512;
}

/* The largest of the block's values, in every thread; sizes of floats as bits, so NaN is above infinity. */
__device__ __forceinline__ uint32_t block_largest(uint32_t value, uint32_t (&partial)[ROW_WARP])
{
    uint32_t lane = threadIdx.x % ROW_WARP, warp = threadIdx.x / ROW_WARP, warps = blockDim.x / ROW_WARP;
    value = __reduce_max_sync(0xffffffffu, value);
    if (lane == 0) partial[warp] = value;
    __syncthreads();
    value = lane < warps ? partial[lane] : 0;
    return __reduce_max_sync(0xffffffffu, value);
}

/* The largest of the block's first values, and of its second ones. */
__device__ __forceinline__ void block_largest(uint32_t (&value)[2], uint32_t (&partial)[2][ROW_WARP])
{
    uint32_t lane = threadIdx.x % ROW_WARP, warp = threadIdx.x / ROW_WARP, warps = blockDim.x / ROW_WARP;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        value[i] = __reduce_max_sync(0xffffffffu, value[i]);
        if (lane == 0) partial[i][warp] = value[i];
    }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < 2; i++)
        value[i] = __reduce_max_sync(0xffffffffu, lane < warps ? partial[i][lane] : 0);
}

__device__ __forceinline__ float row_scale(uint32_t largest)
{
    float size = __uint_as_float(largest);
    return __fdiv_rn(size < TT_E4M3_LEAST_ROW ? TT_E4M3_LEAST_ROW : size, TT_E4M3_MOST);
}

__device__ __forceinline__ uint32_t size_of(float x)
{
    return __float_as_uint(x) & 0x7fffffffu;
}

template <int W> __device__ __forceinline__ uint32_t largest_of(uint32_t largest, const float (&x)[W])
{
#pragma unroll
    for (int i = 0; i < W; i++) largest = max(largest, size_of(x[i]));
    return largest;
}

/* The same of numbers in bf16, two at a time: `pair` has the largest sizes of the low and the high halves of words. */
template <int W> __device__ __forceinline__ uint32_t largest_pair(uint32_t pair, const vec<bf16, W> &x)
{
    static_assert(W % 2 == 0, "whole words");
#pragma unroll
    for (int i = 0; i < W / 2; i++) pair = __vmaxu2(pair, x.word[i] & 0x7fff7fffu);
    return pair;
}

__device__ __forceinline__ uint32_t largest_of_pair(uint32_t pair)
{
    return max(pair << 16, pair & 0xffff0000u);
}

/* The scale of a row as a divisor of its numbers. */
struct row_divisor {
    float scale, factor;
};

__device__ __forceinline__ struct row_divisor divisor_of(float scale)
{
    return {isinf(scale) ? 0.0f : scale, __frcp_rn(scale)};
}

/* x / scale: the product with the reciprocal, corrected by its remainder (Markstein, IBM Journal of Research and
 * Development 34, 1990). The code of the result is that of the rounded quotient; compared for 3e8 numbers around the
 * borders of codes, it is so in all rows whose largest number is above 2^-96. An infinite scale gives 0. The sum that
 * corrects would lose the sign of a zero. */
__device__ __forceinline__ float divided(float x, struct row_divisor by)
{
    float quotient = __fmul_rn(x, by.factor);
    return copysignf(__fmaf_rn(__fmaf_rn(-quotient, by.scale, x), by.factor, quotient), x);
}

__device__ __forceinline__ uint8_t code_of(float x, struct row_divisor by)
{
    return (uint8_t)__nv_cvt_float_to_fp8(divided(x, by), __NV_SATFINITE, __NV_E4M3);
}

/* Those of two numbers, the first in the low byte: one instruction rounds both. */
__device__ __forceinline__ uint32_t codes_of(float x, float y, struct row_divisor by_x, struct row_divisor by_y)
{
    return __nv_cvt_float2_to_fp8x2(make_float2(divided(x, by_x), divided(y, by_y)), __NV_SATFINITE,
                                    __NV_E4M3);
}

/* The number that a code stands for, exactly. */
__device__ __forceinline__ float e4m3_value(uint32_t code)
{
    __half_raw half = __nv_cvt_fp8_to_halfraw((__nv_fp8_storage_t)code, __NV_E4M3);
    return __half2float(__half(half));
}

/* Those of two codes, the first in the low byte. */
__device__ __forceinline__ float2 e4m3_values(uint32_t codes)
{
    __half2_raw halves = __nv_cvt_fp8x2_to_halfraw2((__nv_fp8x2_storage_t)codes, __NV_E4M3);
    return __half22float2(__half2(halves));
}

/* W codes, four to a word. */
template <int W> __device__ __forceinline__ void store_codes(uint8_t *to, const float (&x)[W],
                                                                struct row_divisor by)
{
    uint32_t word[W / 4];
#pragma unroll
    for (int i = 0; i < W / 4; i++) {
        float2 low = make_float2(divided(x[4 * i], by), divided(x[4 * i + 1], by)),
               high = make_float2(divided(x[4 * i + 2], by), divided(x[4 * i + 3], by));
        word[i] = (uint32_t)__nv_cvt_float2_to_fp8x2(low, __NV_SATFINITE, __NV_E4M3) |
                  (uint32_t)__nv_cvt_float2_to_fp8x2(high, __NV_SATFINITE, __NV_E4M3) << 16;
    }
    if constexpr (W == 8)
        *reinterpret_cast<uint2 *>(to) = make_uint2(word[0], word[1]);
    else
        *reinterpret_cast<uint32_t *>(to) = word[0];
}

/* The codes of row n from the vectors that a block holds, when `largest` is that of the thread's values. */
template <typename T, int W, int CHUNKS>
__device__ __forceinline__ void store_held_codes(const struct coded_rows &to, int64_t n, int width,
                                                 const vec<T, W> (&held)[CHUNKS], uint32_t largest)
{
    __shared__ uint32_t sizes[ROW_WARP];
    int first = (int)threadIdx.x * W, step = (int)blockDim.x * W;
    float scale = row_scale(block_largest(largest, sizes));
    struct row_divisor by = divisor_of(scale);
    uint8_t *codes = to.codes + n * width;
    if (threadIdx.x == 0) to.scale[n] = scale;
#pragma unroll
    for (int k = 0; k < CHUNKS; k++) {
        if (first + k * step >= width) break;
        float p[W];
        widen(held[k], p);
        store_codes(codes + first + k * step, p, by);
    }
}

/* The codes of row n, whose elements `value` gives as often as asked; a thread block has the row. */
template <typename V>
__device__ __forceinline__ void store_codes_any(const struct coded_rows &to, int64_t n, int64_t width,
                                                V value)
{
    __shared__ uint32_t sizes[ROW_WARP];
    uint32_t largest = 0;
    for (int64_t d = threadIdx.x; d < width; d += blockDim.x) largest = max(largest, size_of(value(d)));
    float scale = row_scale(block_largest(largest, sizes));
    struct row_divisor by = divisor_of(scale);
    if (threadIdx.x == 0) to.scale[n] = scale;
    for (int64_t d = threadIdx.x; d < width; d += blockDim.x)
        to.codes[n * width + d] = code_of(value(d), by);
}

} // namespace

#endif
