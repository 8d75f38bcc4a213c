#include "backend/cuda/device_math.cuh"

/* Causal depthwise convolution. A thread has one column of a run of rows and keeps the last J inputs in registers;
 * neighbouring threads have neighbouring columns. Backward goes J - 1 rows beyond its run, so that each gradient of an
 * input is summed by one thread, in the order of the taps. Gradients of weights are sums over the run in a line of the
 * scratch, and the lines are added in order. */

namespace
{

constexpr int THREADS = 128, TAPS_MAX = TT_CONV1D_KERNEL_MAX;
constexpr int64_t RUN_ROWS = 64, LINES_MAX = 64;

struct rows {
    void *data; /* NULL: not given */
    int64_t stride;

    template <typename T> __device__ __forceinline__ float at(int64_t row, int64_t col) const
    {
        return load_one(static_cast<const T *>(data) + row * stride + col);
    }

    template <typename T> __device__ __forceinline__ void put(int64_t row, int64_t col, float value) const
    {
        store_one(static_cast<T *>(data) + row * stride + col, value);
    }
};

struct rows rows_of(const tt_tensor &x)
{
    if (tt_tensor_is_empty(x)) return {};
    return {x.data, x.strides[0]};
}

struct conv {
    struct rows x, in, out;
    const void *w, *bias; /* bias NULL: 0 */
    const int32_t *cu, *from, *to;
    float *pool; /* NULL: no states */
    int64_t pool_stride, count, columns, sequences;
    bool w_bf16, bias_bf16, silu;
};

struct conv conv_of(const struct tt_conv1d_forward_args *args)
{
    struct conv c = {};
    c.x = rows_of(args->x_TC), c.in = rows_of(args->in_gate_TC), c.out = rows_of(args->out_gate_TC);
    c.w = args->w_CJ.data, c.bias = args->bias_C.data;
    c.w_bf16 = args->w_CJ.dtype == TT_BF16, c.bias_bf16 = args->bias_C.dtype == TT_BF16;
    c.cu = static_cast<const int32_t *>(args->sequences.device_cu.data);
    c.from = static_cast<const int32_t *>(args->states.from_B.data);
    c.to = static_cast<const int32_t *>(args->states.to_B.data);
    c.pool = static_cast<float *>(args->states.pool.data);
    c.pool_stride = tt_tensor_is_empty(args->states.pool) ? 0 : args->states.pool.strides[0];
    c.count = args->x_TC.dims[0], c.columns = args->x_TC.dims[1], c.sequences = args->sequences.count;
    c.silu = args->silu;
    return c;
}

/* The last sequence that begins at or before the row, and whose rows are not over. */
__device__ __forceinline__ int64_t sequence_of(const struct conv &c, int64_t row)
{
    int64_t low = 0, high = c.sequences;
    while (high - low > 1) {
        int64_t middle = low + (high - low) / 2;
        if (c.cu[middle] <= row)
            low = middle;
        else
            high = middle;
    }
    return low;
}

/* u of a row of the sequence or, before its first one, of its state. */
template <typename T>
__device__ __forceinline__ float input_at(const struct conv &c, int taps, int64_t sequence, int64_t row,
                                          int64_t col)
{
    int64_t begin = c.cu[sequence];
    if (row >= begin) {
        float x = c.x.at<T>(row, col);
        return c.in.data == nullptr ? x : x * c.in.at<T>(row, col);
    }
    if (c.pool == nullptr || c.from[sequence] < 0) return 0;
    return c.pool[c.from[sequence] * c.pool_stride + (taps - 1 + row - begin) * c.columns + col];
}

template <int J> struct weights {
    float w[J], bias;
};

template <int J>
__device__ __forceinline__ struct weights<J> load_weights(const struct conv &c, int taps, int64_t col) {
    struct weights<J> t;
#pragma unroll
    for (int j = 0; j < J; j++) t.w[j] = j < taps ? load_either(c.w, col *taps + j, c.w_bf16) : 0;
    t.bias = c.bias == nullptr ? 0 : load_either(c.bias, col, c.bias_bf16);
    return t;
}

/* The inputs of a row: u[j] is that of tap j. `next` moves them to the next row. */
template <typename T, int J>
struct window {
    float u[J];
    int64_t sequence, end;

    __device__ __forceinline__ void begin(const struct conv &c, int taps, int64_t row, int64_t col)
    {
        sequence = sequence_of(c, row);
        end = c.cu[sequence + 1];
        fill(c, taps, row, col);
    }

    __device__ __forceinline__ void fill(const struct conv &c, int taps, int64_t row, int64_t col)
    {
#pragma unroll
        for (int j = 0; j < J; j++)
            u[j] = j < taps ? input_at<T>(c, taps, sequence, row - taps + 1 + j, col) : 0;
    }

    __device__ __forceinline__ void next(const struct conv &c, int taps, int64_t row, int64_t col)
    {
        if (row >= end) {
            while (row >= end) end = c.cu[++sequence + 1];
            fill(c, taps, row, col);
            return;
        }
#pragma unroll
        for (int j = 0; j + 1 < J; j++) u[j] = u[j + 1];
#pragma unroll
        for (int j = 0; j < J; j++)
            if (j == taps - 1) u[j] = input_at<T>(c, taps, sequence, row, col);
    }

    __device__ __forceinline__ float convolve(const struct weights<J> &t) const
    {
        float z = t.bias;
#pragma unroll
        for (int j = 0; j < J; j++) z = __fmaf_rn(t.w[j], u[j], z);
        return z;
    }
};

template <typename T, int J>
__global__ void __launch_bounds__(THREADS) forward(const struct conv c, int taps, struct rows y, int64_t run)
{
    int64_t col = (int64_t)blockIdx.x * THREADS + threadIdx.x, first = blockIdx.y * run;
    int64_t end = first + run < c.count ? first + run : c.count;
    if (col >= c.columns) return;
    struct weights<J> t = load_weights<J>(c, taps, col);
    struct window<T, J> window;
    window.begin(c, taps, first, col);
    for (int64_t row = first; row < end; row++) {
        if (row > first) window.next(c, taps, row, col);
        float z = window.convolve(t);
        if (c.silu) z = z / (1.0f + __expf(-z));
        if (c.out.data != nullptr) z *= c.out.at<T>(row, col);
        y.put<T>(row, col, z);
    }
}

/* A state may be its own successor: row j comes from a row at or after j. */
template <typename T> __global__ void __launch_bounds__(THREADS) keep(const struct conv c, int taps)
{
    int64_t col = (int64_t)blockIdx.x * THREADS + threadIdx.x, sequence = blockIdx.y;
    if (col >= c.columns || c.to[sequence] < 0) return;
    float *to = c.pool + c.to[sequence] * c.pool_stride;
    int64_t end = c.cu[sequence + 1];
    for (int j = 0; j + 1 < taps; j++)
        to[j * c.columns + col] = input_at<T>(c, taps, sequence, end - taps + 1 + j, col);
}

/* The rows and states of sequences of one row (generation), by vectors of V columns. */
template <typename T, int J, int V>
__global__ void __launch_bounds__(THREADS) step(const struct conv c, struct rows y)
{
    int64_t col = ((int64_t)blockIdx.x * THREADS + threadIdx.x) * V, sequence = blockIdx.y,
            row = c.cu[sequence];
    if (col >= c.columns) return;
    int64_t from = c.from[sequence], to = c.to[sequence];
    float *state = c.pool + from * c.pool_stride + col, *next = c.pool + to * c.pool_stride + col;
    vec<float, V> held[J];
    float u[J][V], z[V];
#pragma unroll
    for (int j = 0; j + 1 < J; j++) {
        held[j] = {};
        if (from >= 0) held[j] = load<float, V>(state + j * c.columns);
    }
    widen(load<T, V>(static_cast<const T *>(c.x.data) + row * c.x.stride + col), u[J - 1]);
#pragma unroll
    for (int j = 0; j + 1 < J; j++) widen(held[j], u[j]);
#pragma unroll
    for (int i = 0; i < V; i++) {
        struct weights<J> t = load_weights<J>(c, J, col + i);
        z[i] = t.bias;
#pragma unroll
        for (int j = 0; j < J; j++) z[i] = __fmaf_rn(t.w[j], u[j][i], z[i]);
        if (c.silu) z[i] = z[i] / (1.0f + __expf(-z[i]));
    }
    vec<T, V> out;
    narrow(out, z);
    store(static_cast<T *>(y.data) + row * y.stride + col, out);
    if (to < 0) return;
#pragma unroll
    for (int j = 0; j + 1 < J; j++) {
        narrow(held[j], u[j + 1]);
        store(next + j * c.columns, held[j]);
    }
}

struct gradients {
    struct rows dy, dx, din, dout;
    float *dw, *dbias; /* lines: [runs][columns * taps], [runs][columns]; NULL: not wanted */
};

template <typename T, int J>
__global__ void __launch_bounds__(THREADS)
    backward(const struct conv c, int taps, const struct gradients g, int64_t run)
{
    int64_t col = (int64_t)blockIdx.x * THREADS + threadIdx.x, first = blockIdx.y * run;
    int64_t end = first + run < c.count ? first + run : c.count;
    if (col >= c.columns) return;
    struct weights<J> t = load_weights<J>(c, taps, col);
    struct window<T, J> window;
    float du[J] = {}, dw[J] = {}, dbias = 0; /* du[j]: of the row that tap j of this row reads */
    window.begin(c, taps, first, col);
    int64_t last = end + taps - 1 < c.count ? end + taps - 1 : c.count, sequence = window.sequence;
    for (int64_t row = first; row < last; row++) {
        if (row > first) window.next(c, taps, row, col);
        if (row >= end && window.sequence != sequence && c.cu[window.sequence] >= end) break;
        sequence = window.sequence;
        float z = window.convolve(t), act = z, slope = 1, dy = g.dy.at<T>(row, col);
        if (c.silu) {
            float share = 1.0f / (1.0f + __expf(-z));
            act = z * share;
            slope = share * (1.0f + z * (1.0f - share));
        }
        if (c.out.data != nullptr) {
            if (row < end) g.dout.put<T>(row, col, dy * act);
            dy *= c.out.at<T>(row, col);
        }
        float dz = dy * slope;
        int64_t begin = c.cu[sequence], stop = c.cu[sequence + 1];
#pragma unroll
        for (int j = 0; j < J; j++) du[j] = __fmaf_rn(t.w[j], dz, row - taps + 1 + j < begin ? 0.0f : du[j]);
        if (row < end) {
            dbias += dz;
#pragma unroll
            for (int j = 0; j < J; j++) dw[j] = __fmaf_rn(dz, window.u[j], dw[j]);
        }
        /* The input of tap 0 has no later reader; at a sequence's last row none has. */
#pragma unroll
        for (int j = 0; j < J; j++) {
            int64_t of = row - taps + 1 + j;
            if (j >= taps || (j > 0 && row + 1 < stop) || of < begin || of < first || of >= end) continue;
            float gradient = du[j];
            if (c.in.data != nullptr) {
                g.din.put<T>(of, col, gradient * c.x.at<T>(of, col));
                gradient *= c.in.at<T>(of, col);
            }
            g.dx.put<T>(of, col, gradient);
        }
#pragma unroll
        for (int j = 0; j < J; j++) du[j] = j + 1 < J && j + 1 < taps ? du[j + 1] : 0;
    }
    if (g.dbias != nullptr) g.dbias[blockIdx.y * c.columns + col] = dbias;
    if (g.dw == nullptr) return;
#pragma unroll
    for (int j = 0; j < J; j++)
        if (j < taps) g.dw[(blockIdx.y * c.columns + col) * taps + j] = dw[j];
}

} // namespace

#include "backend/cuda/conv1d_wide.cuh"

namespace
{

/* Whether the kernels for whole vectors of columns support the call. */
bool is_wide(const struct tt_conv1d_forward_args *args)
{
    return args->w_CJ.dims[1] == WIDE_TAPS && args->x_TC.dims[1] % WIDE_COLUMNS == 0 &&
           is_aligned(args->x_TC, WIDE_COLUMNS) && tt_tensor_is_empty(args->in_gate_TC) &&
           tt_tensor_is_empty(args->out_gate_TC);
}

/* Whether `step` supports the call: every sequence has one row, as in generation. */
bool is_step(const struct conv &c, const struct tt_conv1d_forward_args *args)
{
    for (int64_t b = 0; b < args->sequences.count; b++)
        if (args->sequences.cu[b + 1] - args->sequences.cu[b] != 1) return false;
    return c.pool != nullptr && (uintptr_t)c.pool % 16 == 0 && c.pool_stride % WIDE_COLUMNS == 0;
}

/* The rows of a thread: fewer where a few rows, as in generation, would leave multiprocessors without work. */
int64_t run_of(const struct tt_stream *stream, int64_t count, unsigned strips)
{
    int64_t run = RUN_ROWS, wanted = 2 * (int64_t)tt_cuda_device_of(stream)->processors;
    while (run > 1 && (count + run - 1) / run * (int64_t)strips < wanted) run /= 2;
    return run;
}

template <typename T>
tt_status forward_typed(struct tt_stream *stream, const struct tt_conv1d_forward_args *args)
{
    struct conv c = conv_of(args);
    int taps = (int)args->w_CJ.dims[1];
    cudaStream_t on = tt_cuda_handle(stream);
    unsigned strips = (unsigned)((c.columns + THREADS - 1) / THREADS);
    if (c.columns == 0 || c.sequences == 0) return TT_OK;
    if (c.count > 0) {
        bool wide = is_wide(args) && is_aligned(args->y_TC, WIDE_COLUMNS);
        unsigned across = wide ? (strips + WIDE_COLUMNS - 1) / WIDE_COLUMNS : strips;
        int64_t run = run_of(stream, c.count, across);
        dim3 blocks(across, (unsigned)((c.count + run - 1) / run));
        if (wide && is_step(c, args)) {
            step<T, WIDE_TAPS, WIDE_COLUMNS>
                <<<dim3(across, (unsigned)c.sequences), THREADS, 0, on>>>(c, rows_of(args->y_TC));
            return tt_cuda_launched(stream, "conv1d_forward", &args->x_TC);
        }
        if (wide)
            forward_wide<T><<<blocks, THREADS, 0, on>>>(c, rows_of(args->y_TC), run);
        else if (taps <= 4)
            forward<T, 4><<<blocks, THREADS, 0, on>>>(c, taps, rows_of(args->y_TC), run);
        else
            forward<T, TAPS_MAX><<<blocks, THREADS, 0, on>>>(c, taps, rows_of(args->y_TC), run);
    }
    if (c.pool != nullptr && taps > 1)
        keep<T><<<dim3(strips, (unsigned)c.sequences), THREADS, 0, on>>>(c, taps);
    return tt_cuda_launched(stream, "conv1d_forward", &args->x_TC);
}

template <typename T>
tt_status backward_typed(struct tt_stream *stream, const struct tt_conv1d_backward_args *args)
{
    struct conv c = conv_of(&args->forward);
    int taps = (int)args->forward.w_CJ.dims[1];
    struct gradients g = {};
    g.dy = rows_of(args->dy_TC), g.dx = rows_of(args->dx_TC);
    g.din = rows_of(args->din_gate_TC), g.dout = rows_of(args->dout_gate_TC);
    if (c.columns == 0 || c.count == 0) return TT_OK;
    int64_t run = RUN_ROWS, line = c.columns * (taps + 1);
    bool has_dw = !tt_tensor_is_empty(args->dw_CJ), has_dbias = !tt_tensor_is_empty(args->dbias_C);
    if (has_dw || has_dbias) {
        int64_t lines = TT_CUDA_SCRATCH_BYTES / (int64_t)sizeof(float) / line;
        if (lines < 1)
            return tt_fail(TT_ERR_UNSUPPORTED,
                           "conv1d_backward: %lld columns, weights of a GPU have at most %lld",
                           (long long)c.columns,
                           (long long)(TT_CUDA_SCRATCH_BYTES / (int64_t)sizeof(float) / (taps + 1)));
        if (lines > LINES_MAX) lines = LINES_MAX;
        if ((c.count + run - 1) / run > lines) run = (c.count + lines - 1) / lines;
    }
    int64_t runs = (c.count + run - 1) / run;
    float *scratch = static_cast<float *>(tt_cuda_scratch(stream));
    if (has_dw) g.dw = scratch;
    if (has_dbias) g.dbias = scratch + runs * c.columns * taps;
    dim3 blocks((unsigned)((c.columns + THREADS - 1) / THREADS), (unsigned)runs);
    if (is_wide(&args->forward) && !has_dw && !has_dbias && is_aligned(args->dy_TC, WIDE_COLUMNS) &&
        is_aligned(args->dx_TC, WIDE_COLUMNS))
        backward_wide<T><<<dim3((blocks.x + WIDE_COLUMNS - 1) / WIDE_COLUMNS, blocks.y), THREADS, 0,
                           tt_cuda_handle(stream)>>>(c, g.dy, g.dx, run);
    else if (taps <= 4)
        backward<T, 4><<<blocks, THREADS, 0, tt_cuda_handle(stream)>>>(c, taps, g, run);
    else
        backward<T, TAPS_MAX><<<blocks, THREADS, 0, tt_cuda_handle(stream)>>>(c, taps, g, run);
    if (has_dw)
        launch_add_lines(stream, static_cast<float *>(args->dw_CJ.data), g.dw, (int)runs, c.columns * taps);
    if (has_dbias)
        launch_add_lines(stream, static_cast<float *>(args->dbias_C.data), g.dbias, (int)runs, c.columns);
    return tt_cuda_launched(stream, "conv1d_backward", &args->forward.x_TC);
}

} // namespace

extern "C" tt_status tt_cuda_conv1d_forward(struct tt_stream *stream,
                                            const struct tt_conv1d_forward_args *args)
{
    return with_type(args->x_TC.dtype, [&](auto t) { return forward_typed<decltype(t)>(stream, args); });
}

extern "C" tt_status tt_cuda_conv1d_backward(struct tt_stream *stream,
                                             const struct tt_conv1d_backward_args *args)
{
    return with_type(args->dy_TC.dtype, [&](auto t) { return backward_typed<decltype(t)>(stream, args); });
}
