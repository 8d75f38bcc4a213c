#include "backend/cuda/sheet.cuh"

namespace
{

enum { ITEMS = 4 };

template <typename A, typename B, typename Y> struct add_op {
    view<const A> a;
    view<const B> b;
    view<Y> y;

    template <int W> struct loaded {
        vec<A, W> a;
        vec<B, W> b;
    };

    template <int W> __device__ void load(int64_t row, int64_t col, loaded<W> &in) const
    {
        in.a = ::load<A, W>(a.at(row, col));
        in.b = ::load<B, W>(b.at(row, col));
    }

    template <int W> __device__ void store(int64_t row, int64_t col, const loaded<W> &in) const
    {
        float p[W], q[W];
        widen(in.a, p);
        widen(in.b, q);
#pragma unroll
        for (int i = 0; i < W; i++) p[i] += q[i];
        vec<Y, W> out;
        narrow(out, p);
        ::store(y.at(row, col), out);
    }
};

/* y = the sum of the rows of x. */
template <typename T> struct sum_rows_op {
    view<const T> x;
    view<T> y;
    int64_t rows;

    template <int W> struct loaded {
        float sum[W];
    };

    template <int W> __device__ void load(int64_t, int64_t col, loaded<W> &in) const
    {
        widen(::load<T, W>(x.at(0, col)), in.sum);
        for (int64_t row = 1; row < rows; row++) {
            float next[W];
            widen(::load<T, W>(x.at(row, col)), next);
#pragma unroll
            for (int i = 0; i < W; i++) in.sum[i] += next[i];
        }
    }

    template <int W> __device__ void store(int64_t, int64_t col, const loaded<W> &in) const
    {
        vec<T, W> out;
        narrow(out, in.sum);
        ::store(y.at(0, col), out);
    }
};

/* y = x * factor, or * *by where that is given; a factor of 1 converts. */
template <typename X, typename Y> struct scale_op {
    view<const X> x;
    view<Y> y;
    float factor;
    const float *by;

    template <int W> struct loaded {
        vec<X, W> x;
    };

    template <int W> __device__ void load(int64_t row, int64_t col, loaded<W> &in) const
    {
        in.x = ::load<X, W>(x.at(row, col));
    }

    template <int W> __device__ void store(int64_t row, int64_t col, const loaded<W> &in) const
    {
        float p[W], times = by != nullptr ? *by : factor;
        widen(in.x, p);
#pragma unroll
        for (int i = 0; i < W; i++) p[i] *= times;
        vec<Y, W> out;
        narrow(out, p);
        ::store(y.at(row, col), out);
    }
};

/* x = cap tanh(x / cap) */
template <typename T> struct soft_cap_op {
    view<T> x;
    float cap;

    template <int W> struct loaded {
        vec<T, W> x;
    };

    template <int W> __device__ void load(int64_t row, int64_t col, loaded<W> &in) const
    {
        in.x = ::load<T, W>(x.at(row, col));
    }

    template <int W> __device__ void store(int64_t row, int64_t col, const loaded<W> &in) const
    {
        float p[W];
        widen(in.x, p);
#pragma unroll
        for (int i = 0; i < W; i++) p[i] = cap * tanhf(p[i] / cap);
        vec<T, W> out;
        narrow(out, p);
        ::store(x.at(row, col), out);
    }
};

template <typename A, typename B, typename Y>
tt_status add_typed(struct tt_stream *stream, const struct tt_add_args *args)
{
    constexpr int W = wide<A, B, Y>();
    const tt_tensor &a = args->a, &b = args->b, &y = args->y;
    bool contiguous = tt_tensor_is_contiguous(a) && tt_tensor_is_contiguous(b) && tt_tensor_is_contiguous(y);
    struct add_op<A, B, Y> op = {
        view_of<const A>(a), view_of<const B>(b), view_of<Y>(y)
    };
    return apply<W, ITEMS>(stream, "add", op, rows_of(y, contiguous), cols_of(y, contiguous),
                           is_aligned(a, W) && is_aligned(b, W) && is_aligned(y, W), &y);
}

template <typename T> tt_status sum_rows_typed(struct tt_stream *stream, const struct tt_sum_rows_args *args)
{
    constexpr int W = wide<T>();
    const tt_tensor &x = args->x_RD, &y = args->y_D;
    struct sum_rows_op<T> op = {
        view_of<const T>(x), view_of<T>(y), x.dims[0]
    };
    return apply<W, ITEMS>(stream, "sum_rows", op, 1, y.dims[0], is_aligned(x, W) && is_aligned(y, W), &y);
}

template <typename X, typename Y>
tt_status scale_typed(struct tt_stream *stream, const char *name, const tt_tensor &x, const tt_tensor &y,
                      float factor, const float *by)
{
    constexpr int W = wide<X, Y>();
    bool contiguous = tt_tensor_is_contiguous(x) && tt_tensor_is_contiguous(y);
    struct scale_op<X, Y> op = {
        view_of<const X>(x), view_of<Y>(y), factor, by
    };
    return apply<W, ITEMS>(stream, name, op, rows_of(y, contiguous), cols_of(y, contiguous),
                           is_aligned(x, W) && is_aligned(y, W), &y);
}

template <typename T> tt_status soft_cap_typed(struct tt_stream *stream, const struct tt_soft_cap_args *args)
{
    constexpr int W = wide<T>();
    const tt_tensor &x = args->x;
    bool contiguous = tt_tensor_is_contiguous(x);
    struct soft_cap_op<T> op = {
        view_of<T>(x), args->cap
    };
    return apply<W, ITEMS>(stream, "soft_cap", op, rows_of(x, contiguous), cols_of(x, contiguous),
                           is_aligned(x, W), &x);
}

/* Copies between equal types: the bytes stay the same, including the payload of a NaN. */
tt_status copy_rows(struct tt_stream *stream, const tt_tensor &x, const tt_tensor &y)
{
    if (x.data == y.data || tt_tensor_count(x) == 0) return TT_OK;
    bool contiguous = tt_tensor_is_contiguous(x) && tt_tensor_is_contiguous(y);
    size_t element = tt_dtype_bytes(x.dtype), width = (size_t)cols_of(x, contiguous) * element;
    size_t rows = (size_t)rows_of(x, contiguous);
    if (rows == 1)
        return tt_cuda_check(
            cudaMemcpyAsync(y.data, x.data, width, cudaMemcpyDeviceToDevice, tt_cuda_handle(stream)), stream,
            "cast");
    return tt_cuda_check(cudaMemcpy2DAsync(y.data, (size_t)y.strides[0] * element, x.data,
                                           (size_t)x.strides[0] * element, width, rows,
                                           cudaMemcpyDeviceToDevice, tt_cuda_handle(stream)),
                         stream, "cast");
}

template <typename F> tt_status with_cast_type(tt_dtype dtype, F run)
{
    return dtype == TT_F16 ? run(f16{}) : with_type(dtype, run);
}

} // namespace

extern "C" tt_status tt_cuda_add(struct tt_stream *stream, const struct tt_add_args *args)
{
    return with_type(args->a.dtype, [&](auto a) {
        return with_type(args->b.dtype, [&](auto b) {
            return with_type(args->y.dtype, [&](auto y) {
                return add_typed<decltype(a), decltype(b), decltype(y)>(stream, args);
            });
        });
    });
}

extern "C" tt_status tt_cuda_sum_rows(struct tt_stream *stream, const struct tt_sum_rows_args *args)
{
    return with_type(args->x_RD.dtype, [&](auto x) { return sum_rows_typed<decltype(x)>(stream, args); });
}

extern "C" tt_status tt_cuda_scale(struct tt_stream *stream, const struct tt_scale_args *args)
{
    const float *by =
        static_cast<const float *>(tt_tensor_is_empty(args->by_1) ? nullptr : args->by_1.data);
    return with_type(args->x.dtype, [&](auto x) {
        return scale_typed<decltype(x), decltype(x)>(stream, "scale", args->x, args->x, args->factor, by);
    });
}

extern "C" tt_status tt_cuda_soft_cap(struct tt_stream *stream, const struct tt_soft_cap_args *args)
{
    return with_type(args->x.dtype, [&](auto x) { return soft_cap_typed<decltype(x)>(stream, args); });
}

extern "C" tt_status tt_cuda_cast(struct tt_stream *stream, const struct tt_cast_args *args)
{
    if (args->x.dtype == args->y.dtype) return copy_rows(stream, args->x, args->y);
    return with_cast_type(args->x.dtype, [&](auto x) {
        return with_cast_type(args->y.dtype, [&](auto y) {
            return scale_typed<decltype(x), decltype(y)>(stream, "cast", args->x, args->y, 1.0f, nullptr);
        });
    });
}
