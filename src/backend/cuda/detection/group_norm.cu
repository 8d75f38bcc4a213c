/* Norms of groups of channels: one block adds up a group of an image. Its threads take neighbouring channels of a
 * pixel, then those of the next pixel, and so read whole sectors. */
#include "backend/cuda/sheet.cuh"

namespace
{

enum { THREADS = 256, ITEMS = 2 };

/* Rows of an image follow one another. */
struct grouping {
    int64_t pixels, channels, each; /* of an image; all; of a group */
    int groups;
};

/* Where a thread begins in a group, and how it goes on: `lanes` pixels at a time, of `width` channels from `first`. */
struct strand {
    int64_t first, width, lanes, lane, channel;

    __device__ strand(const struct grouping &g, int64_t from)
    {
        first = from;
        width = g.each - from < THREADS ? g.each - from : THREADS;
        lanes = THREADS / width;
        lane = threadIdx.x / width;
        channel = threadIdx.x % width;
    }
};

template <typename T> struct statistics_args {
    view<const T> x;
    float *mean, *scale;
    struct grouping g;
    double eps;
};

template <typename T> __global__ void __launch_bounds__(THREADS) find_statistics(const statistics_args<T> s)
{
    __shared__ double sums[32], squares[32];
    int64_t image = blockIdx.x / s.g.groups, group = blockIdx.x % s.g.groups;
    double sum = 0, square = 0;
    for (int64_t from = 0; from < s.g.each; from += THREADS) {
        struct strand t(s.g, from);
        for (int64_t p = t.lane; p < s.g.pixels && t.lane < t.lanes; p += t.lanes) {
            double value = load_one(s.x.at(image * s.g.pixels + p, group * s.g.each + from + t.channel));
            sum += value;
            square += value * value;
        }
    }
    sum = block_sum(sum, sums);
    square = block_sum(square, squares);
    if (threadIdx.x > 0) return;
    double count = (double)(s.g.pixels * s.g.each), mean = sum / count, variance = square / count - mean * mean;
    s.mean[blockIdx.x] = (float)mean;
    s.scale[blockIdx.x] = (float)(1.0 / sqrt((variance > 0 ? variance : 0) + s.eps));
}

template <typename T> struct norm_op {
    view<const T> x;
    view<T> y;
    const float *mean, *scale, *weight, *bias;
    struct grouping g;
    bool relu;

    template <int W> struct loaded {
        vec<T, W> x;
    };

    template <int W> __device__ void load(int64_t row, int64_t col, loaded<W> &in) const
    {
        in.x = ::load<T, W>(x.at(row, col));
    }

    template <int W> __device__ void store(int64_t row, int64_t col, loaded<W> &in) const
    {
        float v[W];
        int64_t first = row / g.pixels * g.groups;
        widen(in.x, v);
#pragma unroll
        for (int i = 0; i < W; i++) {
            int64_t at = first + (int)(col + i) / (int)g.each;
            v[i] = (v[i] - mean[at]) * scale[at] * weight[col + i] + bias[col + i];
            v[i] = relu && v[i] < 0.0f ? 0.0f : v[i]; /* NaN stays */
        }
        narrow(in.x, v);
        ::store(y.at(row, col), in.x);
    }
};

template <typename T> struct factors_args {
    view<const T> x, dy, y; /* y.data NULL: no relu */
    const float *mean, *scale, *weight;
    float *factors; /* [images, 3, channels] */
    double *parts;  /* [images, 2, channels] */
    struct grouping g;
};

/* The parts of dweight and dbias of each channel of a group in an image, then the factors of dx. */
template <typename T> __global__ void __launch_bounds__(THREADS) find_factors(const factors_args<T> f)
{
    __shared__ double sums[THREADS], products[THREADS];
    int64_t image = blockIdx.x / f.g.groups, first = blockIdx.x % f.g.groups * f.g.each;
    double mean = f.mean[blockIdx.x], scale = f.scale[blockIdx.x];
    double *dweight = f.parts + 2 * image * f.g.channels + first, *dbias = dweight + f.g.channels;
    for (int64_t from = 0; from < f.g.each; from += THREADS) {
        struct strand t(f.g, from);
        double sum = 0, product = 0;
        for (int64_t p = t.lane; p < f.g.pixels && t.lane < t.lanes; p += t.lanes) {
            int64_t row = image * f.g.pixels + p, col = first + from + t.channel;
            if (f.y.data != nullptr && !(load_one(f.y.at(row, col)) > 0.0f)) continue;
            double gradient = load_one(f.dy.at(row, col));
            sum += gradient;
            product += gradient * (double)load_one(f.x.at(row, col));
        }
        sums[threadIdx.x] = sum;
        products[threadIdx.x] = product;
        __syncthreads();
        if (threadIdx.x < t.width) {
            sum = product = 0;
            for (int64_t lane = 0; lane < t.lanes; lane++) {
                sum += sums[lane * t.width + threadIdx.x];
                product += products[lane * t.width + threadIdx.x];
            }
            dbias[from + threadIdx.x] = sum;
            dweight[from + threadIdx.x] = scale * (product - mean * sum);
        }
        __syncthreads(); /* also: what was written is seen by the whole block */
    }
    double gradient = 0, slope = 0, count = (double)(f.g.pixels * f.g.each);
    for (int64_t c = 0; c < f.g.each; c++) {
        gradient += f.weight[first + c] * dbias[c];
        slope += f.weight[first + c] * dweight[c];
    }
    float *a = f.factors + 3 * image * f.g.channels + first, *b = a + f.g.channels, *constant = b + f.g.channels;
    for (int64_t c = threadIdx.x; c < f.g.each; c += THREADS) {
        a[c] = (float)(scale * f.weight[first + c]);
        b[c] = (float)(-scale * scale * slope / count);
        constant[c] = (float)(scale * (scale * mean * slope - gradient) / count);
    }
}

template <typename T> struct gradient_op {
    view<const T> x, dy, y;
    view<T> dx;
    const float *factors;
    struct grouping g;

    template <int W> struct loaded {
        vec<T, W> x, dy, y;
    };

    template <int W> __device__ void load(int64_t row, int64_t col, loaded<W> &in) const
    {
        in.x = ::load<T, W>(x.at(row, col));
        in.dy = ::load<T, W>(dy.at(row, col));
        if (y.data != nullptr) in.y = ::load<T, W>(y.at(row, col));
    }

    template <int W> __device__ void store(int64_t row, int64_t col, loaded<W> &in) const
    {
        float v[W], gradient[W], output[W];
        const float *a = factors + row / g.pixels * 3 * g.channels + col;
        widen(in.x, v);
        widen(in.dy, gradient);
        if (y.data != nullptr) widen(in.y, output);
#pragma unroll
        for (int i = 0; i < W; i++) {
            float through = y.data != nullptr && !(output[i] > 0.0f) ? 0.0f : gradient[i];
            v[i] = through * a[i] + v[i] * a[g.channels + i] + a[2 * g.channels + i];
        }
        narrow(in.x, v);
        ::store(dx.at(row, col), in.x);
    }
};

__global__ void __launch_bounds__(THREADS)
    add_parts(float *dweight, float *dbias, const double *parts, int64_t images, int64_t channels)
{
    int64_t c = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (c >= channels) return;
    double weight = 0, bias = 0;
    for (int64_t image = 0; image < images; image++) {
        weight += parts[2 * image * channels + c];
        bias += parts[(2 * image + 1) * channels + c];
    }
    dweight[c] += (float)weight;
    dbias[c] += (float)bias;
}

struct grouping grouping_of(const tt_tensor &x, int64_t images, int64_t groups)
{
    struct grouping g = {};
    g.pixels = x.dims[0] / images;
    g.channels = x.dims[1];
    g.each = x.dims[1] / groups;
    g.groups = (int)groups;
    return g;
}

float *floats_of(const tt_tensor &x)
{
    return static_cast<float *>(x.data);
}

template <typename T> tt_status run_forward(struct tt_stream *stream, const struct tt_group_norm_args *args)
{
    constexpr int W = wide<T>();
    statistics_args<T> s = {};
    s.x = view_of<const T>(args->x_PC);
    s.mean = floats_of(args->mean_NG), s.scale = floats_of(args->scale_NG);
    s.g = grouping_of(args->x_PC, args->images, args->groups);
    s.eps = args->eps;
    find_statistics<T><<<(unsigned)(args->images * args->groups), THREADS, 0, tt_cuda_handle(stream)>>>(s);
    TT_TRY(tt_cuda_launched(stream, "group_norm", &args->x_PC));
    norm_op<T> op = {};
    op.x = s.x;
    op.y = view_of<T>(args->y_PC);
    op.mean = s.mean, op.scale = s.scale;
    op.weight = floats_of(args->weight_C), op.bias = floats_of(args->bias_C);
    op.g = s.g;
    op.relu = args->relu;
    return apply<W, ITEMS>(stream, "group_norm", op, args->x_PC.dims[0], args->x_PC.dims[1],
                           is_aligned(args->x_PC, W) && is_aligned(args->y_PC, W), &args->x_PC);
}

template <typename T>
tt_status run_backward(struct tt_stream *stream, const struct tt_group_norm_backward_args *args)
{
    constexpr int W = wide<T>();
    bool relu = !tt_tensor_is_empty(args->y_PC);
    factors_args<T> f = {};
    f.x = view_of<const T>(args->x_PC);
    f.dy = view_of<const T>(args->dy_PC);
    if (relu) f.y = view_of<const T>(args->y_PC);
    f.mean = floats_of(args->mean_NG), f.scale = floats_of(args->scale_NG);
    f.weight = floats_of(args->weight_C);
    f.factors = floats_of(args->factors_NC);
    f.parts = static_cast<double *>(args->parts_NC.data);
    f.g = grouping_of(args->x_PC, args->images, args->groups);
    find_factors<T><<<(unsigned)(args->images * args->groups), THREADS, 0, tt_cuda_handle(stream)>>>(f);
    TT_TRY(tt_cuda_launched(stream, "group_norm_backward", &args->x_PC));
    gradient_op<T> op = {};
    op.x = f.x, op.dy = f.dy, op.y = f.y;
    op.dx = view_of<T>(args->dx_PC);
    op.factors = f.factors;
    op.g = f.g;
    bool aligned = is_aligned(args->x_PC, W) && is_aligned(args->dy_PC, W) && is_aligned(args->dx_PC, W) &&
                   (!relu || is_aligned(args->y_PC, W));
    TT_TRY((apply<W, ITEMS>(stream, "group_norm_backward", op, args->x_PC.dims[0], args->x_PC.dims[1], aligned,
                            &args->x_PC)));
    if (tt_tensor_is_empty(args->dweight_C)) return TT_OK;
    int64_t channels = args->x_PC.dims[1];
    add_parts<<<(unsigned)((channels + THREADS - 1) / THREADS), THREADS, 0, tt_cuda_handle(stream)>>>(
        floats_of(args->dweight_C), floats_of(args->dbias_C), f.parts, args->images, channels);
    return tt_cuda_launched(stream, "group_norm_backward", &args->dweight_C);
}

} // namespace

extern "C" tt_status tt_cuda_group_norm(struct tt_stream *stream, const struct tt_group_norm_args *args)
{
    return args->x_PC.dtype == TT_BF16 ? run_forward<bf16>(stream, args) : run_forward<float>(stream, args);
}

extern "C" tt_status tt_cuda_group_norm_backward(struct tt_stream *stream,
                                                 const struct tt_group_norm_backward_args *args)
{
    return args->x_PC.dtype == TT_BF16 ? run_backward<bf16>(stream, args) : run_backward<float>(stream, args);
}
