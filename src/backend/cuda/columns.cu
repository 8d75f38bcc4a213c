#include "backend/cuda/sheet.cuh"

namespace
{

/* A thread block has a row. */
constexpr int NORM_THREADS = 256;

template <typename T, int W>
__global__ void __launch_bounds__(NORM_THREADS)
    row_norms(const T *w, int64_t stride, int64_t width, float *norm, float *inverse)
{
    __shared__ float partial[32];
    w += (int64_t)blockIdx.x * stride;
    float sum = 0;
    for (int64_t k = (int64_t)threadIdx.x * W; k < width; k += NORM_THREADS * W) {
        float p[W];
        widen(load<T, W>(w + k), p);
#pragma unroll
        for (int i = 0; i < W; i++) sum += p[i] * p[i];
    }
    float length = sqrtf(block_sum(sum, partial));
    if (threadIdx.x > 0) return;
    if (norm != NULL) norm[blockIdx.x] = length;
    if (inverse != NULL) inverse[blockIdx.x] = length > 0 ? 1.0f / length : 0.0f;
}

template <typename T> tt_status norms_typed(struct tt_stream *stream, const struct tt_row_norms_args *args)
{
    constexpr int W = wide<T>();
    const tt_tensor &w = args->w_NK;
    unsigned rows = (unsigned)w.dims[0];
    const T *from = static_cast<const T *>(w.data);
    float *norm = static_cast<float *>(args->norm_N.data),
          *inverse = static_cast<float *>(args->inverse_N.data);
    cudaStream_t on = tt_cuda_handle(stream);
    if (rows == 0) return TT_OK;
    if (w.dims[1] % W == 0 && is_aligned(w, W))
        row_norms<T, W><<<rows, NORM_THREADS, 0, on>>>(from, w.strides[0], w.dims[1], norm, inverse);
    else
        row_norms<T, 1><<<rows, NORM_THREADS, 0, on>>>(from, w.strides[0], w.dims[1], norm, inverse);
    return tt_cuda_launched(stream, "row_norms", &w);
}

template <typename X, typename Y> struct scale_columns_op {
    view<const X> x;
    view<Y> y;
    const float *a, *b; /* b: NULL for 1 */
    const void *addend; /* NULL: none */
    int64_t addend_stride;
    bool addend_bf16;

    template <int W> struct loaded {
        vec<X, W> x;
        vec<float, W> a, b, addend;
    };

    template <int W> __device__ void load(int64_t row, int64_t col, loaded<W> &in) const
    {
        float p[W] = {}, ones[W];
#pragma unroll
        for (int i = 0; i < W; i++) ones[i] = 1;
        narrow(in.b, ones);
        if (b != NULL) in.b = ::load<float, W>(b + col);
        int64_t at = row * addend_stride + col;
        if (addend != NULL && addend_bf16)
            widen(::load<bf16, W>(static_cast<const bf16 *>(addend) + at), p);
        else if (addend != NULL)
            widen(::load<float, W>(static_cast<const float *>(addend) + at), p);
        narrow(in.addend, p);
        in.x = ::load<X, W>(x.at(row, col));
        in.a = ::load<float, W>(a + col);
    }

    template <int W> __device__ void store(int64_t row, int64_t col, loaded<W> &in) const
    {
        float p[W], q[W], r[W], s[W];
        widen(in.x, p);
        widen(in.a, q);
        widen(in.b, r);
        widen(in.addend, s);
#pragma unroll
        for (int i = 0; i < W; i++) p[i] = p[i] * (q[i] * r[i]) + s[i];
        vec<Y, W> out;
        narrow(out, p);
        ::store(y.at(row, col), out);
    }
};

template <typename X, typename Y>
tt_status scale_typed(struct tt_stream *stream, const struct tt_scale_columns_args *args)
{
    constexpr int W = 4; /* 16 bytes of a and b */
    const tt_tensor &x = args->x_TN, &y = args->y_TN, &addend = args->addend_TN;
    bool adds = !tt_tensor_is_empty(addend);
    struct scale_columns_op<X, Y> op = {view_of<const X>(x),
                                        view_of<Y>(y),
                                        static_cast<const float *>(args->a_N.data),
                                        static_cast<const float *>(args->b_N.data),
                                        adds ? addend.data : NULL,
                                        adds ? addend.strides[0] : 0,
                                        addend.dtype == TT_BF16};
    bool aligned = is_aligned(x, W) && is_aligned(y, W) && is_aligned(args->a_N, W) &&
                   (args->b_N.data == NULL || is_aligned(args->b_N, W)) && (!adds || is_aligned(addend, W));
    return apply<W, 2>(stream, "scale_columns", op, x.dims[0], x.dims[1], aligned, &y);
}

/* A thread block sums the rows of one group in 32 W columns, SLOTS rows at a time. */
enum { SLOTS = 8 };
constexpr int64_t GROUP_ROWS_MIN = 64, GROUPS_MAX = 64;

template <typename X, typename G, int W>
__global__ void __launch_bounds__(32 * SLOTS)
    dot_group(float *lines, view<const X> x, view<const G> g, const float *b, int64_t rows, int64_t cols,
              int64_t group_rows)
{
    int64_t col = ((int64_t)blockIdx.x * 32 + threadIdx.x) * W;
    int64_t first = blockIdx.y * group_rows, end = first + group_rows < rows ? first + group_rows : rows;
    float sum[W] = {};
    if (col < cols) {
#pragma unroll 4
        for (int64_t row = first + threadIdx.y; row < end; row += SLOTS) {
            float p[W], q[W];
            widen(load<X, W>(x.at(row, col)), p);
            widen(load<G, W>(g.at(row, col)), q);
#pragma unroll
            for (int i = 0; i < W; i++) sum[i] += p[i] * q[i];
        }
#pragma unroll
        for (int i = 0; i < W; i++)
            if (col + i < cols) sum[i] *= b[col + i];
    }
    store_line<W, SLOTS>(lines + blockIdx.y * cols, sum, col, cols);
}

template <typename X, typename G>
tt_status dots_typed(struct tt_stream *stream, const struct tt_column_dots_args *args)
{
    constexpr int W = wide<X, G>();
    const tt_tensor &x = args->x_TN, &g = args->g_TN;
    int64_t rows = x.dims[0], cols = x.dims[1], fits = TT_CUDA_SCRATCH_BYTES / (int64_t)sizeof(float);
    if (rows == 0 || cols == 0) return TT_OK;
    float *lines = static_cast<float *>(tt_cuda_scratch(stream)),
          *dots = static_cast<float *>(args->dots_N.data);
    const float *b = static_cast<const float *>(args->b_N.data);
    /* Columns that exceed a line of the scratch need another round. */
    for (int64_t done = 0; done < cols; done += fits) {
        int64_t now = cols - done < fits ? cols - done : fits;
        int64_t groups = rows / GROUP_ROWS_MIN < GROUPS_MAX ? rows / GROUP_ROWS_MIN : GROUPS_MAX;
        if (groups > fits / now) groups = fits / now;
        if (groups < 1) groups = 1;
        int64_t group_rows = (rows + groups - 1) / groups;
        groups = (rows + group_rows - 1) / group_rows;
        view<const X> from = view_of<const X>(x);
        view<const G> by = view_of<const G>(g);
        from.data += done, by.data += done;
        bool aligned = is_aligned(x, W) && is_aligned(g, W) && now % W == 0;
        int64_t strip = 32 * (aligned ? W : 1);
        dim3 blocks((unsigned)((now + strip - 1) / strip), (unsigned)groups), threads(32, SLOTS);
        cudaStream_t on = tt_cuda_handle(stream);
        if (aligned)
            dot_group<X, G, W><<<blocks, threads, 0, on>>>(lines, from, by, b + done, rows, now, group_rows);
        else
            dot_group<X, G, 1><<<blocks, threads, 0, on>>>(lines, from, by, b + done, rows, now, group_rows);
        launch_add_lines(stream, dots + done, lines, (int)groups, now);
    }
    return tt_cuda_launched(stream, "column_dots", &x);
}

/* Zeros for the columns of other groups; the others are left as they are. */
template <typename X> struct keep_columns_op {
    view<X> x;
    const int32_t *group, *row; /* row: NULL for the row itself */
    int share, first, count, each;

    template <int W> struct loaded {
        int own;
    };

    template <int W> __device__ void load(int64_t t, int64_t, loaded<W> &in) const
    {
        in.own = group[row != NULL ? row[t] / share : t] - first;
    }

    template <int W> __device__ void store(int64_t t, int64_t col, loaded<W> &in) const
    {
        if ((int)col / each % count == in.own) return;
        float zeros[W] = {};
        vec<X, W> out;
        narrow(out, zeros);
        ::store(x.at(t, col), out);
    }
};

template <typename X>
tt_status keep_typed(struct tt_stream *stream, const struct tt_keep_columns_args *args)
{
    constexpr int W = 4; /* all of one group where `each` is a multiple of it */
    const tt_tensor &x = args->x_TN;
    struct keep_columns_op<X> op = {view_of<X>(x),
                                    static_cast<const int32_t *>(args->group_R.data),
                                    static_cast<const int32_t *>(args->row_T.data),
                                    (int)args->share,
                                    (int)args->first,
                                    (int)args->count,
                                    (int)args->each};
    bool aligned = is_aligned(x, W) && args->each % W == 0;
    return apply<W, 2>(stream, "keep_columns", op, x.dims[0], x.dims[1], aligned, &x);
}

} // namespace

extern "C" tt_status tt_cuda_row_norms(struct tt_stream *stream, const struct tt_row_norms_args *args)
{
    return with_type(args->w_NK.dtype, [&](auto t) { return norms_typed<decltype(t)>(stream, args); });
}

extern "C" tt_status tt_cuda_scale_columns(struct tt_stream *stream, const struct tt_scale_columns_args *args)
{
    return with_type(args->x_TN.dtype, [&](auto x) {
        return with_type(args->y_TN.dtype,
                         [&](auto y) { return scale_typed<decltype(x), decltype(y)>(stream, args); });
    });
}

extern "C" tt_status tt_cuda_column_dots(struct tt_stream *stream, const struct tt_column_dots_args *args)
{
    return with_type(args->x_TN.dtype, [&](auto x) {
        return with_type(args->g_TN.dtype,
                         [&](auto g) { return dots_typed<decltype(x), decltype(g)>(stream, args); });
    });
}

extern "C" tt_status tt_cuda_keep_columns(struct tt_stream *stream, const struct tt_keep_columns_args *args)
{
    return with_type(args->x_TN.dtype, [&](auto x) { return keep_typed<decltype(x)>(stream, args); });
}
