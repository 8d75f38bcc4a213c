/* Common parts of the sweeps over a sequence's chunks (chunks.cuh). */
#ifndef TT_BACKEND_CUDA_SCAN_SWEEP_CUH
#define TT_BACKEND_CUDA_SCAN_SWEEP_CUH

#include "backend/cuda/scan/products.cuh"

namespace
{

/* Bytes of a row of the tile of a thread block's columns. */
template <int WARPS> constexpr int value_bytes()
{
    return WARPS * 32 < 128 ? 128 : WARPS * 32;
}

/* The lane's address in the piece at row 0 and the warp's first column. */
template <int BYTES> __device__ __forceinline__ uint32_t column_base(uint32_t tile)
{
    return piece_at<BYTES>(lane_base<BYTES>(tile), 0, (int)threadIdx.x / 32 * 16);
}

/* The warp's first column of the state, and its place in a tile of SCAN_HALF columns. */
__device__ __forceinline__ int warp_column()
{
    return ((int)blockIdx.x * (int)(blockDim.x / 32) + (int)threadIdx.x / 32) * 16;
}

enum { SCAN_OUT = 3 * 16 * SCAN_HALF * 2 }; /* bytes of a warp's part of three tiles on their way out */

/* Copies the warp's 16 rows of a tile, which are contiguous. */
__device__ __forceinline__ void copy_out(unsigned char *tile, const unsigned char *out)
{
    int lane = (int)threadIdx.x % 32;
    unsigned char *to = tile + warp_column() % SCAN_HALF * (SCAN_HALF * 2);
#pragma unroll
    for (int i = 0; i < 4; i++)
        *reinterpret_cast<uint4 *>(to + (i * 32 + lane) * 16) =
            *reinterpret_cast<const uint4 *>(out + (i * 32 + lane) * 16);
}

/* Writes the warp's 16 columns of a turned, rounded state: rows w of two tiles side by side. */
__device__ __forceinline__ void write_columns(const struct scan_problem &p, unsigned char *part, int64_t slot,
                                              int head, const uint32_t (&a)[8][4], unsigned char *out)
{
    int lane = (int)threadIdx.x % 32;
    unsigned char *tile = scratch_at(p, part, slot, head, (int64_t)p.value_width * SCAN_WIDTH * 2) +
                          warp_column() / SCAN_HALF * 2 * SCAN_SQUARE;
    __syncwarp(); /* what was there is on its way */
#pragma unroll
    for (int e = 0; e < 8; e++)
#pragma unroll
        for (int i = 0; i < 4; i++)
            *reinterpret_cast<uint32_t *>(out + e / 4 * (16 * SCAN_HALF * 2) +
                                          tile_at<SCAN_HALF * 2>(lane / 4 + i % 2 * 8, e % 4 * 2 + i / 2) +
                                          lane % 4 * 4) = a[e][i];
    __syncwarp();
    copy_out(tile, out);
    copy_out(tile + SCAN_SQUARE, out + 16 * SCAN_HALF * 2);
}

/* Writes the warp's 16 rows w of turned values, rounded, to a tile of SCAN_HALF x SCAN_ROWS. */
__device__ __forceinline__ void write_squares(const struct scan_problem &p, unsigned char *part, int64_t slot,
                                              int head, const float (&values)[8][4], unsigned char *out)
{
    int lane = (int)threadIdx.x % 32;
    unsigned char *tile = scratch_at(p, part, slot, head, (int64_t)p.value_width * SCAN_ROWS * 2) +
                          warp_column() / SCAN_HALF * SCAN_SQUARE;
    out += 2 * 16 * SCAN_HALF * 2;
    __syncwarp();
#pragma unroll
    for (int n = 0; n < 8; n++)
#pragma unroll
        for (int half = 0; half < 2; half++)
            *reinterpret_cast<uint32_t *>(out + tile_at<SCAN_ROWS * 2>(lane / 4 + half * 8, n) +
                                          lane % 4 * 4) =
                pack_bf16(values[n][2 * half], values[n][2 * half + 1]);
    __syncwarp();
    copy_out(tile, out);
}

/* Writes turned values to the rows of a tensor, through the warp's own columns of a tile. */
template <int BYTES, int WARPS>
__device__ __forceinline__ void write_rows(const struct scan_rows &to, const struct chunk &c, int h,
                                           const float (&values)[8][4], unsigned char *tile)
{
    int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
#pragma unroll
    for (int n = 0; n < 8; n++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            int row = n * 8 + lane % 4 * 2 + i % 2;
            store_one(reinterpret_cast<bf16 *>(tile + tile_at<BYTES>(row, warp * 2 + i / 2)) + lane / 4,
                      values[n][i]);
        }
    __syncwarp();
#pragma unroll
    for (int i = lane; i < SCAN_ROWS * 2; i += 32) {
        int row = i / 2;
        if (row >= c.rows) continue;
        uint4 piece = *reinterpret_cast<const uint4 *>(tile + tile_at<BYTES>(row, warp * 2 + i % 2));
        *reinterpret_cast<uint4 *>(to.data + (c.row + row) * to.row + h * to.head + warp_column() +
                                   i % 2 * 8) = piece;
    }
}

/* The first factors of all rows of a chunk. */
__device__ __forceinline__ void round_rows(uint32_t (&a)[4][4], const float (&values)[8][4])
{
#pragma unroll
    for (int i = 0; i < 4; i++) round_sums(a[i], values[2 * i], values[2 * i + 1]);
}

__device__ __forceinline__ void round_rows(uint32_t (&a)[4][4], uint32_t (&rest)[4][4],
                                           const float (&values)[8][4])
{
#pragma unroll
    for (int i = 0; i < 4; i++) round_sums(a[i], rest[i], values[2 * i], values[2 * i + 1]);
}

__device__ __forceinline__ void scale_state(float (&state)[16][4], float decay)
{
#pragma unroll
    for (int n = 0; n < 16; n++)
        state[n][0] *= decay, state[n][1] *= decay, state[n][2] *= decay, state[n][3] *= decay;
}

/* The tile and the column in it of column e of q or k. */
__device__ __forceinline__ const unsigned char *half_of(const unsigned char *keys, int e)
{
    return keys + e / SCAN_HALF * SCAN_SQUARE;
}

/* Warps of a thread block: as many as leave few processors without a block. */
inline int warps_of(const struct scan_problem *p, int processors)
{
    return p->value_width >= 128 && (int64_t)p->sequences * p->pass * 4 >= 3 * processors ? 8 : 4;
}

} // namespace

#endif
