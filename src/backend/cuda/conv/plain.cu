#include "backend/cuda/conv/plain.h"

#include "backend/cuda/device_math.cuh"
#include "backend/cuda/plain_tile.cuh"

namespace
{

struct image {
    const void *data;
    int64_t row; /* elements from pixel to pixel */
};

struct problem {
    struct image x, z; /* z: y's gradient */
    const void *w;     /* [O, C, taps] */
    int height, width, out_height, out_width, kernel, stride, padding;
    int in, out;
    int64_t m, n, k, tiles_n;
    /* The result, and what follows the product. */
    void *to;
    int64_t to_row;
    const float *scale, *bias;
    const void *residual;
    int64_t residual_row;
    bool relu, accumulate;
};

template <typename T>
__device__ __forceinline__ float value_at(const struct image &image, int64_t pixel, int channel)
{
    return load_one(static_cast<const T *>(image.data) + pixel * image.row + channel);
}

/* x at one tap of place q of y. */
template <typename T> __device__ float x_at(const problem &p, int q, int tap, int channel)
{
    int h = q / p.out_width % p.out_height * p.stride - p.padding + tap / p.kernel;
    int w = q % p.out_width * p.stride - p.padding + tap % p.kernel;
    if (h < 0 || h >= p.height || w < 0 || w >= p.width) return 0.0f;
    int64_t pixel = ((int64_t)(q / p.out_width / p.out_height) * p.height + h) * p.width + w;
    return value_at<T>(p.x, pixel, channel);
}

/* The gradient of the place of y whose tap `tap` is pixel r of x. */
template <typename T> __device__ float z_at(const problem &p, int r, int tap, int channel)
{
    int h = r / p.width % p.height + p.padding - tap / p.kernel, w = r % p.width + p.padding - tap % p.kernel;
    if (h < 0 || w < 0 || h % p.stride != 0 || w % p.stride != 0) return 0.0f;
    h /= p.stride, w /= p.stride;
    if (h >= p.out_height || w >= p.out_width) return 0.0f;
    int64_t place = ((int64_t)(r / p.width / p.height) * p.out_height + h) * p.out_width + w;
    return value_at<T>(p.z, place, channel);
}

template <typename T> __device__ float filter_at(const problem &p, int o, int c, int tap)
{
    int taps = p.kernel * p.kernel;
    return load_one(static_cast<const T *>(p.w) + ((int64_t)o * p.in + c) * taps + tap);
}

/* Each pass: the left operand at (row, k), the right one at (column, k), where the result goes, and whether
 * neighbouring threads read along k. */
template <typename T> struct forward_pass {
    enum { ALONG_K = 1 };
    static __device__ float left(const problem &p, int row, int k)
    {
        return x_at<T>(p, row, k / p.in, k % p.in);
    }
    static __device__ float right(const problem &p, int column, int k)
    {
        return filter_at<T>(p, column, k % p.in, k / p.in);
    }
    static __device__ void put(const problem &p, int64_t row, int column, float sum)
    {
        if (p.scale != nullptr) sum *= p.scale[column];
        if (p.bias != nullptr) sum += p.bias[column];
        if (p.residual != nullptr)
            sum += load_one(static_cast<const T *>(p.residual) + row * p.residual_row + column);
        if (p.relu && sum < 0.0f) sum = 0.0f;
        store_one(static_cast<T *>(p.to) + row * p.to_row + column, sum);
    }
};

template <typename T> struct input_pass {
    enum { ALONG_K = 1 };
    static __device__ float left(const problem &p, int row, int k)
    {
        return z_at<T>(p, row, k / p.out, k % p.out);
    }
    static __device__ float right(const problem &p, int column, int k)
    {
        return filter_at<T>(p, k % p.out, column, k / p.out);
    }
    static __device__ void put(const problem &p, int64_t row, int column, float sum)
    {
        T *to = static_cast<T *>(p.to) + row * p.to_row + column;
        store_one(to, p.accumulate ? load_one(to) + sum : sum);
    }
};

/* Columns: taps, then channels. */
template <typename T> struct weight_pass {
    enum { ALONG_K = 0 };
    static __device__ float left(const problem &p, int row, int k)
    {
        return value_at<T>(p.z, k, row);
    }
    static __device__ float right(const problem &p, int column, int k)
    {
        return x_at<T>(p, k, column / p.in, column % p.in);
    }
    static __device__ void put(const problem &p, int64_t row, int column, float sum)
    {
        int taps = p.kernel * p.kernel;
        float *to = static_cast<float *>(p.to) + (row * p.in + column % p.in) * taps + column / p.in;
        *to += sum;
    }
};

template <typename Pass> __global__ void __launch_bounds__(THREADS) conv_plain(const problem p)
{
    __shared__ panel left, right;
    int64_t m0 = blockIdx.x / p.tiles_n * TILE, n0 = blockIdx.x % p.tiles_n * TILE;
    int row = tile_row(), column = tile_column();
    float sum[EACH][EACH] = {};
    for (int64_t k0 = 0; k0 < p.k; k0 += DEPTH) {
        for (int e = (int)threadIdx.x; e < TILE * DEPTH; e += THREADS) {
            int outer = Pass::ALONG_K ? e / DEPTH : e % TILE, depth = Pass::ALONG_K ? e % DEPTH : e / TILE;
            int64_t k = k0 + depth, m = m0 + outer, n = n0 + outer;
            left[depth][outer] = k < p.k && m < p.m ? Pass::left(p, (int)m, (int)k) : 0.0f;
            right[depth][outer] = k < p.k && n < p.n ? Pass::right(p, (int)n, (int)k) : 0.0f;
        }
        __syncthreads();
        multiply_panels(left, right, sum);
        __syncthreads();
    }
    for (int i = 0; i < EACH; i++)
        for (int j = 0; j < EACH; j++)
            if (m0 + row + i < p.m && n0 + column + j < p.n)
                Pass::put(p, m0 + row + i, (int)(n0 + column + j), sum[i][j]);
}

struct image image_of(const tt_tensor &x)
{
    return {x.data, x.strides[0]};
}

struct problem problem_of(const struct tt_conv_geometry &g, int64_t in, int64_t out)
{
    struct problem p = {};
    p.height = (int)g.height, p.width = (int)g.width;
    p.out_height = (int)tt_conv_side(&g, g.height), p.out_width = (int)tt_conv_side(&g, g.width);
    p.kernel = (int)g.kernel, p.stride = (int)g.stride, p.padding = (int)g.padding;
    p.in = (int)in, p.out = (int)out;
    return p;
}

template <template <typename> class Pass>
tt_status run(struct tt_stream *stream, struct problem *p, tt_dtype dtype, const char *op,
              const tt_tensor &to)
{
    p->tiles_n = (p->n + TILE - 1) / TILE;
    int64_t tiles = (p->m + TILE - 1) / TILE * p->tiles_n;
    if (tiles == 0) return TT_OK;
    if (tiles > INT32_MAX || p->m > INT32_MAX || p->n > INT32_MAX || p->k > INT32_MAX)
        return tt_fail(TT_ERR_UNSUPPORTED, "%s: images of too many pixels for one pass", op);
    if (dtype == TT_BF16)
        conv_plain<Pass<bf16>><<<(unsigned)tiles, THREADS, 0, tt_cuda_handle(stream)>>>(*p);
    else
        conv_plain<Pass<float>><<<(unsigned)tiles, THREADS, 0, tt_cuda_handle(stream)>>>(*p);
    return tt_cuda_launched(stream, op, &to);
}

__global__ void __launch_bounds__(THREADS)
    copy_filters(uint16_t *to, const uint16_t *from, int64_t count, int64_t filters, int in, int taps)
{
    int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x; /* in `to`: filter, tap, channel */
    if (i >= count) return;
    int64_t size = (int64_t)in * taps, filter = i / size, rest = i % size;
    to[i] = filter < filters ? from[filter * size + rest % in * taps + rest / in] : (uint16_t)0;
}

__global__ void __launch_bounds__(THREADS)
    add_filters(float *to, const float *from, int64_t count, int channels, int in, int taps)
{
    int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x; /* in `to`: filter, channel, tap */
    if (i >= count) return;
    int64_t size = (int64_t)channels * taps, filter = i / size, rest = i % size;
    to[i] += from[(filter * taps + rest % taps) * in + rest / taps];
}

__global__ void __launch_bounds__(THREADS) pad_columns(uint16_t *to, const uint16_t *from, int64_t count,
                                                       int64_t columns, int64_t channels, int64_t row)
{
    int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i >= count) return;
    int64_t pixel = i / columns, column = i % columns;
    to[i] = column < channels ? from[pixel * row + column] : (uint16_t)0;
}

/* A thread: two pixels of a row, which are 8 of the 16 channels of a pair. */
__global__ void __launch_bounds__(THREADS)
    pair_pixels(uint4 *to, const uint16_t *from, int64_t count, int64_t width, int64_t row, int channels)
{
    /* in `to`: row of pairs, pair, row in the pair */
    int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i >= count) return;
    int64_t pairs = width / 2, pair = i / 2;
    int64_t pixel = (pair / pairs * 2 + i % 2) * width + pair % pairs * 2;
    uint32_t keep_low = channels > 1 ? 0xffffffffu : 0xffffu;
    uint32_t keep_high = channels > 3 ? 0xffffffffu : channels > 2 ? 0xffffu : 0u;
    uint2 a = *reinterpret_cast<const uint2 *>(from + pixel * row);
    uint2 b = *reinterpret_cast<const uint2 *>(from + (pixel + 1) * row);
    to[i] = make_uint4(a.x & keep_low, a.y & keep_high, b.x & keep_low, b.y & keep_high);
}

__global__ void __launch_bounds__(THREADS)
    pair_filters(uint16_t *to, const uint16_t *from, int count, int in, int kernel, int size)
{
    int i = (int)(blockIdx.x * THREADS + threadIdx.x); /* in `to`: filter, tap, row, column, channel */
    if (i >= count) return;
    int c = i % 4, tap = i / 16 % (size * size), o = i / 16 / (size * size);
    int h = 2 * (tap / size) + i / 8 % 2 - 1, w = 2 * (tap % size) + i / 4 % 2 - 1;
    bool inside = c < in && h >= 0 && h < kernel && w >= 0 && w < kernel;
    to[i] = inside ? from[((o * in + c) * kernel + h) * kernel + w] : (uint16_t)0;
}

unsigned blocks_of(int64_t count)
{
    return (unsigned)((count + THREADS - 1) / THREADS);
}

} // namespace

extern "C" tt_status tt_cuda_conv_plain_forward(struct tt_stream *stream,
                                                const struct tt_conv2d_forward_args *args)
{
    int64_t in = args->x_PC.dims[1], out = args->y_QO.dims[1], kernel = args->geometry.kernel;
    struct problem p = problem_of(args->geometry, in, out);
    p.x = image_of(args->x_PC);
    p.w = args->w_OK.data;
    p.m = args->y_QO.dims[0], p.n = out, p.k = in * kernel * kernel;
    p.to = args->y_QO.data, p.to_row = args->y_QO.strides[0];
    p.scale = static_cast<const float *>(args->scale_O.data);
    p.bias = static_cast<const float *>(args->bias_O.data);
    p.residual = args->residual_QO.data, p.residual_row = args->residual_QO.strides[0];
    p.relu = args->relu;
    return run<forward_pass>(stream, &p, args->x_PC.dtype, "conv2d_forward", args->y_QO);
}

extern "C" tt_status tt_cuda_conv_plain_input(struct tt_stream *stream,
                                              const struct tt_conv2d_backward_input_args *args)
{
    int64_t in = args->dx_PC.dims[1], out = args->dz_QO.dims[1], kernel = args->geometry.kernel;
    struct problem p = problem_of(args->geometry, in, out);
    p.z = image_of(args->dz_QO);
    p.w = args->w_OK.data;
    p.m = args->dx_PC.dims[0], p.n = in, p.k = out * kernel * kernel;
    p.to = args->dx_PC.data, p.to_row = args->dx_PC.strides[0];
    p.accumulate = args->accumulate;
    return run<input_pass>(stream, &p, args->dz_QO.dtype, "conv2d_backward_input", args->dx_PC);
}

extern "C" tt_status tt_cuda_conv_plain_weight(struct tt_stream *stream,
                                               const struct tt_conv2d_backward_weight_args *args)
{
    int64_t in = args->x_PC.dims[1], out = args->dz_QO.dims[1], kernel = args->geometry.kernel;
    struct problem p = problem_of(args->geometry, in, out);
    p.x = image_of(args->x_PC);
    p.z = image_of(args->dz_QO);
    p.m = out, p.n = in * kernel * kernel, p.k = args->dz_QO.dims[0];
    p.to = args->dw_OK.data;
    return run<weight_pass>(stream, &p, args->x_PC.dtype, "conv2d_backward_weight", args->dw_OK);
}

extern "C" tt_status tt_cuda_conv_filters(struct tt_stream *stream, void *to, int64_t rows, tt_tensor from_OK,
                                          int64_t taps)
{
    int64_t count = rows * from_OK.dims[1];
    copy_filters<<<blocks_of(count), THREADS, 0, tt_cuda_handle(stream)>>>(
        static_cast<uint16_t *>(to), static_cast<const uint16_t *>(from_OK.data), count, from_OK.dims[0],
        (int)(from_OK.dims[1] / taps), (int)taps);
    return tt_cuda_launched(stream, "order of filters", &from_OK);
}

extern "C" tt_status tt_cuda_conv_add_filters(struct tt_stream *stream, tt_tensor to_OK, const float *from,
                                              int64_t in, int64_t taps)
{
    int64_t count = to_OK.dims[0] * to_OK.dims[1];
    add_filters<<<blocks_of(count), THREADS, 0, tt_cuda_handle(stream)>>>(
        static_cast<float *>(to_OK.data), from, count, (int)(to_OK.dims[1] / taps), (int)in, (int)taps);
    return tt_cuda_launched(stream, "sum of filters", &to_OK);
}

extern "C" tt_status tt_cuda_conv_pair_pixels(struct tt_stream *stream, void *to, tt_tensor from_PC,
                                              int64_t width)
{
    int64_t count = from_PC.dims[0] / 2;
    pair_pixels<<<blocks_of(count), THREADS, 0, tt_cuda_handle(stream)>>>(
        static_cast<uint4 *>(to), static_cast<const uint16_t *>(from_PC.data), count, width,
        from_PC.strides[0], (int)from_PC.dims[1]);
    return tt_cuda_launched(stream, "pairs of pixels", &from_PC);
}

extern "C" tt_status tt_cuda_conv_pair_filters(struct tt_stream *stream, void *to, tt_tensor from_OK,
                                               int64_t kernel, int64_t size)
{
    int64_t count = from_OK.dims[0] * size * size * 16;
    pair_filters<<<blocks_of(count), THREADS, 0, tt_cuda_handle(stream)>>>(
        static_cast<uint16_t *>(to), static_cast<const uint16_t *>(from_OK.data), (int)count,
        (int)(from_OK.dims[1] / (kernel * kernel)), (int)kernel, (int)size);
    return tt_cuda_launched(stream, "filters of pairs", &from_OK);
}

extern "C" tt_status tt_cuda_conv_clear_padding(struct tt_stream *stream, tt_tensor y_PC)
{
    size_t width = tt_dtype_bytes(y_PC.dtype), used = (size_t)y_PC.dims[1] * width;
    size_t rest = (size_t)tt_conv_grouped(y_PC.dims[1]) * width - used;
    return tt_cuda_check(cudaMemset2DAsync((char *)y_PC.data + used, (size_t)y_PC.strides[0] * width, 0, rest,
                                           (size_t)y_PC.dims[0], tt_cuda_handle(stream)),
                         stream, "padded channels");
}

extern "C" tt_status tt_cuda_conv_pad(struct tt_stream *stream, void *to, int64_t columns, tt_tensor from_PC)
{
    int64_t count = from_PC.dims[0] * columns;
    pad_columns<<<blocks_of(count), THREADS, 0, tt_cuda_handle(stream)>>>(
        static_cast<uint16_t *>(to), static_cast<const uint16_t *>(from_PC.data), count, columns,
        from_PC.dims[1], from_PC.strides[0]);
    return tt_cuda_launched(stream, "padded channels", &from_PC);
}
