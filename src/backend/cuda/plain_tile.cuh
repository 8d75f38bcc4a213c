/* The products of the kernels that support every type, shape and alignment (gemm/plain.h, conv/plain.h): a block
 * computes a tile of TILE x TILE sums from panels in shared memory, EACH x EACH of them in a thread, in fp32 and in the
 * order of k. */
#ifndef TT_BACKEND_CUDA_PLAIN_TILE_CUH
#define TT_BACKEND_CUDA_PLAIN_TILE_CUH

namespace
{

enum { TILE = 64, DEPTH = 16, THREADS = 256, EACH = 4, PADDED = TILE + 4 };

/* DEPTH steps along k of TILE rows, or columns. */
typedef float panel[DEPTH][PADDED];

/* The thread's first row and column in the tile. */
__device__ __forceinline__ int tile_row()
{
    return (int)threadIdx.x / (TILE / EACH) * EACH;
}

__device__ __forceinline__ int tile_column()
{
    return (int)threadIdx.x % (TILE / EACH) * EACH;
}

/* Adds the products of two panels to the thread's sums. */
__device__ __forceinline__ void multiply_panels(const panel &left, const panel &right,
                                                float (&sum)[EACH][EACH])
{
#pragma unroll
    for (int k = 0; k < DEPTH; k++) {
        float4 a = *reinterpret_cast<const float4 *>(&left[k][tile_row()]);
        float4 b = *reinterpret_cast<const float4 *>(&right[k][tile_column()]);
        float as[EACH] = {a.x, a.y, a.z, a.w}, bs[EACH] = {b.x, b.y, b.z, b.w};
#pragma unroll
        for (int i = 0; i < EACH; i++) {
#pragma unroll
            for (int j = 0; j < EACH; j++) sum[i][j] = fmaf(as[i], bs[j], sum[i][j]);
        }
    }
}

} // namespace

#endif
