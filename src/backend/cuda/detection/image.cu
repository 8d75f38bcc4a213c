/* The ops of a network on images besides products: element-wise work on pixels [P, C], pooling, enlarging, and sums
 * over pixels for norms. Bound by memory. */
#include "backend/cuda/sheet.cuh"

namespace
{

enum { ITEMS = 2 };

/* The gradient before scale, residual and relu. */
template <typename T> struct backward_output_op {
    view<const T> y; /* data NULL: no relu */
    view<T> dy, dz, dresidual;
    const float *scale;
    bool accumulate;

    template <int W> struct loaded {
        vec<T, W> y, dy, dresidual;
    };

    template <int W> __device__ void load(int64_t row, int64_t col, loaded<W> &in) const
    {
        in.dy = ::load<T, W>(dy.at(row, col));
        if (y.data != nullptr) in.y = ::load<T, W>(y.at(row, col));
        if (accumulate) in.dresidual = ::load<T, W>(dresidual.at(row, col));
    }

    template <int W> __device__ void store(int64_t row, int64_t col, loaded<W> &in) const
    {
        float g[W];
        widen(in.dy, g);
        if (y.data != nullptr) {
            float out[W];
            widen(in.y, out);
#pragma unroll
            for (int i = 0; i < W; i++) g[i] = out[i] > 0.0f ? g[i] : 0.0f;
        }
        if (dresidual.data != nullptr) {
            float sum[W];
            if (accumulate) widen(in.dresidual, sum);
#pragma unroll
            for (int i = 0; i < W; i++) sum[i] = accumulate ? sum[i] + g[i] : g[i];
            narrow(in.dresidual, sum);
            ::store(dresidual.at(row, col), in.dresidual);
        }
        if (scale != nullptr) {
#pragma unroll
            for (int i = 0; i < W; i++) g[i] *= scale[col + i];
        }
        narrow(in.dy, g);
        ::store(dz.at(row, col), in.dy);
    }
};

/* g = dy where y > 0, times the scale, in place or to dz, and its sums: a thread block has the rows of one group in
 * 32 W columns, SLOTS rows of each of its STEPS at a time. lines [groups, cols]. */
enum { SLOTS = 8, STEPS = 4, SUMS_COLUMNS_MAX = TT_CUDA_SCRATCH_BYTES / 4 };

template <typename T, int W>
__global__ void __launch_bounds__(32 * SLOTS)
    backward_output_sums(float *lines, const backward_output_op<T> op, int64_t rows, int64_t cols,
                         int64_t group_rows)
{
    int64_t col = ((int64_t)blockIdx.x * 32 + threadIdx.x) * W;
    int64_t first = blockIdx.y * group_rows, end = first + group_rows < rows ? first + group_rows : rows;
    float sum[W] = {};
    for (int64_t row = first + threadIdx.y; row < end && col < cols; row += SLOTS * STEPS) {
        typename backward_output_op<T>::template loaded<W> in[STEPS];
#pragma unroll
        for (int k = 0; k < STEPS; k++)
            if (row + k * SLOTS < end) op.template load<W>(row + k * SLOTS, col, in[k]);
#pragma unroll
        for (int k = 0; k < STEPS; k++) {
            if (row + k * SLOTS >= end) continue;
            float g[W];
            op.template store<W>(row + k * SLOTS, col, in[k]); /* leaves dz in in.dy */
            widen(in[k].dy, g);
#pragma unroll
            for (int i = 0; i < W; i++) sum[i] += g[i];
        }
    }
    store_line<W, SLOTS>(lines + blockIdx.y * cols, sum, col, cols);
}

/* y = relu(x * scale + shift + residual) */
template <typename T> struct affine_op {
    view<const T> x, residual; /* residual.data NULL: none */
    view<T> y;
    const float *scale, *shift; /* NULL: 1 and 0 */
    bool relu;

    template <int W> struct loaded {
        vec<T, W> x, residual;
    };

    template <int W> __device__ void load(int64_t row, int64_t col, loaded<W> &in) const
    {
        in.x = ::load<T, W>(x.at(row, col));
        if (residual.data != nullptr) in.residual = ::load<T, W>(residual.at(row, col));
    }

    template <int W> __device__ void store(int64_t row, int64_t col, loaded<W> &in) const
    {
        float v[W];
        widen(in.x, v);
#pragma unroll
        for (int i = 0; i < W; i++) {
            if (scale != nullptr) v[i] = __fmul_rn(v[i], scale[col + i]);
            if (shift != nullptr) v[i] = __fadd_rn(v[i], shift[col + i]);
        }
        if (residual.data != nullptr) {
            float more[W];
            widen(in.residual, more);
#pragma unroll
            for (int i = 0; i < W; i++) v[i] += more[i];
        }
#pragma unroll
        for (int i = 0; i < W; i++) v[i] = relu && v[i] < 0.0f ? 0.0f : v[i]; /* NaN stays */
        narrow(in.x, v);
        ::store(y.at(row, col), in.x);
    }
};

/* dx = g * a + x * b + c */
template <typename T> struct mix_op {
    view<const T> g, x;
    view<T> dx;
    const float *a, *b, *c;

    template <int W> struct loaded {
        vec<T, W> g, x;
    };

    template <int W> __device__ void load(int64_t row, int64_t col, loaded<W> &in) const
    {
        in.g = ::load<T, W>(g.at(row, col));
        in.x = ::load<T, W>(x.at(row, col));
    }

    template <int W> __device__ void store(int64_t row, int64_t col, loaded<W> &in) const
    {
        float p[W], q[W];
        widen(in.g, p);
        widen(in.x, q);
#pragma unroll
        for (int i = 0; i < W; i++) p[i] = p[i] * a[col + i] + q[i] * b[col + i] + c[col + i];
        narrow(in.g, p);
        ::store(dx.at(row, col), in.g);
    }
};

/* Row p of the small image as the first of its four pixels in the large one. */
__device__ __forceinline__ int64_t first_of_four(int64_t row, int64_t width)
{
    return row / width * 4 * width + row % width * 2;
}

/* Rows: pixels of the small image. */
template <typename T> struct enlarge_op {
    view<const T> x;
    view<T> y;
    int64_t width;

    template <int W> struct loaded {
        vec<T, W> x, y[4];
    };

    __device__ int64_t pixel(int64_t first, int i) const
    {
        return first + i % 2 + i / 2 * 2 * width;
    }

    template <int W> __device__ void load(int64_t row, int64_t col, loaded<W> &in) const
    {
        int64_t first = first_of_four(row, width);
        in.x = ::load<T, W>(x.at(row, col));
#pragma unroll
        for (int i = 0; i < 4; i++) in.y[i] = ::load<T, W>(y.at(pixel(first, i), col));
    }

    template <int W> __device__ void store(int64_t row, int64_t col, loaded<W> &in) const
    {
        int64_t first = first_of_four(row, width);
        float small[W];
        widen(in.x, small);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            float large[W];
            widen(in.y[i], large);
#pragma unroll
            for (int j = 0; j < W; j++) large[j] += small[j];
            narrow(in.y[i], large);
            ::store(y.at(pixel(first, i), col), in.y[i]);
        }
    }
};

template <typename T> struct shrink_op {
    view<const T> dy;
    view<T> dx;
    int64_t width;

    template <int W> struct loaded {
        vec<T, W> dx, dy[4];
    };

    template <int W> __device__ void load(int64_t row, int64_t col, loaded<W> &in) const
    {
        int64_t first = first_of_four(row, width);
        in.dx = ::load<T, W>(dx.at(row, col));
#pragma unroll
        for (int i = 0; i < 4; i++) in.dy[i] = ::load<T, W>(dy.at(first + i % 2 + i / 2 * 2 * width, col));
    }

    template <int W> __device__ void store(int64_t row, int64_t col, loaded<W> &in) const
    {
        float sum[W], part[W];
#pragma unroll
        for (int j = 0; j < W; j++) sum[j] = 0.0f;
#pragma unroll
        for (int i = 0; i < 4; i++) {
            widen(in.dy[i], part);
#pragma unroll
            for (int j = 0; j < W; j++) sum[j] += part[j];
        }
        widen(in.dx, part);
#pragma unroll
        for (int j = 0; j < W; j++) part[j] += sum[j];
        narrow(in.dx, part);
        ::store(dx.at(row, col), in.dx);
    }
};

struct window {
    int64_t images, height, width, out_height, out_width;
    int kernel, stride, padding;
};

window window_of(const tt_conv_geometry &g)
{
    return {
        g.images,      g.height,      g.width,       tt_conv_side(&g, g.height), tt_conv_side(&g, g.width),
        (int)g.kernel, (int)g.stride, (int)g.padding};
}

/* Rows: pixels of y. */
template <typename T> struct pool_op {
    view<const T> x;
    view<T> y;
    view<int32_t> which; /* data NULL: not wanted */
    window w;

    template <int W> struct loaded {
        float best[W];
        int32_t at[W];
    };

    template <int W> __device__ void load(int64_t row, int64_t col, loaded<W> &in) const
    {
        int64_t image = row / w.out_width / w.out_height;
        int64_t top = row / w.out_width % w.out_height * w.stride - w.padding;
        int64_t left = row % w.out_width * w.stride - w.padding;
        bool first = true;
        for (int64_t h = top < 0 ? 0 : top; h < top + w.kernel && h < w.height; h++) {
            for (int64_t v = left < 0 ? 0 : left; v < left + w.kernel && v < w.width; v++) {
                int64_t pixel = (image * w.height + h) * w.width + v;
                float value[W];
                widen(::load<T, W>(x.at(pixel, col)), value);
#pragma unroll
                for (int i = 0; i < W; i++) {
                    if (!first && !(value[i] > in.best[i] || value[i] != value[i])) continue;
                    in.best[i] = value[i];
                    in.at[i] = (int32_t)pixel;
                }
                first = false;
            }
        }
    }

    template <int W> __device__ void store(int64_t row, int64_t col, loaded<W> &in) const
    {
        vec<T, W> out;
        narrow(out, in.best);
        ::store(y.at(row, col), out);
        if (which.data == nullptr) return;
#pragma unroll
        for (int i = 0; i < W; i++) *which.at(row, col + i) = in.at[i];
    }
};

/* Rows: pixels of x. Each looks for itself in the windows that hold it, in the order of the places of y, and rounds the
 * sum after each as the processors do. */
template <typename T> struct pool_backward_op {
    view<const int32_t> which;
    view<const T> dy;
    view<T> dx;
    window w;

    template <int W> struct loaded {
        float sum[W];
    };

    __device__ static float rounded(float value)
    {
        vec<T, 1> v;
        const float x[1] = {value};
        float back[1];
        narrow(v, x);
        widen(v, back);
        return back[0];
    }

    template <int W> __device__ void load(int64_t row, int64_t col, loaded<W> &in) const
    {
        int64_t image = row / w.width / w.height, h = row / w.width % w.height + w.padding;
        int64_t v = row % w.width + w.padding;
        int64_t top = h < w.kernel ? 0 : (h - w.kernel) / w.stride + 1, bottom = h / w.stride;
        int64_t left = v < w.kernel ? 0 : (v - w.kernel) / w.stride + 1, right = v / w.stride;
#pragma unroll
        for (int i = 0; i < W; i++) in.sum[i] = 0.0f;
        for (int64_t i = top; i <= bottom && i < w.out_height; i++) {
            for (int64_t j = left; j <= right && j < w.out_width; j++) {
                int64_t place = (image * w.out_height + i) * w.out_width + j;
                float value[W];
                widen(::load<T, W>(dy.at(place, col)), value);
#pragma unroll
                for (int k = 0; k < W; k++)
                    if (*which.at(place, col + k) == (int32_t)row) in.sum[k] = rounded(in.sum[k] + value[k]);
            }
        }
    }

    template <int W> __device__ void store(int64_t row, int64_t col, loaded<W> &in) const
    {
        vec<T, W> out;
        narrow(out, in.sum);
        ::store(dx.at(row, col), out);
    }
};

template <typename T> view<T> view_or_none(const tt_tensor &x)
{
    return tt_tensor_is_empty(x) ? view<T>{nullptr, 0} : view_of<T>(x);
}

/* Whether all tensors that are there can be accessed in vectors of W. */
template <typename... Tensors> bool all_aligned(int W, const Tensors &...x)
{
    return ((tt_tensor_is_empty(x) || is_aligned(x, W)) && ...);
}

const float *vector_of(const tt_tensor &x)
{
    return tt_tensor_is_empty(x) ? nullptr : static_cast<const float *>(x.data);
}

enum { SUM_CHANNELS = 32, SUM_STRANDS = 8, SUM_GROUP = 1024 };

/* A block adds up one group of pixels for 32 channels; its strands take turns. lines [groups, 2, C]. */
template <typename T>
__global__ void __launch_bounds__(SUM_CHANNELS *SUM_STRANDS)
    sum_groups(double *lines, view<const T> x, view<const T> g, int64_t rows, int64_t channels)
{
    __shared__ double strands[2][SUM_STRANDS][SUM_CHANNELS];
    int64_t c = (int64_t)blockIdx.x * SUM_CHANNELS + threadIdx.x;
    int64_t first = (int64_t)blockIdx.y * SUM_GROUP,
            end = first + SUM_GROUP < rows ? first + SUM_GROUP : rows;
    double sum = 0, products = 0;
    for (int64_t row = first + threadIdx.y; row < end && c < channels; row += SUM_STRANDS) {
        double value = (double)load_one(x.at(row, c));
        double other = g.data != nullptr ? (double)load_one(g.at(row, c)) : value;
        sum += other;
        products += other * value;
    }
    strands[0][threadIdx.y][threadIdx.x] = sum;
    strands[1][threadIdx.y][threadIdx.x] = products;
    __syncthreads();
    if (threadIdx.y > 1 || c >= channels) return;
    double total = 0;
    for (int i = 0; i < SUM_STRANDS; i++) total += strands[threadIdx.y][i][threadIdx.x];
    lines[((int64_t)blockIdx.y * 2 + threadIdx.y) * channels + c] = total;
}

__global__ void __launch_bounds__(256)
    add_groups(double *sums, const double *lines, int64_t groups, int64_t width)
{
    int64_t c = (int64_t)blockIdx.x * 256 + threadIdx.x;
    if (c >= width) return;
    double sum = sums[c];
    for (int64_t group = 0; group < groups; group++) sum += lines[group * width + c];
    sums[c] = sum;
}

/* Groups of pixels, as many at a time as scratch holds the sums of. */
template <typename T> tt_status run_sums(struct tt_stream *stream, const struct tt_channel_sums_args *args)
{
    int64_t rows = args->x_PC.dims[0], channels = args->x_PC.dims[1], width = 2 * channels;
    int64_t groups = (rows + SUM_GROUP - 1) / SUM_GROUP;
    int64_t together = TT_CUDA_SCRATCH_BYTES / (int64_t)sizeof(double) / width;
    if (together > 65535) together = 65535;
    if (together < 1)
        return tt_fail(TT_ERR_UNSUPPORTED, "channel_sums: %lld channels are too many for a GPU",
                       (long long)channels);
    view<const T> x = view_of<const T>(args->x_PC), g = view_or_none<const T>(args->g_PC);
    double *lines = static_cast<double *>(tt_cuda_scratch(stream));
    for (int64_t done = 0; done < groups; done += together) {
        int64_t now = groups - done < together ? groups - done : together, from = done * SUM_GROUP;
        view<const T> part = {x.data + from * x.stride, x.stride};
        view<const T> gradient = {g.data != nullptr ? g.data + from * g.stride : nullptr, g.stride};
        dim3 blocks((unsigned)((channels + SUM_CHANNELS - 1) / SUM_CHANNELS), (unsigned)now);
        sum_groups<T><<<blocks, dim3(SUM_CHANNELS, SUM_STRANDS), 0, tt_cuda_handle(stream)>>>(
            lines, part, gradient, rows - from, channels);
        add_groups<<<(unsigned)((width + 255) / 256), 256, 0, tt_cuda_handle(stream)>>>(
            static_cast<double *>(args->sums_2C.data), lines, now, width);
    }
    return tt_cuda_launched(stream, "channel_sums", &args->x_PC);
}

__global__ void __launch_bounds__(256)
    fold(float *scale, float *shift, const float *weight, const float *bias, const float *mean,
         const float *variance, float eps, int64_t count)
{
    int64_t c = (int64_t)blockIdx.x * 256 + threadIdx.x;
    if (c >= count) return;
    float factor = __fmul_rn(weight[c], __fdiv_rn(1.0f, __fsqrt_rn(__fadd_rn(variance[c], eps))));
    scale[c] = factor;
    shift[c] = __fsub_rn(bias[c], __fmul_rn(mean[c], factor));
}

/* The groups fill the GPU twice; their order is that of rows. */
template <typename T>
tt_status run_output_sums(struct tt_stream *stream, const struct tt_conv2d_backward_output_args *args,
                          const backward_output_op<T> &op)
{
    constexpr int W = wide<T>();
    int64_t rows = args->dy_QO.dims[0], cols = args->dy_QO.dims[1], strips = (cols + 32 * W - 1) / (32 * W);
    int64_t groups = 2 * tt_cuda_device_of(stream)->processors / strips;
    int64_t fits = TT_CUDA_SCRATCH_BYTES / (int64_t)sizeof(float) / cols, least = rows / (SLOTS * STEPS);
    if (groups > fits) groups = fits;
    if (groups > least) groups = least;
    if (groups < 1) groups = 1;
    int64_t group_rows = (rows + groups - 1) / groups;
    groups = (rows + group_rows - 1) / group_rows;
    float *lines = static_cast<float *>(tt_cuda_scratch(stream));
    dim3 blocks((unsigned)strips, (unsigned)groups), threads(32, SLOTS);
    backward_output_sums<T, W>
        <<<blocks, threads, 0, tt_cuda_handle(stream)>>>(lines, op, rows, cols, group_rows);
    launch_add_lines(stream, static_cast<float *>(args->dbias_O.data), lines, (int)groups, cols);
    return tt_cuda_launched(stream, "conv2d_backward_output", &args->dy_QO);
}

} // namespace

extern "C" tt_status tt_cuda_conv2d_backward_output(struct tt_stream *stream,
                                                    const struct tt_conv2d_backward_output_args *args)
{
    return with_type(args->dy_QO.dtype, [&](auto type) {
        using T = decltype(type);
        constexpr int W = wide<T>();
        backward_output_op<T> op = {};
        op.y = view_or_none<const T>(args->y_QO);
        op.dy = view_of<T>(args->dy_QO);
        op.dz = view_of<T>(args->dz_QO);
        op.dresidual = view_or_none<T>(args->dresidual_QO);
        op.scale = vector_of(args->scale_O);
        op.accumulate = args->accumulate && op.dresidual.data != nullptr;
        bool aligned = all_aligned(W, args->y_QO, args->dy_QO, args->dz_QO, args->dresidual_QO);
        int64_t rows = args->dy_QO.dims[0], cols = args->dy_QO.dims[1];
        bool summed = !tt_tensor_is_empty(args->dbias_O);
        if (rows > 0 && summed && aligned && cols % W == 0 && cols <= SUMS_COLUMNS_MAX)
            return run_output_sums<T>(stream, args, op);
        TT_TRY((apply<W, ITEMS>(stream, "conv2d_backward_output", op, rows, cols, aligned, &args->dy_QO)));
        const struct tt_bias_backward_args bias = {args->dz_QO, args->dbias_O};
        return summed ? tt_cuda_bias_backward(stream, &bias) : TT_OK;
    });
}

extern "C" tt_status tt_cuda_channel_affine(struct tt_stream *stream,
                                            const struct tt_channel_affine_args *args)
{
    return with_type(args->x_PC.dtype, [&](auto type) {
        using T = decltype(type);
        constexpr int W = wide<T>();
        affine_op<T> op = {};
        op.x = view_of<const T>(args->x_PC);
        op.residual = view_or_none<const T>(args->residual_PC);
        op.y = view_of<T>(args->y_PC);
        op.scale = vector_of(args->scale_C);
        op.shift = vector_of(args->shift_C);
        op.relu = args->relu;
        return apply<W, ITEMS>(stream, "channel_affine", op, args->x_PC.dims[0], args->x_PC.dims[1],
                               all_aligned(W, args->x_PC, args->residual_PC, args->y_PC), &args->x_PC);
    });
}

extern "C" tt_status tt_cuda_channel_mix(struct tt_stream *stream, const struct tt_channel_mix_args *args)
{
    return with_type(args->g_PC.dtype, [&](auto type) {
        using T = decltype(type);
        constexpr int W = wide<T>();
        mix_op<T> op = {};
        op.g = view_of<const T>(args->g_PC);
        op.x = view_of<const T>(args->x_PC);
        op.dx = view_of<T>(args->dx_PC);
        op.a = vector_of(args->a_C);
        op.b = vector_of(args->b_C);
        op.c = vector_of(args->c_C);
        return apply<W, ITEMS>(stream, "channel_mix", op, args->g_PC.dims[0], args->g_PC.dims[1],
                               all_aligned(W, args->g_PC, args->x_PC, args->dx_PC), &args->g_PC);
    });
}

extern "C" tt_status tt_cuda_channel_sums(struct tt_stream *stream, const struct tt_channel_sums_args *args)
{
    if (args->x_PC.dims[0] == 0) return TT_OK;
    return args->x_PC.dtype == TT_BF16 ? run_sums<bf16>(stream, args) : run_sums<float>(stream, args);
}

extern "C" tt_status tt_cuda_norm_fold(struct tt_stream *stream, const struct tt_norm_fold_args *args)
{
    int64_t count = args->scale_C.dims[0];
    fold<<<(unsigned)((count + 255) / 256), 256, 0, tt_cuda_handle(stream)>>>(
        static_cast<float *>(args->scale_C.data), static_cast<float *>(args->shift_C.data),
        vector_of(args->weight_C), vector_of(args->bias_C), vector_of(args->mean_C),
        vector_of(args->variance_C), (float)args->eps, count);
    return tt_cuda_launched(stream, "norm_fold", &args->scale_C);
}

extern "C" tt_status tt_cuda_maxpool2d_forward(struct tt_stream *stream,
                                               const struct tt_maxpool2d_forward_args *args)
{
    return with_type(args->x_PC.dtype, [&](auto type) {
        using T = decltype(type);
        pool_op<T> op = {};
        op.x = view_of<const T>(args->x_PC);
        op.y = view_of<T>(args->y_QC);
        op.which = view_or_none<int32_t>(args->which_QC);
        op.w = window_of(args->geometry);
        return apply<4, 1>(stream, "maxpool2d_forward", op, args->y_QC.dims[0], args->y_QC.dims[1],
                           all_aligned(4, args->x_PC, args->y_QC), &args->x_PC);
    });
}

extern "C" tt_status tt_cuda_maxpool2d_backward(struct tt_stream *stream,
                                                const struct tt_maxpool2d_backward_args *args)
{
    return with_type(args->dx_PC.dtype, [&](auto type) {
        using T = decltype(type);
        pool_backward_op<T> op = {};
        op.which = view_of<const int32_t>(args->which_QC);
        op.dy = view_of<const T>(args->dy_QC);
        op.dx = view_of<T>(args->dx_PC);
        op.w = window_of(args->geometry);
        return apply<4, 1>(stream, "maxpool2d_backward", op, args->dx_PC.dims[0], args->dx_PC.dims[1],
                           all_aligned(4, args->dy_QC, args->dx_PC), &args->dx_PC);
    });
}

extern "C" tt_status tt_cuda_upsample_add(struct tt_stream *stream, const struct tt_upsample_add_args *args)
{
    return with_type(args->x_PC.dtype, [&](auto type) {
        using T = decltype(type);
        constexpr int W = wide<T>();
        enlarge_op<T> op = {};
        op.x = view_of<const T>(args->x_PC);
        op.y = view_of<T>(args->y_QC);
        op.width = args->width;
        return apply<W, 1>(stream, "upsample_add", op, args->x_PC.dims[0], args->x_PC.dims[1],
                           all_aligned(W, args->x_PC, args->y_QC), &args->x_PC);
    });
}

extern "C" tt_status tt_cuda_upsample_backward(struct tt_stream *stream,
                                               const struct tt_upsample_backward_args *args)
{
    return with_type(args->dx_PC.dtype, [&](auto type) {
        using T = decltype(type);
        constexpr int W = wide<T>();
        shrink_op<T> op = {};
        op.dy = view_of<const T>(args->dy_QC);
        op.dx = view_of<T>(args->dx_PC);
        op.width = args->width;
        return apply<W, 1>(stream, "upsample_backward", op, args->dx_PC.dims[0], args->dx_PC.dims[1],
                           all_aligned(W, args->dy_QC, args->dx_PC), &args->dx_PC);
    });
}
