/* Rows to E4M3 with a scale each (tensor/e4m3.h), bound by memory. A thread block has a row: it holds the row in
 * registers between the search for the largest size and the conversion, so that the row is read once. */
#include "backend/cuda/quant/rows_e4m3.cuh"

namespace
{

struct matrix {
    const void *x;
    uint8_t *codes;
    float *scale;
    int64_t stride, cols;
};

template <typename T, int CHUNKS> __global__ void __launch_bounds__(512) quantize_held(const struct matrix m)
{
    constexpr int W = wide<T>();
    __shared__ uint32_t partial[ROW_WARP];
    int64_t row = blockIdx.x;
    int first = (int)threadIdx.x * W, step = (int)blockDim.x * W, cols = (int)m.cols;
    const T *x = static_cast<const T *>(m.x) + row * m.stride;
    uint8_t *codes = m.codes + row * m.cols;
    vec<T, W> held[CHUNKS];
    uint32_t largest = 0;
#pragma unroll
    for (int k = 0; k < CHUNKS; k++)
        if (first + k * step < cols) held[k] = load<T, W>(x + first + k * step);
#pragma unroll
    for (int k = 0; k < CHUNKS; k++) {
        if (first + k * step >= cols) break;
        float p[W];
        widen(held[k], p);
        largest = largest_of(largest, p);
    }
    float scale = row_scale(block_largest(largest, partial));
    struct row_divisor by = divisor_of(scale);
    if (threadIdx.x == 0) m.scale[row] = scale;
#pragma unroll
    for (int k = 0; k < CHUNKS; k++) {
        if (first + k * step >= cols) break;
        float p[W];
        widen(held[k], p);
        store_codes(codes + first + k * step, p, by);
    }
}

/* Any width and alignment; reads the row twice. */
template <typename T> __global__ void __launch_bounds__(512) quantize_any(const struct matrix m)
{
    __shared__ uint32_t partial[ROW_WARP];
    int64_t row = blockIdx.x;
    const T *x = static_cast<const T *>(m.x) + row * m.stride;
    uint8_t *codes = m.codes + row * m.cols;
    uint32_t largest = 0;
    for (int64_t d = threadIdx.x; d < m.cols; d += blockDim.x) largest = max(largest, size_of(load_one(x + d)));
    float scale = row_scale(block_largest(largest, partial));
    struct row_divisor by = divisor_of(scale);
    if (threadIdx.x == 0) m.scale[row] = scale;
    for (int64_t d = threadIdx.x; d < m.cols; d += blockDim.x) codes[d] = code_of(load_one(x + d), by);
}

template <typename T> void launch(cudaStream_t stream, const struct matrix &m, int64_t rows, bool aligned)
{
    constexpr int W = wide<T>(), MOST = 8;
    int64_t vectors = (m.cols + W - 1) / W;
    int threads = row_threads(vectors), blocks = (int)rows;
    int64_t chunks = (vectors + threads - 1) / threads;
    if (!aligned || chunks > MOST)
        quantize_any<T><<<blocks, 512, 0, stream>>>(m);
    else if (chunks <= 2)
        quantize_held<T, 2><<<blocks, threads, 0, stream>>>(m);
    else if (chunks <= 4)
        quantize_held<T, 4><<<blocks, threads, 0, stream>>>(m);
    else
        quantize_held<T, MOST><<<blocks, threads, 0, stream>>>(m);
}

} // namespace

extern "C" tt_status tt_cuda_quantize_rows(struct tt_stream *stream, const struct tt_quantize_rows_args *args)
{
    const tt_tensor &x = args->x_MK;
    int64_t each = x.dtype == TT_BF16 ? 8 : 4; /* elements of a vector */
    struct matrix m = {x.data, static_cast<uint8_t *>(args->codes_MK.data),
                       static_cast<float *>(args->scale_M.data), x.strides[0], x.dims[1]};
    bool aligned = x.dims[1] % each == 0 && (x.dims[0] <= 1 || x.strides[0] % each == 0) &&
                   (uintptr_t)x.data % 16 == 0 && (uintptr_t)m.codes % 8 == 0;
    if (x.dtype == TT_BF16)
        launch<bf16>(tt_cuda_handle(stream), m, x.dims[0], aligned);
    else
        launch<float>(tt_cuda_handle(stream), m, x.dims[0], aligned);
    return tt_cuda_launched(stream, "quantize_rows", &x);
}
