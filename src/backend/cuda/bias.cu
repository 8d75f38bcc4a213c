#include "backend/cuda/sheet.cuh"

namespace
{

template <typename Y, typename B> struct bias_op {
    view<Y> y;
    const B *bias;

    template <int W> struct loaded {
        vec<Y, W> y;
        vec<B, W> bias;
    };

    template <int W> __device__ void load(int64_t row, int64_t col, loaded<W> &in) const
    {
        in.y = ::load<Y, W>(y.at(row, col));
        in.bias = ::load<B, W>(bias + col);
    }

    template <int W> __device__ void store(int64_t row, int64_t col, loaded<W> &in) const
    {
        float p[W], q[W];
        widen(in.y, p);
        widen(in.bias, q);
#pragma unroll
        for (int i = 0; i < W; i++) p[i] += q[i];
        narrow(in.y, p);
        ::store(y.at(row, col), in.y);
    }
};

/* Backward: a thread block sums the rows of one group in 32 W columns, SLOTS rows at a time. */
enum { SLOTS = 8 };
/* BLOCKS: at least 64 groups, or as many as fill the GPU */
constexpr int64_t GROUP_ROWS_MIN = 64, GROUPS_MAX = 64, BLOCKS = 256;

template <typename T, int W>
__global__ void __launch_bounds__(32 * SLOTS)
    sum_group(float *lines, view<const T> dy, int64_t rows, int64_t cols, int64_t group_rows)
{
    int64_t col = ((int64_t)blockIdx.x * 32 + threadIdx.x) * W;
    int64_t first = blockIdx.y * group_rows, end = first + group_rows < rows ? first + group_rows : rows;
    float sum[W] = {};
    if (col < cols) {
#pragma unroll 4
        for (int64_t row = first + threadIdx.y; row < end; row += SLOTS) {
            float part[W];
            widen(load<T, W>(dy.at(row, col)), part);
#pragma unroll
            for (int i = 0; i < W; i++) sum[i] += part[i];
        }
    }
    store_line<W, SLOTS>(lines + blockIdx.y * cols, sum, col, cols);
}

template <typename T>
tt_status backward_typed(struct tt_stream *stream, const struct tt_bias_backward_args *args)
{
    constexpr int W = wide<T>();
    const tt_tensor &dy = args->dy_TN;
    int64_t rows = dy.dims[0], cols = dy.dims[1], fits = TT_CUDA_SCRATCH_BYTES / (int64_t)sizeof(float);
    if (rows == 0 || cols == 0) return TT_OK;
    float *lines = static_cast<float *>(tt_cuda_scratch(stream)),
          *dbias = static_cast<float *>(args->dbias_N.data);
    /* Columns that exceed a line of the scratch need another round. */
    for (int64_t done = 0; done < cols; done += fits) {
        int64_t now = cols - done < fits ? cols - done : fits;
        int64_t strips = (now + 32 * W - 1) / (32 * W),
                most = BLOCKS / strips > GROUPS_MAX ? BLOCKS / strips : GROUPS_MAX;
        int64_t groups = rows / GROUP_ROWS_MIN < most ? rows / GROUP_ROWS_MIN : most;
        if (groups > fits / now) groups = fits / now;
        if (groups < 1) groups = 1;
        int64_t group_rows = (rows + groups - 1) / groups;
        groups = (rows + group_rows - 1) / group_rows;
        view<const T> from = view_of<const T>(dy);
        from.data += done;
        /* Rows that begin at vectors have room for the last one. */
        bool aligned = is_aligned(dy, W) && (now % W == 0 || dy.strides[0] % W == 0);
        int64_t strip = 32 * (aligned ? W : 1);
        dim3 blocks((unsigned)((now + strip - 1) / strip), (unsigned)groups), threads(32, SLOTS);
        if (aligned)
            sum_group<T, W>
                <<<blocks, threads, 0, tt_cuda_handle(stream)>>>(lines, from, rows, now, group_rows);
        else
            sum_group<T, 1>
                <<<blocks, threads, 0, tt_cuda_handle(stream)>>>(lines, from, rows, now, group_rows);
        launch_add_lines(stream, dbias + done, lines, (int)groups, now);
    }
    return tt_cuda_launched(stream, "bias_backward", &dy);
}

template <typename Y, typename B>
tt_status forward_typed(struct tt_stream *stream, const struct tt_bias_forward_args *args)
{
    constexpr int W = wide<Y, B>();
    const tt_tensor &y = args->y_TN, &bias = args->bias_N;
    struct bias_op<Y, B> op = {
        view_of<Y>(y), static_cast<const B *>(bias.data)
    };
    return apply<W, 4>(stream, "bias_forward", op, y.dims[0], y.dims[1],
                       is_aligned(y, W) && is_aligned(bias, W), &y);
}

} // namespace

extern "C" tt_status tt_cuda_bias_forward(struct tt_stream *stream, const struct tt_bias_forward_args *args)
{
    return with_type(args->y_TN.dtype, [&](auto y) {
        return with_type(args->bias_N.dtype,
                         [&](auto bias) { return forward_typed<decltype(y), decltype(bias)>(stream, args); });
    });
}

extern "C" tt_status tt_cuda_bias_backward(struct tt_stream *stream, const struct tt_bias_backward_args *args)
{
    return with_type(args->dy_TN.dtype, [&](auto t) { return backward_typed<decltype(t)>(stream, args); });
}
