#include "backend/cuda/attention/offsets.h"

#include <cuda_bf16.h>

static __global__ void offsets_kernel(struct tt_cuda_offsets args)
{
    int b = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    if (b > args.bucket) return;
    int64_t at = args.cu[min(b, args.sequences)];
    for (int r = 0; r < args.count; r++) args.offsets[r][b] = at * args.strides[r];
    if (b < args.bucket) args.lengths[b] = b < args.sequences ? args.cu[b + 1] - (int32_t)at : 0;
}

cudaError_t tt_cuda_attention_offsets(cudaStream_t stream, const struct tt_cuda_offsets *args)
{
    int threads = 128, blocks = args->bucket / threads + 1;
    offsets_kernel<<<blocks, threads, 0, stream>>>(*args);
    return cudaGetLastError();
}

static __global__ void move_kernel(struct tt_cuda_moves args)
{
    auto &move = args.moves[blockIdx.y];
    const uint4 *from = (const uint4 *)move.from;
    uint4 *to = (uint4 *)move.to;
    int64_t columns = move.columns / 8, from_stride = move.from_stride / 8, to_stride = move.to_stride / 8;
    int64_t count = args.rows * columns, step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += step) {
        int64_t row = i / columns, column = i - row * columns;
        to[row * to_stride + column] = from[row * from_stride + column];
    }
}

cudaError_t tt_cuda_attention_move(cudaStream_t stream, const struct tt_cuda_moves *args)
{
    if (args->rows == 0 || args->count == 0) return cudaSuccess;
    int64_t blocks = (args->rows * args->moves[0].columns / 8 + 255) / 256;
    move_kernel<<<dim3((unsigned)(blocks < 4096 ? blocks : 4096), (unsigned)args->count), 256, 0, stream>>>(
        *args);
    return cudaGetLastError();
}

static __global__ void transpose_kernel(const float *from, float *to, int64_t rows, int64_t columns)
{
    int64_t count = rows * columns, step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += step) {
        int64_t column = i / rows, row = i - column * rows;
        to[i] = from[row * columns + column];
    }
}

cudaError_t tt_cuda_attention_transpose(cudaStream_t stream, const float *from, float *to, int64_t rows,
                                        int64_t columns)
{
    int64_t blocks = (rows * columns + 255) / 256;
    if (blocks == 0) return cudaSuccess;
    transpose_kernel<<<(unsigned)(blocks < 4096 ? blocks : 4096), 256, 0, stream>>>(from, to, rows, columns);
    return cudaGetLastError();
}

/* Two rounds of a multiply-and-shift hash: no pattern remains that could hide a wrong tile. */
static __device__ uint32_t scramble(uint32_t x)
{
    x = (x ^ (x >> 16)) * 0x21f0aaadu;
    x = (x ^ (x >> 15)) * 0x735a2d97u;
    return x ^ (x >> 15);
}

static __global__ void noise_kernel(__nv_bfloat16 *data, int64_t count, uint32_t seed)
{
    int64_t step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += step) {
        uint32_t bits = scramble((uint32_t)i * 2654435761u + seed);
        data[i] = __float2bfloat16(((float)bits * 0x1p-32f - 0.5f) * 3.4f);
    }
}

cudaError_t tt_cuda_attention_noise(cudaStream_t stream, void *data, int64_t count, uint32_t seed)
{
    noise_kernel<<<256, 256, 0, stream>>>((__nv_bfloat16 *)data, count, seed);
    return cudaGetLastError();
}

static __global__ void distance_kernel(const __nv_bfloat16 *a, int64_t a_stride, const __nv_bfloat16 *b,
                                       int64_t b_stride, int64_t rows, int64_t columns, double *sums)
{
    double difference = 0, size = 0;
    int64_t count = rows * columns, step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += step) {
        int64_t row = i / columns, column = i - row * columns;
        double x = __bfloat162float(a[row * a_stride + column]),
               y = __bfloat162float(b[row * b_stride + column]);
        difference += (x - y) * (x - y);
        size += y * y;
    }
    for (int lane = 16; lane > 0; lane /= 2) {
        difference += __shfl_xor_sync(0xffffffffu, difference, lane);
        size += __shfl_xor_sync(0xffffffffu, size, lane);
    }
    if (threadIdx.x % 32 == 0) {
        atomicAdd(&sums[0], difference);
        atomicAdd(&sums[1], size);
    }
}

cudaError_t tt_cuda_attention_distance(cudaStream_t stream, const void *a, int64_t a_stride, const void *b,
                                       int64_t b_stride, int64_t rows, int64_t columns, double sums[2])
{
    distance_kernel<<<128, 256, 0, stream>>>((const __nv_bfloat16 *)a, a_stride, (const __nv_bfloat16 *)b,
                                             b_stride, rows, columns, sums);
    return cudaGetLastError();
}
