/* Rows rounded to E4M3 and back, in groups of columns, bound by memory. With 16 bytes a thread half a warp has a group
 * of bf16 and a warp one of fp32, so that the largest size needs shuffles alone. */
#include "backend/cuda/quant/rows_e4m3.cuh"
#include "backend/ops/round_groups.h"
#include "tensor/quant.h"

namespace
{

enum { ROUND_THREADS = 256 };

struct groups {
    const void *x;
    void *y;
    int64_t x_stride, y_stride, rows, cols, row_groups;
    bool by_powers;
};

__device__ __forceinline__ float group_scale(uint32_t largest, bool by_powers)
{
    float scale = row_scale(largest);
    uint32_t bits = __float_as_uint(scale);
    if (!by_powers || bits >= 0x7f800000u || (bits & 0x7fffffu) == 0) return scale;
    return __uint_as_float((bits & 0x7f800000u) + 0x800000u);
}

__device__ __forceinline__ float round_to(float x, float scale)
{
    uint32_t code = __nv_cvt_float_to_fp8(__fdiv_rn(x, scale), __NV_SATFINITE, __NV_E4M3);
    return __fmul_rn(e4m3_value(code), scale);
}

/* The largest of LANES neighbouring threads' values, in each of them. */
template <int LANES> __device__ __forceinline__ uint32_t lanes_largest(uint32_t value)
{
#pragma unroll
    for (int step = LANES / 2; step > 0; step /= 2)
        value = max(value, __shfl_xor_sync(0xffffffffu, value, step));
    return value;
}

/* Rows of whole, aligned vectors. */
template <typename T> __global__ void __launch_bounds__(ROUND_THREADS) round_vectors(const struct groups g)
{
    constexpr int W = wide<T>(), LANES = TT_FP8_BLOCK / W;
    int64_t group = ((int64_t)blockIdx.x * ROUND_THREADS + threadIdx.x) / LANES;
    int64_t row = group / g.row_groups;
    int64_t col = (group - row * g.row_groups) * TT_FP8_BLOCK + threadIdx.x % LANES * W;
    bool here = row < g.rows && col < g.cols;
    float p[W] = {};
    if (here) widen(load<T, W>(static_cast<const T *>(g.x) + row * g.x_stride + col), p);
    float scale = group_scale(lanes_largest<LANES>(largest_of(0u, p)), g.by_powers);
    if (!here) return;
#pragma unroll
    for (int i = 0; i < W; i++) p[i] = round_to(p[i], scale);
    vec<T, W> out;
    narrow(out, p);
    store(static_cast<T *>(g.y) + row * g.y_stride + col, out);
}

/* Any width and alignment: a warp has a group. */
template <typename T> __global__ void __launch_bounds__(ROUND_THREADS) round_any(const struct groups g)
{
    constexpr int EACH = TT_FP8_BLOCK / ROW_WARP;
    int64_t group = ((int64_t)blockIdx.x * ROUND_THREADS + threadIdx.x) / ROW_WARP;
    int64_t row = group / g.row_groups;
    int64_t col = (group - row * g.row_groups) * TT_FP8_BLOCK + threadIdx.x % ROW_WARP;
    const T *x = static_cast<const T *>(g.x) + row * g.x_stride;
    T *y = static_cast<T *>(g.y) + row * g.y_stride;
    float p[EACH] = {};
#pragma unroll
    for (int i = 0; i < EACH; i++)
        if (row < g.rows && col + i * ROW_WARP < g.cols) p[i] = load_one(x + col + i * ROW_WARP);
    float scale = group_scale(lanes_largest<ROW_WARP>(largest_of(0u, p)), g.by_powers);
#pragma unroll
    for (int i = 0; i < EACH; i++)
        if (row < g.rows && col + i * ROW_WARP < g.cols)
            store_one(y + col + i * ROW_WARP, round_to(p[i], scale));
}

template <typename T> void launch(cudaStream_t stream, const struct groups &g)
{
    constexpr int W = wide<T>();
    bool one = g.rows <= 1;
    bool aligned = g.cols % W == 0 && (one || (g.x_stride % W == 0 && g.y_stride % W == 0)) &&
                   (uintptr_t)g.x % 16 == 0 && (uintptr_t)g.y % 16 == 0;
    int64_t each = ROUND_THREADS / (aligned ? TT_FP8_BLOCK / W : ROW_WARP);
    unsigned blocks = (unsigned)((g.rows * g.row_groups + each - 1) / each);
    if (aligned)
        round_vectors<T><<<blocks, ROUND_THREADS, 0, stream>>>(g);
    else
        round_any<T><<<blocks, ROUND_THREADS, 0, stream>>>(g);
}

} // namespace

extern "C" tt_status tt_cuda_round_groups(struct tt_stream *stream, const struct tt_round_groups_args *args)
{
    const tt_tensor &x = args->x_MK, &y = args->y_MK;
    struct groups g = {x.data,
                       y.data,
                       x.strides[0],
                       y.strides[0],
                       x.dims[0],
                       x.dims[1],
                       (x.dims[1] + TT_FP8_BLOCK - 1) / TT_FP8_BLOCK,
                       args->by_powers};
    if (x.dtype == TT_BF16)
        launch<bf16>(tt_cuda_handle(stream), g);
    else
        launch<float>(tt_cuda_handle(stream), g);
    return tt_cuda_launched(stream, "round_groups", &x);
}
