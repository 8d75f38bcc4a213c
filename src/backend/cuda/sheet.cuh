/* The common loop of element-wise ops over rows of columns.
 *
 * An op is a plain struct that is passed to the kernel by value. It has these members:
 *     template <int W> struct loaded { ... };   the values read for W neighbouring elements
 *     template <int W> void load(int64_t row, int64_t col, loaded<W> &in) const;
 *     template <int W> void store(int64_t row, int64_t col, loaded<W> &in) const;   computes and writes
 *
 * A thread first loads ITEMS pieces and then stores them, so that many loads are in flight. A piece at the end of a row
 * that is shorter than W is processed element by element. Outputs may overlap inputs exactly: one thread reads and
 * writes each element. */
#ifndef TT_BACKEND_CUDA_SHEET_CUH
#define TT_BACKEND_CUDA_SHEET_CUH

#include "backend/cuda/device_math.cuh"

namespace
{

enum { SHEET_THREADS = 256 };

template <typename T> struct view {
    T *data;
    int64_t stride; /* elements from row to row */

    __device__ __forceinline__ T *at(int64_t row, int64_t col) const
    {
        return data + row * stride + col;
    }
};

template <typename T> view<T> view_of(const tt_tensor &x)
{
    return {static_cast<T *>(x.data), x.rank >= 2 ? x.strides[0] : 0};
}

/* Pieces are numbered along rows. row = piece / (pieces per row), by a product and a shift for numbers below
 * 2^31: with 2^(l-1) < d <= 2^l and m = ceil(2^(31+l) / d), floor(n / d) = (n m) >> (31 + l) for n < 2^31. */
struct sheet {
    int64_t rows, cols, row_pieces;
    uint64_t magic; /* 0: divide */
    int shift;

    __device__ __forceinline__ int64_t row_of(int64_t piece) const
    {
        return magic != 0 ? (int64_t)((uint64_t)piece * magic >> shift) : piece / row_pieces;
    }
};

inline struct sheet make_sheet(int64_t rows, int64_t cols, int W)
{
    struct sheet s = {};
    s.rows = rows, s.cols = cols;
    s.row_pieces = (cols + W - 1) / W;
    if (s.rows * s.row_pieces > (int64_t)1 << 30) return s;
    int bits = 0;
    while (((int64_t)1 << bits) < s.row_pieces) bits++;
    s.shift = 31 + bits;
    s.magic = (((uint64_t)1 << s.shift) + (uint64_t)s.row_pieces - 1) / (uint64_t)s.row_pieces;
    return s;
}

template <int W, int ITEMS, typename Op>
__global__ void __launch_bounds__(SHEET_THREADS) run_sheet(const Op op, const struct sheet s)
{
    typename Op::template loaded<W> in[ITEMS];
    int64_t row[ITEMS], col[ITEMS];
    int64_t first = (int64_t)blockIdx.x * (SHEET_THREADS * ITEMS) + threadIdx.x;
#pragma unroll
    for (int k = 0; k < ITEMS; k++) {
        int64_t piece = first + k * SHEET_THREADS;
        row[k] = s.row_of(piece);
        col[k] = (piece - row[k] * s.row_pieces) * W;
        if (row[k] < s.rows && col[k] + W <= s.cols) op.template load<W>(row[k], col[k], in[k]);
    }
#pragma unroll
    for (int k = 0; k < ITEMS; k++) {
        if (row[k] >= s.rows) return;
        if (col[k] + W <= s.cols) {
            op.template store<W>(row[k], col[k], in[k]);
            continue;
        }
        for (int64_t c = col[k]; c < s.cols; c++) {
            typename Op::template loaded<1> one;
            op.template load<1>(row[k], c, one);
            op.template store<1>(row[k], c, one);
        }
    }
}

template <int W, int ITEMS, typename Op>
void launch_sheet(struct tt_stream *stream, const Op &op, int64_t rows, int64_t cols)
{
    struct sheet s = make_sheet(rows, cols, W);
    int64_t each = SHEET_THREADS * ITEMS, blocks = (s.rows * s.row_pieces + each - 1) / each;
    run_sheet<W, ITEMS, Op><<<(unsigned)blocks, SHEET_THREADS, 0, tt_cuda_handle(stream)>>>(op, s);
}

/* Runs `op` over rows x cols elements, in vectors of W when `aligned`. `tensor` appears in the message of a
 * failed launch. */
template <int W, int ITEMS, typename Op>
tt_status apply(struct tt_stream *stream, const char *name, const Op &op, int64_t rows, int64_t cols,
                bool aligned, const tt_tensor *tensor)
{
    if (rows == 0 || cols == 0) return TT_OK;
    if (aligned)
        launch_sheet<W, ITEMS>(stream, op, rows, cols);
    else
        launch_sheet<1, ITEMS>(stream, op, rows, cols);
    return tt_cuda_launched(stream, name, tensor);
}

/* Rank 1 or 2 as rows x cols. If all tensors of an op are contiguous they are treated as one row, so that short
 * rows cost nothing. */
inline int64_t rows_of(const tt_tensor &x, bool contiguous)
{
    return contiguous || x.rank == 1 ? 1 : x.dims[0];
}

inline int64_t cols_of(const tt_tensor &x, bool contiguous)
{
    return contiguous ? tt_tensor_count(x) : x.dims[x.rank - 1];
}

} // namespace

#endif
