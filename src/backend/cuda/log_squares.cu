#include <cfloat>

#include "backend/cuda/device_math.cuh"

namespace
{

/* A thread block has a row, which it reads once: each thread has the largest logit that it has seen, and sums that are
 * scaled to it. The block then finds the largest of all, and adds up the sums of its threads. */
constexpr int THREADS = 256;

template <typename T>
__global__ void __launch_bounds__(THREADS)
    log_squares(const T *logits, int64_t stride, float *y, int64_t words, float cap)
{
    __shared__ float partial[32], most[THREADS];
    const T *row = logits + (int64_t)blockIdx.x * stride;
    float largest = -FLT_MAX, sum = 0, squares = 0;
    for (int64_t v = threadIdx.x; v < words; v += THREADS) {
        float x[1];
        widen(load<T, 1>(row + v), x);
        if (cap > 0) x[0] = cap * tanhf(x[0] / cap);
        if (x[0] > largest) {
            float down = expf(largest - x[0]);
            sum *= down, squares *= down * down;
            largest = x[0];
        }
        float e = expf(x[0] - largest);
        sum += e, squares += e * e;
    }
    most[threadIdx.x] = largest;
    __syncthreads();
    for (int half = THREADS / 2; half > 0; half /= 2) {
        if ((int)threadIdx.x < half) most[threadIdx.x] = fmaxf(most[threadIdx.x], most[threadIdx.x + half]);
        __syncthreads();
    }
    float down = expf(largest - most[0]);
    sum = block_sum(sum * down, partial);
    __syncthreads();
    squares = block_sum(squares * down * down, partial);
    if (threadIdx.x == 0) y[blockIdx.x] = (float)(log((double)squares) - 2.0 * log((double)sum));
}

} // namespace

extern "C" tt_status tt_cuda_log_squares(struct tt_stream *stream, const struct tt_log_squares_args *args)
{
    const tt_tensor &logits = args->logits_NV;
    unsigned rows = (unsigned)logits.dims[0];
    if (rows == 0) return TT_OK;
    return with_type(logits.dtype, [&](auto t) {
        using T = decltype(t);
        log_squares<T><<<rows, THREADS, 0, tt_cuda_handle(stream)>>>(
            static_cast<const T *>(logits.data), logits.strides[0], static_cast<float *>(args->y_N.data),
            logits.dims[1], args->soft_cap);
        return tt_cuda_launched(stream, "log_squares", &logits);
    });
}
