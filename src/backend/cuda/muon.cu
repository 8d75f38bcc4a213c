#include "backend/cuda/sheet.cuh"

namespace
{

enum {
    THREADS = 256,
    GROUP =
        32768, /* elements summed by one thread block, unless that makes too many groups for the scratch */
    GROUPS_MAX = TT_CUDA_SCRATCH_BYTES / (int)sizeof(double),
};

/* torch.lerp(a, b, weight): from 0.5 on it begins at b. */
struct lerp {
    float weight;
    bool far;

    __device__ float operator()(float a, float b) const
    {
        return far ? b - (b - a) * weight : a + (b - a) * weight;
    }
};

struct lerp make_lerp(double weight)
{
    float rounded = (float)weight;
    struct lerp near = {rounded, false}, far = {1.0f - rounded, true};
    return rounded < 0.5f ? near : far;
}

template <typename Y> struct direction_op {
    view<const float> grad;
    view<float> m;
    view<Y> y;
    struct lerp momentum, nesterov;
    float grad_scale;
    bool has_nesterov;

    template <int W> struct loaded {
        vec<float, W> grad, m;
    };

    template <int W> __device__ void load(int64_t row, int64_t col, loaded<W> &in) const
    {
        in.grad = ::load<float, W>(grad.at(row, col));
        in.m = ::load<float, W>(m.at(row, col));
    }

    template <int W> __device__ void store(int64_t row, int64_t col, loaded<W> &in) const
    {
        float g[W], v[W], out[W];
        widen(in.grad, g);
        widen(in.m, v);
#pragma unroll
        for (int i = 0; i < W; i++) {
            float scaled = g[i] * grad_scale;
            v[i] = momentum(v[i], scaled);
            out[i] = has_nesterov ? nesterov(scaled, v[i]) : v[i];
        }
        narrow(in.m, v);
        ::store(m.at(row, col), in.m);
        vec<Y, W> rounded;
        narrow(rounded, out);
        ::store(y.at(row, col), rounded);
    }
};

template <typename X> struct divide_op {
    view<X> x;
    const double *squares;
    float eps;

    template <int W> struct loaded {
        vec<X, W> x;
    };

    template <int W> __device__ void load(int64_t row, int64_t col, loaded<W> &in) const
    {
        in.x = ::load<X, W>(x.at(row, col));
    }

    template <int W> __device__ void store(int64_t row, int64_t col, loaded<W> &in) const
    {
        vec<X, 1> rounded;
        float norm[1] = {(float)sqrt(*squares)}, values[W];
        narrow(rounded, norm);
        widen(rounded, norm);
        widen(in.x, values);
        float divisor = norm[0] > eps ? norm[0] : eps;
#pragma unroll
        for (int i = 0; i < W; i++) values[i] /= divisor;
        narrow(in.x, values);
        ::store(x.at(row, col), in.x);
    }
};

template <typename X> struct apply_op {
    view<float> param;
    view<const X> x;
    float keep, lr;

    template <int W> struct loaded {
        vec<float, W> param;
        vec<X, W> x;
    };

    template <int W> __device__ void load(int64_t row, int64_t col, loaded<W> &in) const
    {
        in.param = ::load<float, W>(param.at(row, col));
        in.x = ::load<X, W>(x.at(row, col));
    }

    template <int W> __device__ void store(int64_t row, int64_t col, loaded<W> &in) const
    {
        float p[W], v[W];
        widen(in.param, p);
        widen(in.x, v);
#pragma unroll
        for (int i = 0; i < W; i++) p[i] = p[i] * keep - lr * v[i];
        narrow(in.param, p);
        ::store(param.at(row, col), in.param);
    }
};

template <typename X>
__global__ void __launch_bounds__(THREADS)
    square_groups(double *sums, const X *x, int64_t count, int64_t group)
{
    __shared__ double partial[32];
    int64_t first = blockIdx.x * group, end = first + group < count ? first + group : count;
    double sum = 0;
#pragma unroll 8
    for (int64_t i = first + threadIdx.x; i < end; i += THREADS) {
        float value[1];
        widen(load<X, 1>(x + i), value);
        sum += (double)value[0] * (double)value[0];
    }
    sum = block_sum(sum, partial);
    if (threadIdx.x == 0) sums[blockIdx.x] = sum;
}

template <typename Y>
tt_status direction_typed(struct tt_stream *stream, const struct tt_muon_direction_args *args)
{
    constexpr int W = wide<float, Y>();
    struct direction_op<Y> op = {
        view_of<const float>(args->grad), view_of<float>(args->m), view_of<Y>(args->y),
            make_lerp(1.0 - args->momentum), make_lerp(args->momentum), args->grad_scale, args->nesterov
    };
    bool aligned = is_aligned(args->grad, W) && is_aligned(args->m, W) && is_aligned(args->y, W);
    return apply<W, 2>(stream, "muon_direction", op, 1, args->grad.dims[0], aligned, &args->y);
}

template <typename X>
tt_status normalize_typed(struct tt_stream *stream, const struct tt_muon_normalize_args *args)
{
    constexpr int W = wide<X>();
    int64_t count = args->x.dims[0], group = GROUP;
    while ((count + group - 1) / group > GROUPS_MAX) group *= 2;
    int groups = (int)((count + group - 1) / group);
    double *sums = static_cast<double *>(tt_cuda_scratch(stream));
    double *squares = static_cast<double *>(args->squares.data);
    square_groups<X><<<groups, THREADS, 0, tt_cuda_handle(stream)>>>(
        sums, static_cast<const X *>(args->x.data), count, group);
    launch_add_sums(stream, squares, sums, groups);
    struct divide_op<X> op = {
        view_of<X>(args->x), squares, (float)args->eps
    };
    return apply<W, 2>(stream, "muon_normalize", op, 1, count, is_aligned(args->x, W), &args->x);
}

template <typename X> tt_status apply_typed(struct tt_stream *stream, const struct tt_muon_apply_args *args)
{
    constexpr int W = wide<float, X>();
    struct apply_op<X> op = {
        view_of<float>(args->param), view_of<const X>(args->x), (float)(1.0 - args->decay), (float)args->lr
    };
    bool aligned = is_aligned(args->param, W) && is_aligned(args->x, W);
    return apply<W, 2>(stream, "muon_apply", op, 1, args->param.dims[0], aligned, &args->param);
}

} // namespace

extern "C" tt_status tt_cuda_muon_direction(struct tt_stream *stream,
                                            const struct tt_muon_direction_args *args)
{
    return with_type(args->y.dtype, [&](auto y) { return direction_typed<decltype(y)>(stream, args); });
}

extern "C" tt_status tt_cuda_muon_normalize(struct tt_stream *stream,
                                            const struct tt_muon_normalize_args *args)
{
    tt_status status =
        tt_cuda_check(cudaMemsetAsync(args->squares.data, 0, sizeof(double), tt_cuda_handle(stream)), stream,
                      "muon_normalize");
    if (status != TT_OK || args->x.dims[0] == 0) return status;
    return with_type(args->x.dtype, [&](auto x) { return normalize_typed<decltype(x)>(stream, args); });
}

extern "C" tt_status tt_cuda_muon_apply(struct tt_stream *stream, const struct tt_muon_apply_args *args)
{
    return with_type(args->x.dtype, [&](auto x) { return apply_typed<decltype(x)>(stream, args); });
}
