/* Convolutions of conv1d.cu without gates, of four taps, over rows of whole vectors: a thread has COLUMNS neighbouring
 * columns of a run of rows and reads several rows before it needs the first, so that many reads are in flight. Each
 * number is computed as in the other kernels, in the same order. */
#ifndef TT_BACKEND_CUDA_CONV1D_WIDE_CUH
#define TT_BACKEND_CUDA_CONV1D_WIDE_CUH

#include "backend/cuda/device_math.cuh"

namespace
{

constexpr int WIDE_TAPS = 4, WIDE_COLUMNS = 4, WIDE_ROWS = 8;

template <typename T> using wide_vec = vec<T, WIDE_COLUMNS>;

template <typename T>
__device__ __forceinline__ const T *wide_at(const struct rows &x, int64_t row, int64_t col)
{
    return static_cast<const T *>(x.data) + row * x.stride + col;
}

/* The inputs of a row for COLUMNS columns, and the taps. */
template <typename T> struct wide_window {
    float u[WIDE_TAPS][WIDE_COLUMNS], w[WIDE_TAPS][WIDE_COLUMNS], bias[WIDE_COLUMNS];
    int64_t sequence, begin, end;

    __device__ __forceinline__ void load_taps(const struct conv &c, int64_t col)
    {
#pragma unroll
        for (int i = 0; i < WIDE_COLUMNS; i++) {
            struct weights<WIDE_TAPS> t = load_weights<WIDE_TAPS>(c, WIDE_TAPS, col + i);
            bias[i] = t.bias;
#pragma unroll
            for (int j = 0; j < WIDE_TAPS; j++) w[j][i] = t.w[j];
        }
    }

    /* The sequence of a row, and the inputs before the row; the row's own come with `push`. */
    __device__ __forceinline__ void fill(const struct conv &c, int64_t row, int64_t col)
    {
        begin = c.cu[sequence], end = c.cu[sequence + 1];
#pragma unroll
        for (int j = 1; j < WIDE_TAPS; j++)
#pragma unroll
            for (int i = 0; i < WIDE_COLUMNS; i++)
                u[j][i] = input_at<T>(c, WIDE_TAPS, sequence, row - WIDE_TAPS + j, col + i);
    }

    __device__ __forceinline__ void start(const struct conv &c, int64_t row, int64_t col)
    {
        load_taps(c, col);
        sequence = sequence_of(c, row);
        fill(c, row, col);
    }

    /* True: the row is the first of another sequence. */
    __device__ __forceinline__ bool push(const struct conv &c, int64_t row, int64_t col, const wide_vec<T> &x)
    {
        bool other = row >= end;
        if (other) {
            while (row >= c.cu[sequence + 1]) sequence++;
            fill(c, row, col);
        }
#pragma unroll
        for (int j = 0; j + 1 < WIDE_TAPS; j++)
#pragma unroll
            for (int i = 0; i < WIDE_COLUMNS; i++) u[j][i] = u[j + 1][i];
        float wide[WIDE_COLUMNS];
        widen(x, wide);
#pragma unroll
        for (int i = 0; i < WIDE_COLUMNS; i++) u[WIDE_TAPS - 1][i] = wide[i];
        return other;
    }

    __device__ __forceinline__ float convolve(int i) const
    {
        float z = bias[i];
#pragma unroll
        for (int j = 0; j < WIDE_TAPS; j++) z = __fmaf_rn(w[j][i], u[j][i], z);
        return z;
    }
};

template <typename T>
__global__ void __launch_bounds__(THREADS) forward_wide(const struct conv c, struct rows y, int64_t run)
{
    int64_t col = ((int64_t)blockIdx.x * THREADS + threadIdx.x) * WIDE_COLUMNS, first = blockIdx.y * run;
    int64_t end = first + run < c.count ? first + run : c.count;
    if (col >= c.columns) return;
    struct wide_window<T> window;
    window.start(c, first, col);
    for (int64_t row = first; row < end; row += WIDE_ROWS) {
        wide_vec<T> x[WIDE_ROWS];
#pragma unroll
        for (int r = 0; r < WIDE_ROWS; r++)
            if (row + r < end) x[r] = load<T, WIDE_COLUMNS>(wide_at<T>(c.x, row + r, col));
#pragma unroll
        for (int r = 0; r < WIDE_ROWS; r++) {
            if (row + r >= end) break;
            window.push(c, row + r, col, x[r]);
            float z[WIDE_COLUMNS];
#pragma unroll
            for (int i = 0; i < WIDE_COLUMNS; i++) {
                z[i] = window.convolve(i);
                if (c.silu) z[i] = z[i] / (1.0f + __expf(-z[i]));
            }
            wide_vec<T> out;
            narrow(out, z);
            store(const_cast<T *>(wide_at<T>(y, row + r, col)), out);
        }
    }
}

/* The gradients of inputs whose later readers are still to come: du[j] is that of the row's tap j. */
template <typename T> struct wide_gradients {
    float du[WIDE_TAPS][WIDE_COLUMNS];

    __device__ __forceinline__ void put(const struct rows &dx, int j, int64_t row, int64_t col) const
    {
        wide_vec<T> out;
        narrow(out, du[j]);
        store(const_cast<T *>(wide_at<T>(dx, row, col)), out);
    }
};

/* dx alone; the gradients of the taps and the bias are not wanted. */
template <typename T>
__global__ void __launch_bounds__(THREADS)
    backward_wide(const struct conv c, struct rows dy, struct rows dx, int64_t run)
{
    int64_t col = ((int64_t)blockIdx.x * THREADS + threadIdx.x) * WIDE_COLUMNS, first = blockIdx.y * run;
    int64_t end = first + run < c.count ? first + run : c.count;
    int64_t last = end + WIDE_TAPS - 1 < c.count ? end + WIDE_TAPS - 1 : c.count;
    if (col >= c.columns) return;
    struct wide_window<T> window;
    struct wide_gradients<T> g = {
    };
    window.start(c, first, col);
    for (int64_t row = first; row < last; row += WIDE_ROWS) {
        wide_vec<T> x[WIDE_ROWS], of_y[WIDE_ROWS];
#pragma unroll
        for (int r = 0; r < WIDE_ROWS; r++)
            if (row + r < last) {
                x[r] = load<T, WIDE_COLUMNS>(wide_at<T>(c.x, row + r, col));
                of_y[r] = load<T, WIDE_COLUMNS>(wide_at<T>(dy, row + r, col));
            }
#pragma unroll
        for (int r = 0; r < WIDE_ROWS; r++) {
            int64_t at = row + r;
            if (at >= last) return;
            if (window.push(c, at, col, x[r]) && at >= end) return; /* no row of the run is read */
            float gradient[WIDE_COLUMNS];
            widen(of_y[r], gradient);
#pragma unroll
            for (int i = 0; i < WIDE_COLUMNS; i++) {
                float z = window.convolve(i), slope = 1;
                if (c.silu) {
                    float share = 1.0f / (1.0f + __expf(-z));
                    slope = share * (1.0f + z * (1.0f - share));
                }
                float dz = gradient[i] * slope;
#pragma unroll
                for (int j = 0; j < WIDE_TAPS; j++) g.du[j][i] = __fmaf_rn(window.w[j][i], dz, g.du[j][i]);
            }
            bool ends = at + 1 == window.end;
#pragma unroll
            for (int j = 0; j < WIDE_TAPS; j++) {
                int64_t of = at - WIDE_TAPS + 1 + j;
                if ((j == 0 || ends) && of >= window.begin && of >= first && of < end) g.put(dx, j, of, col);
            }
#pragma unroll
            for (int j = 0; j < WIDE_TAPS; j++)
#pragma unroll
                for (int i = 0; i < WIDE_COLUMNS; i++)
                    g.du[j][i] = j + 1 < WIDE_TAPS && !ends ? g.du[j + 1 < WIDE_TAPS ? j + 1 : j][i] : 0.0f;
        }
    }
}

} // namespace

#endif
