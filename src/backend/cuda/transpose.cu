#include "backend/cuda/device_math.cuh"

namespace
{

/* A block has a tile, which it reads by rows and writes by rows of the other matrix; the column beside it keeps the
 * banks of shared memory apart. */
constexpr int TILE = 32, THREADS_DOWN = 8;

template <typename T>
__global__ void __launch_bounds__(TILE *THREADS_DOWN)
    transpose(const T *x, int64_t x_stride, T *y, int64_t y_stride, int64_t rows, int64_t cols, bool accumulate)
{
    __shared__ float tile[TILE][TILE + 1];
    int64_t across = (cols + TILE - 1) / TILE;
    int64_t first_row = (int64_t)blockIdx.x / across * TILE, first_col = (int64_t)blockIdx.x % across * TILE;
    int64_t col = first_col + threadIdx.x, row = first_row + threadIdx.x;
    for (int i = threadIdx.y; i < TILE; i += THREADS_DOWN)
        if (first_row + i < rows && col < cols) tile[i][threadIdx.x] = load_one(x + (first_row + i) * x_stride + col);
    __syncthreads();
    for (int j = threadIdx.y; j < TILE; j += THREADS_DOWN) {
        if (first_col + j >= cols || row >= rows) continue;
        T *to = y + (first_col + j) * y_stride + row;
        float value = tile[threadIdx.x][j];
        store_one(to, accumulate ? load_one(to) + value : value);
    }
}

template <typename T> tt_status transpose_typed(struct tt_stream *stream, const struct tt_transpose_args *args)
{
    const tt_tensor &x = args->x_MN, &y = args->y_NM;
    int64_t rows = x.dims[0], cols = x.dims[1];
    unsigned blocks = (unsigned)((rows + TILE - 1) / TILE * ((cols + TILE - 1) / TILE));
    dim3 threads(TILE, THREADS_DOWN);
    transpose<T><<<blocks, threads, 0, tt_cuda_handle(stream)>>>(
        static_cast<const T *>(x.data), x.strides[0], static_cast<T *>(y.data), y.strides[0], rows, cols,
        args->accumulate);
    return tt_cuda_launched(stream, "transpose", &x);
}

} // namespace

extern "C" tt_status tt_cuda_transpose(struct tt_stream *stream, const struct tt_transpose_args *args)
{
    return with_type(args->x_MN.dtype, [&](auto t) { return transpose_typed<decltype(t)>(stream, args); });
}
