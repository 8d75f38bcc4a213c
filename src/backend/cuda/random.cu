#include "backend/cuda/device_math.cuh"

namespace
{

enum { THREADS = 256 };

/* The formulas of tt_rng_uniform and tt_rng_normal in fp64: an element equals the cpu's except in the last place
 * of the logarithm and the cosine. */
template <typename T>
__global__ void __launch_bounds__(THREADS)
    fill(T *y, int64_t count, int64_t cols, int64_t row_step, const struct round_keys keys, uint64_t first, bool normal,
         double scale)
{
    int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i >= count) return;
    uint32_t words[4];
    random_block(keys, 0, first + (uint64_t)(i / cols * row_step + i % cols), words);
    uint64_t a = (uint64_t)words[1] << 32 | words[0], b = (uint64_t)words[3] << 32 | words[2];
    double number;
    if (normal) {
        double u = (double)((a >> 11) + 1) * 0x1p-53, v = (double)(b >> 11) * 0x1p-53;
        number = sqrt(-2.0 * log(u)) * cos(6.283185307179586476925 * v);
    } else {
        number = 2 * ((double)(a >> 11) * 0x1p-53) - 1;
    }
    store_one(y + i, (float)(number * scale));
}

} // namespace

extern "C" tt_status tt_cuda_random_fill(struct tt_stream *stream, const struct tt_random_fill_args *args)
{
    int64_t count = tt_tensor_count(args->y), cols = args->y.rank == 2 ? args->y.dims[1] : count;
    if (count == 0) return TT_OK;
    return with_type(args->y.dtype, [&](auto t) {
        using T = decltype(t);
        unsigned blocks = (unsigned)((count + THREADS - 1) / THREADS);
        fill<T><<<blocks, THREADS, 0, tt_cuda_handle(stream)>>>(
            static_cast<T *>(args->y.data), count, cols, args->row_step, make_round_keys(args->rng),
            (uint64_t)args->first, args->normal, args->scale);
        return tt_cuda_launched(stream, "random_fill", &args->y);
    });
}
