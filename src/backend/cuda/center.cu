#include "backend/cuda/device_math.cuh"

namespace
{

/* A thread block has a row, which it reads twice: for the sum, and from the cache for the difference. Each thread reads
 * again what it has read, so that y may be x. */
constexpr int THREADS = 256;

template <typename T, int W>
__global__ void __launch_bounds__(THREADS)
    center(const T *x, int64_t x_stride, T *y, int64_t y_stride, int64_t width)
{
    __shared__ float partial[32];
    x += (int64_t)blockIdx.x * x_stride;
    y += (int64_t)blockIdx.x * y_stride;
    float sum = 0;
    for (int64_t d = (int64_t)threadIdx.x * W; d < width; d += THREADS * W) {
        float p[W];
        widen(load<T, W>(x + d), p);
#pragma unroll
        for (int i = 0; i < W; i++) sum += p[i];
    }
    float mean = block_sum(sum, partial) / (float)width;
    for (int64_t d = (int64_t)threadIdx.x * W; d < width; d += THREADS * W) {
        vec<T, W> held = load<T, W>(x + d);
        float p[W];
        widen(held, p);
#pragma unroll
        for (int i = 0; i < W; i++) p[i] -= mean;
        narrow(held, p);
        store(y + d, held);
    }
}

template <typename T> tt_status center_typed(struct tt_stream *stream, const struct tt_center_args *args)
{
    constexpr int W = wide<T>();
    const tt_tensor &x = args->x_ND, &y = args->y_ND;
    int64_t width = x.dims[1];
    unsigned rows = (unsigned)x.dims[0];
    const T *from = static_cast<const T *>(x.data);
    T *to = static_cast<T *>(y.data);
    cudaStream_t on = tt_cuda_handle(stream);
    if (rows == 0 || width == 0) return TT_OK;
    if (width % W == 0 && is_aligned(x, W) && is_aligned(y, W))
        center<T, W><<<rows, THREADS, 0, on>>>(from, x.strides[0], to, y.strides[0], width);
    else
        center<T, 1><<<rows, THREADS, 0, on>>>(from, x.strides[0], to, y.strides[0], width);
    return tt_cuda_launched(stream, "center", &x);
}

} // namespace

extern "C" tt_status tt_cuda_center(struct tt_stream *stream, const struct tt_center_args *args)
{
    return with_type(args->x_ND.dtype, [&](auto t) { return center_typed<decltype(t)>(stream, args); });
}
