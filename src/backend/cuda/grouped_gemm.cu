#include "backend/cuda/device_math.cuh"
#include "backend/cuda/gemm/grouped.h"
#include "backend/cuda/quant/rows_e4m3.cuh"

/* Products of rows with the matrix of their expert, one element for each thread, without tensor cores: right, and slow.
 * A thread finds its expert by the borders, which stay on the device. */

namespace
{

constexpr int SIDE = 16;

struct matrix {
    const void *data; /* NULL: not given */
    int64_t row, col; /* elements between outputs and between inputs of an expert's matrix */
    int64_t each;     /* and between experts */
    bool is_bf16;

    __device__ __forceinline__ float at(int64_t expert, int64_t n, int64_t k) const
    {
        return load_either(data, expert * each + n * row + k * col, is_bf16);
    }
};

/* Rows and matrices in FP8; x NULL: numbers. */
struct coded {
    const uint8_t *x, *w; /* contiguous, w [X, n, k] */
    const float *x_scale, *w_scale;
};

struct matrix matrix_of(const tt_tensor &w, bool transposed)
{
    struct matrix m = {};
    if (tt_tensor_is_empty(w)) return m;
    m.data = w.data, m.is_bf16 = w.dtype == TT_BF16;
    m.each = w.dims[1] * w.dims[2];
    m.row = transposed ? 1 : w.dims[2], m.col = transposed ? w.dims[2] : 1;
    return m;
}

/* The expert with border[e] <= m < border[e + 1]. */
__device__ int64_t expert_of(const int32_t *border, int64_t experts, int64_t m)
{
    int64_t low = 0, high = experts;
    while (high - low > 1) {
        int64_t middle = low + (high - low) / 2;
        if (border[middle] <= m)
            low = middle;
        else
            high = middle;
    }
    return low;
}

template <typename T> struct product {
    const int32_t *border;
    const T *x, *h;
    T *y;
    int64_t x_stride, h_stride, y_stride, experts, m, n, k, r;
    struct matrix w, b;
    const void *bias;
    bool bias_bf16;
    float alpha;
    struct coded coded;
};

template <typename T>
__device__ float sum_of_codes(const struct product<T> &p, int64_t e, int64_t m, int64_t n)
{
    const uint8_t *x = p.coded.x + m * p.k, *w = p.coded.w + (e * p.n + n) * p.k;
    float sum = 0;
    for (int64_t k = 0; k < p.k; k++) sum = __fmaf_rn(e4m3_value(x[k]), e4m3_value(w[k]), sum);
    return sum * (p.coded.x_scale[m] * p.coded.w_scale[e * p.n + n]);
}

template <typename T>
__device__ float sum_of_numbers(const struct product<T> &p, int64_t e, int64_t m, int64_t n)
{
    float sum = 0;
    for (int64_t k = 0; k < p.k; k++)
        sum = __fmaf_rn(load_one(p.x + m * p.x_stride + k), p.w.at(e, n, k), sum);
    return sum * p.alpha;
}

template <typename T> __global__ void __launch_bounds__(SIDE *SIDE) multiply(struct product<T> p)
{
    int64_t n = (int64_t)blockIdx.x * SIDE + threadIdx.x, m = (int64_t)blockIdx.y * SIDE + threadIdx.y;
    if (m >= p.m || n >= p.n || m < p.border[0] || m >= p.border[p.experts]) return;
    int64_t e = expert_of(p.border, p.experts, m);
    float sum = p.coded.x != nullptr ? sum_of_codes(p, e, m, n) : sum_of_numbers(p, e, m, n);
    for (int64_t r = 0; r < p.r; r++)
        sum = __fmaf_rn(load_one(p.h + m * p.h_stride + r), p.b.at(e, n, r), sum);
    if (p.bias != nullptr) sum += load_either(p.bias, e * p.n + n, p.bias_bf16);
    store_one(p.y + m * p.y_stride + n, sum);
}

template <typename T>
__global__ void __launch_bounds__(SIDE *SIDE)
    add_gradients(const int32_t *border, const T *dy, int64_t dy_stride, const T *x, int64_t x_stride,
                  float *dw, int64_t n_count, int64_t k_count)
{
    int64_t k = (int64_t)blockIdx.x * SIDE + threadIdx.x, n = (int64_t)blockIdx.y * SIDE + threadIdx.y;
    int64_t e = blockIdx.z;
    if (k >= k_count || n >= n_count) return;
    float sum = 0;
    for (int64_t m = border[e]; m < border[e + 1]; m++)
        sum = __fmaf_rn(load_one(dy + m * dy_stride + n), load_one(x + m * x_stride + k), sum);
    dw[(e * n_count + n) * k_count + k] += sum;
}

unsigned blocks_of(int64_t count)
{
    return (unsigned)((count + SIDE - 1) / SIDE);
}

template <typename T>
tt_status multiply_typed(struct tt_stream *stream, const struct tt_grouped_gemm_args *args)
{
    struct product<T> p = {
    };
    const tt_tensor &x = args->x_MK, &y = args->y_MN, &h = args->h_MR;
    p.border = static_cast<const int32_t *>(args->border_X1.data);
    p.x = static_cast<const T *>(x.data), p.y = static_cast<T *>(y.data);
    p.x_stride = x.strides[0], p.y_stride = y.strides[0];
    if (!tt_tensor_is_empty(h)) {
        p.h = static_cast<const T *>(h.data);
        p.h_stride = h.strides[0], p.r = h.dims[1];
    }
    p.experts = args->border_X1.dims[0] - 1, p.m = x.dims[0], p.n = y.dims[1], p.k = x.dims[1];
    p.w = matrix_of(args->w_XNK, args->transposed), p.b = matrix_of(args->b_XNR, args->transposed);
    p.bias = args->bias_XN.data, p.bias_bf16 = args->bias_XN.dtype == TT_BF16;
    p.alpha = args->alpha == 0 ? 1 : args->alpha;
    if (tt_grouped_is_scaled(args)) {
        const struct tt_grouped_codes &codes = args->codes;
        p.coded = {static_cast<const uint8_t *>(codes.x_MK.data), static_cast<const uint8_t *>(codes.w_XNK.data),
                   static_cast<const float *>(codes.x_scale_M.data),
                   static_cast<const float *>(codes.w_scale_XN.data)};
    }
    if (p.n == 0) return TT_OK;
    dim3 blocks(blocks_of(p.n), blocks_of(p.m)), threads(SIDE, SIDE);
    multiply<T><<<blocks, threads, 0, tt_cuda_handle(stream)>>>(p);
    return tt_cuda_launched(stream, "grouped_gemm", &x);
}

template <typename T>
tt_status gradients_typed(struct tt_stream *stream, const struct tt_grouped_gradients_args *args)
{
    const tt_tensor &dy = args->dy_MN, &x = args->x_MK, &dw = args->dw_XNK;
    if (tt_tensor_count(dw) == 0) return TT_OK;
    dim3 blocks(blocks_of(dw.dims[2]), blocks_of(dw.dims[1]), (unsigned)dw.dims[0]), threads(SIDE, SIDE);
    add_gradients<T><<<blocks, threads, 0, tt_cuda_handle(stream)>>>(
        static_cast<const int32_t *>(args->border_X1.data), static_cast<const T *>(dy.data), dy.strides[0],
        static_cast<const T *>(x.data), x.strides[0], static_cast<float *>(dw.data), dw.dims[1], dw.dims[2]);
    return tt_cuda_launched(stream, "grouped_gradients", &dy);
}

} // namespace

extern "C" tt_status tt_cuda_grouped_gemm_plain(struct tt_stream *stream,
                                                const struct tt_grouped_gemm_args *args)
{
    return with_type(args->x_MK.dtype, [&](auto t) { return multiply_typed<decltype(t)>(stream, args); });
}

extern "C" tt_status tt_cuda_grouped_gradients_plain(struct tt_stream *stream,
                                                     const struct tt_grouped_gradients_args *args)
{
    return with_type(args->dy_MN.dtype, [&](auto t) { return gradients_typed<decltype(t)>(stream, args); });
}
