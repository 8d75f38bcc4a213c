#include "backend/cuda/sheet.cuh"

namespace
{

/* Uses the hardware's exponential and reciprocal, because the result is rounded to 8 bits. */
__device__ __forceinline__ float sigmoid(float x, bf16)
{
    return __fdividef(1.0f, 1.0f + __expf(-x));
}

__device__ __forceinline__ float sigmoid(float x, float)
{
    return 1.0f / (1.0f + expf(-x));
}

__device__ __forceinline__ float exponential(float x, bf16)
{
    return __expf(x);
}

__device__ __forceinline__ float exponential(float x, float)
{
    return expf(x);
}

/* f and act' = f + x f' of act(x) = x f(x) (ops/swiglu.h). */
struct activated {
    float f, slope;
};

template <typename T>
__device__ __forceinline__ struct activated activate(float x, enum tt_activation activation, T type)
{
    if (activation == TT_ACTIVATION_GELU) {
        float f = 0.5f * erfcf(x * -0.70710678f);
        return {f, f + x * (0.39894228f * exponential(-0.5f * x * x, type))};
    }
    if (activation == TT_ACTIVATION_GELU_TANH) {
        /* 1 - f is the other sigmoid, without a difference: near f = 1 that would lose its digits. */
        float x2 = x * x, z = 1.59576912f * (x + 0.044715f * (x * x2)), f = sigmoid(z, type);
        return {f, f + x * (f * sigmoid(-z, type) * (1.59576912f * (1.0f + 0.134145f * x2)))};
    }
    float s = sigmoid(x, type);
    return {s, s * (1.0f + x * (1.0f - s))};
}

template <typename T> struct forward_op {
    view<const T> gate, up;
    view<T> h;
    enum tt_activation activation;

    template <int W> struct loaded {
        vec<T, W> gate, up;
    };

    template <int W> __device__ void load(int64_t row, int64_t col, loaded<W> &in) const
    {
        in.gate = ::load<T, W>(gate.at(row, col));
        in.up = ::load<T, W>(up.at(row, col));
    }

    template <int W> __device__ void store(int64_t row, int64_t col, const loaded<W> &in) const
    {
        float g[W], u[W];
        widen(in.gate, g);
        widen(in.up, u);
#pragma unroll
        for (int i = 0; i < W; i++) u[i] *= g[i] * activate(g[i], activation, T{}).f;
        vec<T, W> out;
        narrow(out, u);
        ::store(h.at(row, col), out);
    }
};

template <typename T> struct backward_op {
    view<const T> dh, gate, up;
    view<T> dgate, dup, h; /* h.data NULL: not computed */
    enum tt_activation activation;

    template <int W> struct loaded {
        vec<T, W> dh, gate, up;
    };

    template <int W> __device__ void load(int64_t row, int64_t col, loaded<W> &in) const
    {
        in.dh = ::load<T, W>(dh.at(row, col));
        in.gate = ::load<T, W>(gate.at(row, col));
        in.up = ::load<T, W>(up.at(row, col));
    }

    template <int W> __device__ void store(int64_t row, int64_t col, const loaded<W> &in) const
    {
        float d[W], g[W], u[W], dg[W], du[W];
        widen(in.dh, d);
        widen(in.gate, g);
        widen(in.up, u);
#pragma unroll
        for (int i = 0; i < W; i++) {
            struct activated a = activate(g[i], activation, T{});
            float act = g[i] * a.f;
            dg[i] = d[i] * u[i] * a.slope;
            du[i] = d[i] * act;
            u[i] *= act;
        }
        vec<T, W> out;
        narrow(out, dg);
        ::store(dgate.at(row, col), out);
        narrow(out, du);
        ::store(dup.at(row, col), out);
        if (h.data == nullptr) return;
        narrow(out, u);
        ::store(h.at(row, col), out);
    }
};

template <typename T>
tt_status forward_typed(struct tt_stream *stream, const struct tt_swiglu_forward_args *args)
{
    constexpr int W = wide<T>();
    const tt_tensor &gate = args->gate_TF, &up = args->up_TF, &h = args->h_TF;
    struct forward_op<T> op = {
        view_of<const T>(gate), view_of<const T>(up), view_of<T>(h), args->activation
    };
    bool aligned = is_aligned(gate, W) && is_aligned(up, W) && is_aligned(h, W);
    return apply<W, 2>(stream, "swiglu_forward", op, h.dims[0], h.dims[1], aligned, &h);
}

template <typename T>
tt_status backward_typed(struct tt_stream *stream, const struct tt_swiglu_backward_args *args)
{
    constexpr int W = wide<T>();
    const tt_tensor &gate = args->gate_TF, &up = args->up_TF, &dh = args->dh_TF;
    struct backward_op<T> op = {
        view_of<const T>(dh), view_of<const T>(gate), view_of<const T>(up), view_of<T>(args->dgate_TF),
            view_of<T>(args->dup_TF),
        {
            nullptr, 0
        },
        args->activation
    };
    bool aligned = is_aligned(gate, W) && is_aligned(up, W) && is_aligned(dh, W) &&
                   is_aligned(args->dgate_TF, W) && is_aligned(args->dup_TF, W);
    if (!tt_tensor_is_empty(args->h_TF)) {
        op.h = view_of<T>(args->h_TF);
        aligned = aligned && is_aligned(args->h_TF, W);
    }
    return apply<W, 2>(stream, "swiglu_backward", op, gate.dims[0], gate.dims[1], aligned, &gate);
}

} // namespace

extern "C" tt_status tt_cuda_swiglu_forward(struct tt_stream *stream,
                                            const struct tt_swiglu_forward_args *args)
{
    return with_type(args->gate_TF.dtype, [&](auto t) { return forward_typed<decltype(t)>(stream, args); });
}

extern "C" tt_status tt_cuda_swiglu_backward(struct tt_stream *stream,
                                             const struct tt_swiglu_backward_args *args)
{
    return with_type(args->gate_TF.dtype, [&](auto t) { return backward_typed<decltype(t)>(stream, args); });
}
