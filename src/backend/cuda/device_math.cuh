/* Common device code of the kernels: elements in vectors of up to 16 bytes, sums over warps and blocks, random
 * numbers, and the host's choice of a kernel by type and alignment.
 *
 * A vec<T, W> holds W elements in their stored form, moved with one instruction when W * sizeof(T) is at most 16
 * bytes. So loads in flight occupy few registers until they are widened. All arithmetic is fp32; narrow() rounds
 * to nearest even. */
#ifndef TT_BACKEND_CUDA_DEVICE_MATH_CUH
#define TT_BACKEND_CUDA_DEVICE_MATH_CUH

#include "backend/cuda/cuda.h"

namespace
{

struct bf16 {
    uint16_t bits;
};

struct f16 {
    uint16_t bits;
};

template <typename T, int W> struct vec {
    enum { WORDS = W * (int)sizeof(T) < 4 ? 1 : W * (int)sizeof(T) / 4 };
    uint32_t word[WORDS];
};

/* Number of elements in an access of 16 bytes, for the widest of the types when an op mixes them. */
template <typename... T> constexpr int wide()
{
    constexpr int bytes[] = {(int)sizeof(T)...};
    int widest = 1;
    for (int size : bytes) widest = size > widest ? size : widest;
    return 16 / widest;
}

template <typename T, int W> __device__ __forceinline__ vec<T, W> load(const T *from)
{
    constexpr int bytes = W * (int)sizeof(T);
    vec<T, W> v;
    if constexpr (bytes == 16) {
        uint4 raw = *reinterpret_cast<const uint4 *>(from);
        v.word[0] = raw.x, v.word[1] = raw.y, v.word[2] = raw.z, v.word[3] = raw.w;
    } else if constexpr (bytes == 8) {
        uint2 raw = *reinterpret_cast<const uint2 *>(from);
        v.word[0] = raw.x, v.word[1] = raw.y;
    } else if constexpr (bytes == 4) {
        v.word[0] = *reinterpret_cast<const uint32_t *>(from);
    } else {
        static_assert(bytes == 2, "vectors have 2, 4, 8 or 16 bytes");
        v.word[0] = *reinterpret_cast<const uint16_t *>(from);
    }
    return v;
}

template <typename T, int W> __device__ __forceinline__ void store(T *to, const vec<T, W> &v)
{
    constexpr int bytes = W * (int)sizeof(T);
    if constexpr (bytes == 16) {
        *reinterpret_cast<uint4 *>(to) = make_uint4(v.word[0], v.word[1], v.word[2], v.word[3]);
    } else if constexpr (bytes == 8) {
        *reinterpret_cast<uint2 *>(to) = make_uint2(v.word[0], v.word[1]);
    } else if constexpr (bytes == 4) {
        *reinterpret_cast<uint32_t *>(to) = v.word[0];
    } else {
        static_assert(bytes == 2, "vectors have 2, 4, 8 or 16 bytes");
        *reinterpret_cast<uint16_t *>(to) = (uint16_t)v.word[0];
    }
}

template <int W> __device__ __forceinline__ void widen(const vec<float, W> &v, float (&x)[W])
{
#pragma unroll
    for (int i = 0; i < W; i++) x[i] = __uint_as_float(v.word[i]);
}

template <int W> __device__ __forceinline__ void widen(const vec<bf16, W> &v, float (&x)[W])
{
#pragma unroll
    for (int i = 0; i < W; i++)
        x[i] = __uint_as_float(i % 2 == 0 ? v.word[i / 2] << 16 : v.word[i / 2] & 0xffff0000u);
}

template <int W> __device__ __forceinline__ void widen(const vec<f16, W> &v, float (&x)[W])
{
#pragma unroll
    for (int i = 0; i < W; i++) {
        uint16_t half = (uint16_t)(i % 2 == 0 ? v.word[i / 2] : v.word[i / 2] >> 16);
        asm("cvt.f32.f16 %0, %1;" : "=f"(x[i]) : "h"(half));
    }
}

template <int W> __device__ __forceinline__ void narrow(vec<float, W> &v, const float (&x)[W])
{
#pragma unroll
    for (int i = 0; i < W; i++) v.word[i] = __float_as_uint(x[i]);
}

template <int W> __device__ __forceinline__ void narrow(vec<bf16, W> &v, const float (&x)[W])
{
    if constexpr (W == 1) {
        asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(v.word[0]) : "f"(0.0f), "f"(x[0]));
    } else {
#pragma unroll
        for (int i = 0; i < W / 2; i++)
            asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(v.word[i]) : "f"(x[2 * i + 1]), "f"(x[2 * i]));
    }
}

template <int W> __device__ __forceinline__ void narrow(vec<f16, W> &v, const float (&x)[W])
{
    if constexpr (W == 1) {
        asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(v.word[0]) : "f"(0.0f), "f"(x[0]));
    } else {
#pragma unroll
        for (int i = 0; i < W / 2; i++)
            asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(v.word[i]) : "f"(x[2 * i + 1]), "f"(x[2 * i]));
    }
}

template <typename T> __device__ __forceinline__ float load_one(const T *from)
{
    float x[1];
    widen(load<T, 1>(from), x);
    return x[0];
}

template <typename T> __device__ __forceinline__ void store_one(T *to, float value)
{
    vec<T, 1> v;
    const float x[1] = {value};
    narrow(v, x);
    store(to, v);
}

/* Element `index` of a small vector of parameters whose type is not a template argument. */
__device__ __forceinline__ float load_either(const void *from, int64_t index, bool is_bf16)
{
    return is_bf16 ? load_one(static_cast<const bf16 *>(from) + index)
                   : static_cast<const float *>(from)[index];
}

template <int W>
__device__ __forceinline__ void load_either(const void *from, int64_t index, bool is_bf16, float (&x)[W])
{
    static_assert(W == 4 || W == 8, "a vector of 16 bytes of one of the two types");
    if (is_bf16) {
        widen(load<bf16, W>(static_cast<const bf16 *>(from) + index), x);
        return;
    }
#pragma unroll
    for (int i = 0; i < W; i += 4) {
        float part[4];
        widen(load<float, 4>(static_cast<const float *>(from) + index + i), part);
#pragma unroll
        for (int j = 0; j < 4; j++) x[i + j] = part[j];
    }
}

/* The sum over `lanes` neighbouring threads of a warp (a power of two). All threads of the warp must call it,
 * and all get the sum. */
template <typename T> __device__ __forceinline__ T lanes_sum(T value, int lanes)
{
#pragma unroll
    for (int step = 16; step > 0; step /= 2)
        if (step < lanes) value += __shfl_xor_sync(0xffffffffu, value, step);
    return value;
}

/* The sum over a block of whole warps along x; every thread gets it. `partial` is shared memory that no thread
 * may still read from an earlier sum: loops alternate between two. */
template <typename T> __device__ __forceinline__ T block_sum(T value, T (&partial)[32])
{
    value = lanes_sum(value, 32);
    if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = value;
    __syncthreads();
    unsigned lane = threadIdx.x % 32;
    return lanes_sum(lane < blockDim.x / 32 ? partial[lane] : (T)0, 32);
}

/* The keys of Philox's ten rounds. The host computes them once, so that kernels get them as constants. */
struct round_keys {
    uint32_t k0[10], k1[10];
};

inline struct round_keys make_round_keys(struct tt_rng rng)
{
    struct round_keys keys;
    for (uint32_t round = 0; round < 10; round++) {
        keys.k0[round] = (uint32_t)rng.key + round * 0x9E3779B9u;
        keys.k1[round] = (uint32_t)(rng.key >> 32) + round * 0xBB67AE85u;
    }
    return keys;
}

/* Philox4x32-10, equal to tt_rng_block (base/rng.h). */
__device__ __forceinline__ void random_block(const struct round_keys &keys, uint64_t counter_hi,
                                             uint64_t counter_lo, uint32_t (&out)[4])
{
    uint32_t c0 = (uint32_t)counter_lo, c1 = (uint32_t)(counter_lo >> 32);
    uint32_t c2 = (uint32_t)counter_hi, c3 = (uint32_t)(counter_hi >> 32);
#pragma unroll
    for (int round = 0; round < 10; round++) {
        uint64_t p0 = (uint64_t)0xD2511F53u * c0, p1 = (uint64_t)0xCD9E8D57u * c2;
        c0 = (uint32_t)(p1 >> 32) ^ c1 ^ keys.k0[round];
        c1 = (uint32_t)p1;
        c2 = (uint32_t)(p0 >> 32) ^ c3 ^ keys.k1[round];
        c3 = (uint32_t)p0;
    }
    out[0] = c0, out[1] = c1, out[2] = c2, out[3] = c3;
}

/* Ends the sums of a block of 32 x SLOTS threads in 32 W columns: those of threads with the same columns are added in
 * order of y and stored in line[cols]; `col`: the thread's first column. The lines are those of add_lines below. */
template <int W, int SLOTS>
__device__ __forceinline__ void store_line(float *line, float (&sum)[W], int64_t col, int64_t cols)
{
    __shared__ float sums[SLOTS][32 * W];
#pragma unroll
    for (int i = 0; i < W; i++) sums[threadIdx.y][i * 32 + threadIdx.x] = sum[i];
    __syncthreads();
    if (threadIdx.y > 0 || col >= cols) return;
#pragma unroll
    for (int i = 0; i < W; i++) {
        if (col + i >= cols) return;
        for (int slot = 1; slot < SLOTS; slot++) sum[i] += sums[slot][i * 32 + threadIdx.x];
        line[col + i] = sum[i];
    }
}

/* target[d] += sum over `count` lines of `width` partial sums, in fp64 and in an order that depends on count
 * alone: eight strands of lines, then strand after strand. */
enum { STRANDS = 8 };

template <typename T>
__global__ void __launch_bounds__(32 * STRANDS)
    add_lines(T *target, const float *lines, int count, int64_t width)
{
    __shared__ double strands[STRANDS][32];
    int64_t d = (int64_t)blockIdx.x * 32 + threadIdx.x;
    double sum = 0;
    if (d < width) {
#pragma unroll 4
        for (int line = (int)threadIdx.y; line < count; line += STRANDS)
            sum += (double)lines[line * width + d];
    }
    strands[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.y > 0 || d >= width) return;
    for (int i = 1; i < STRANDS; i++) sum += strands[i][threadIdx.x];
    target[d] += (T)sum;
}

inline void launch_add_lines(struct tt_stream *stream, float *target, const float *lines, int count,
                             int64_t width)
{
    dim3 blocks((unsigned)((width + 31) / 32)), threads(32, STRANDS);
    add_lines<float><<<blocks, threads, 0, tt_cuda_handle(stream)>>>(target, lines, count, width);
}

/* *out += the sum of `count` partial sums, in an order that depends on count alone. One block. */
enum { ADD_SUMS_THREADS = 1024 };

template <typename T>
__global__ void __launch_bounds__(ADD_SUMS_THREADS) add_sums(T *out, const T *sums, int count)
{
    __shared__ T partial[32];
    T sum = 0;
#pragma unroll 4
    for (int i = (int)threadIdx.x; i < count; i += ADD_SUMS_THREADS) sum += sums[i];
    sum = block_sum(sum, partial);
    if (threadIdx.x == 0) *out += sum;
}

inline void launch_add_sums(struct tt_stream *stream, double *out, const double *sums, int count)
{
    add_sums<double><<<1, ADD_SUMS_THREADS, 0, tt_cuda_handle(stream)>>>(out, sums, count);
}

/* Whether every row of `x` begins at a multiple of W elements, so that it can be accessed in vectors of W. */
inline bool is_aligned(const tt_tensor &x, int W)
{
    if ((uintptr_t)x.data % ((size_t)W * tt_dtype_bytes(x.dtype)) != 0) return false;
    for (int d = 0; d + 1 < x.rank; d++)
        if (x.dims[d] > 1 && x.strides[d] % W != 0) return false;
    return true;
}

/* Calls `run` with a value of the element type that `dtype` names: f32 | bf16. */
template <typename F> tt_status with_type(tt_dtype dtype, F run)
{
    return dtype == TT_BF16 ? run(bf16{}) : run(float{});
}

} // namespace

#endif
