#include <math.h>

#include "backend/cuda/sheet.cuh"

namespace
{

/* The scalars of one step, rounded to fp32 once. */
struct adamw_op {
    view<const float> grad;
    view<float> param, m, v;
    float keep, beta1_rest, beta2, beta2_rest, step_size, root_of_correction2, eps, grad_scale;

    template <int W> struct loaded {
        vec<float, W> param, grad, m, v;
    };

    template <int W> __device__ void load(int64_t row, int64_t col, loaded<W> &in) const
    {
        in.grad = ::load<float, W>(grad.at(row, col));
        in.param = ::load<float, W>(param.at(row, col));
        in.m = ::load<float, W>(m.at(row, col));
        in.v = ::load<float, W>(v.at(row, col));
    }

    template <int W> __device__ void store(int64_t row, int64_t col, loaded<W> &in) const
    {
        float p[W], g[W], m1[W], m2[W];
        widen(in.param, p);
        widen(in.grad, g);
        widen(in.m, m1);
        widen(in.v, m2);
#pragma unroll
        for (int i = 0; i < W; i++) {
            float scaled = g[i] * grad_scale;
            m1[i] += beta1_rest * (scaled - m1[i]);
            m2[i] = m2[i] * beta2 + beta2_rest * scaled * scaled;
            float denominator = sqrtf(m2[i]) / root_of_correction2 + eps;
            p[i] = p[i] * keep - step_size * (m1[i] / denominator);
        }
        narrow(in.param, p);
        narrow(in.m, m1);
        narrow(in.v, m2);
        ::store(param.at(row, col), in.param);
        ::store(m.at(row, col), in.m);
        ::store(v.at(row, col), in.v);
    }
};

struct lion_op {
    view<const float> grad;
    view<float> param, m;
    float keep, beta1, beta1_rest, beta2, beta2_rest, lr, grad_scale;

    template <int W> struct loaded {
        vec<float, W> param, grad, m;
    };

    template <int W> __device__ void load(int64_t row, int64_t col, loaded<W> &in) const
    {
        in.grad = ::load<float, W>(grad.at(row, col));
        in.param = ::load<float, W>(param.at(row, col));
        in.m = ::load<float, W>(m.at(row, col));
    }

    template <int W> __device__ void store(int64_t row, int64_t col, loaded<W> &in) const
    {
        float p[W], g[W], m1[W];
        widen(in.param, p);
        widen(in.grad, g);
        widen(in.m, m1);
#pragma unroll
        for (int i = 0; i < W; i++) {
            float scaled = g[i] * grad_scale, ahead = beta1 * m1[i] + beta1_rest * scaled;
            p[i] = p[i] * keep - lr * (float)((ahead > 0) - (ahead < 0));
            m1[i] = beta2 * m1[i] + beta2_rest * scaled;
        }
        narrow(in.param, p);
        narrow(in.m, m1);
        ::store(param.at(row, col), in.param);
        ::store(m.at(row, col), in.m);
    }
};

/* The formulas of the header; HAS_V is false without momentum. */
template <bool HAS_V, bool NESTEROV> struct sgd_op {
    view<const float> grad;
    view<float> param, v;
    float lr, momentum, decay, grad_scale;

    template <int W> struct loaded {
        vec<float, W> param, grad, v;
    };

    template <int W> __device__ void load(int64_t row, int64_t col, loaded<W> &in) const
    {
        in.grad = ::load<float, W>(grad.at(row, col));
        in.param = ::load<float, W>(param.at(row, col));
        if (HAS_V) in.v = ::load<float, W>(v.at(row, col));
    }

    template <int W> __device__ void store(int64_t row, int64_t col, loaded<W> &in) const
    {
        float p[W], g[W], m[W];
        widen(in.param, p);
        widen(in.grad, g);
        if (HAS_V) widen(in.v, m);
#pragma unroll
        for (int i = 0; i < W; i++) {
            float total = g[i] * grad_scale + decay * p[i];
            if (HAS_V) m[i] = momentum * m[i] + total;
            if (HAS_V && NESTEROV) total += momentum * m[i];
            p[i] -= lr * (HAS_V && !NESTEROV ? m[i] : total);
        }
        narrow(in.param, p);
        ::store(param.at(row, col), in.param);
        if (!HAS_V) return;
        narrow(in.v, m);
        ::store(v.at(row, col), in.v);
    }
};

template <bool HAS_V, bool NESTEROV> tt_status run_sgd(struct tt_stream *stream, const tt_sgd_args *args)
{
    sgd_op<HAS_V, NESTEROV> op = {};
    op.grad = view_of<const float>(args->grad);
    op.param = view_of<float>(args->param);
    if (HAS_V) op.v = view_of<float>(args->v);
    op.lr = (float)args->lr;
    op.momentum = (float)args->momentum;
    op.decay = (float)args->weight_decay;
    op.grad_scale = args->grad_scale;
    bool aligned =
        is_aligned(args->param, 4) && is_aligned(args->grad, 4) && (!HAS_V || is_aligned(args->v, 4));
    return apply<4, 2>(stream, "sgd", op, 1, args->param.dims[0], aligned, &args->param);
}

enum {
    THREADS = 256,
    GROUP =
        32768, /* elements summed by one thread block, unless that makes too many groups for the scratch */
    GROUPS_MAX = TT_CUDA_SCRATCH_BYTES / (int)sizeof(double),
};

template <int W>
__global__ void __launch_bounds__(THREADS)
    square_groups(double *sums, const float *x, int64_t count, int64_t group)
{
    __shared__ double partial[32];
    int64_t first = blockIdx.x * group, end = first + group < count ? first + group : count;
    double sum = 0;
    int64_t i = first + (int64_t)threadIdx.x * W;
#pragma unroll 8
    for (; i + W <= end; i += THREADS * W) {
        float part[W];
        widen(load<float, W>(x + i), part);
#pragma unroll
        for (int j = 0; j < W; j++) sum += (double)part[j] * (double)part[j];
    }
    /* the rest, less than W elements, by one thread */
    for (; i < end && W > 1; i++) sum += (double)x[i] * (double)x[i];
    sum = block_sum(sum, partial);
    if (threadIdx.x == 0) sums[blockIdx.x] = sum;
}

} // namespace

extern "C" tt_status tt_cuda_adamw(struct tt_stream *stream, const struct tt_adamw_args *args)
{
    double correction1 = 1 - pow(args->beta1, (double)args->step);
    double correction2 = 1 - pow(args->beta2, (double)args->step);
    struct adamw_op op = {};
    op.grad = view_of<const float>(args->grad);
    op.param = view_of<float>(args->param);
    op.m = view_of<float>(args->m);
    op.v = view_of<float>(args->v);
    op.keep = (float)(1 - args->lr * args->weight_decay);
    op.beta1_rest = (float)(1 - args->beta1);
    op.beta2 = (float)args->beta2;
    op.beta2_rest = (float)(1 - args->beta2);
    op.step_size = (float)(args->lr / correction1);
    op.root_of_correction2 = (float)sqrt(correction2);
    op.eps = (float)args->eps;
    op.grad_scale = args->grad_scale;
    bool aligned = is_aligned(args->param, 4) && is_aligned(args->grad, 4) && is_aligned(args->m, 4) &&
                   is_aligned(args->v, 4);
    return apply<4, 2>(stream, "adamw", op, 1, args->param.dims[0], aligned, &args->param);
}

extern "C" tt_status tt_cuda_lion(struct tt_stream *stream, const struct tt_lion_args *args)
{
    struct lion_op op = {};
    op.grad = view_of<const float>(args->grad);
    op.param = view_of<float>(args->param);
    op.m = view_of<float>(args->m);
    op.keep = (float)(1 - args->lr * args->weight_decay);
    op.beta1 = (float)args->beta1;
    op.beta1_rest = (float)(1 - args->beta1);
    op.beta2 = (float)args->beta2;
    op.beta2_rest = (float)(1 - args->beta2);
    op.lr = (float)args->lr;
    op.grad_scale = args->grad_scale;
    bool aligned = is_aligned(args->param, 4) && is_aligned(args->grad, 4) && is_aligned(args->m, 4);
    return apply<4, 2>(stream, "lion", op, 1, args->param.dims[0], aligned, &args->param);
}

extern "C" tt_status tt_cuda_sgd(struct tt_stream *stream, const struct tt_sgd_args *args)
{
    if (tt_tensor_is_empty(args->v)) return run_sgd<false, false>(stream, args);
    return args->nesterov ? run_sgd<true, true>(stream, args) : run_sgd<true, false>(stream, args);
}

extern "C" tt_status tt_cuda_sum_squares(struct tt_stream *stream, const struct tt_sum_squares_args *args)
{
    int64_t count = args->x.dims[0], group = GROUP;
    if (count == 0) return TT_OK;
    while ((count + group - 1) / group > GROUPS_MAX) group *= 2;
    int groups = (int)((count + group - 1) / group);
    const float *x = static_cast<const float *>(args->x.data);
    double *sums = static_cast<double *>(tt_cuda_scratch(stream));
    cudaStream_t handle = tt_cuda_handle(stream);
    if (is_aligned(args->x, 4))
        square_groups<4><<<groups, THREADS, 0, handle>>>(sums, x, count, group);
    else
        square_groups<1><<<groups, THREADS, 0, handle>>>(sums, x, count, group);
    launch_add_sums(stream, static_cast<double *>(args->out.data), sums, groups);
    return tt_cuda_launched(stream, "sum_squares", &args->x);
}
