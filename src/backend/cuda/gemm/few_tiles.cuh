/* The loop of products of few rows with the transpose of matrices in bf16 (few.h, grouped.h).
 *
 * A thread block computes a tile of 16 columns of y at a time, two runs of 8, for at most 8 rows; its warps take turns
 * along k, DEPTH at a time, and their sums are added in the order of the warps.
 *
 * A lane loads 16 bytes, 8 neighbouring k, of a row of W or x. mma.sync wants other k in a lane, but the order of k in
 * a product is free, as long as it is the same on both sides: words 0 and 1 of both are one product, words 2 and 3
 * the next. So a lane needs exactly what it loads itself, and shared memory is a queue of each lane's own pieces,
 * without barriers. The queue goes on over the ends of tiles: a block has its tiles one after the other. */
#ifndef TT_BACKEND_CUDA_GEMM_FEW_TILES_CUH
#define TT_BACKEND_CUDA_GEMM_FEW_TILES_CUH

#include <cuda_bf16.h>

#include "backend/cuda/mma.cuh"

enum {
    RUN = 8,  /* columns */
    ROWS = 8, /* of x in a product of mma.sync */
    DEPTH = 64,
    CHUNKS = DEPTH / 32,
    PIECES = 3 * CHUNKS, /* of 16 bytes in a lane: two of W and one of x for each 32 k */
    WARPS = 8,
    THREADS = WARPS * 32,
};

/* Bytes of the queue of a thread block. */
static constexpr int few_queue_bytes(int stages)
{
    return WARPS * stages * PIECES * 32 * 16;
}

/* The places of a lane in a tile: row `g` of both runs of W, and of x, from k on. */
struct few_sources {
    const __nv_bfloat16 *first, *second, *x;
    bool has_row; /* of x */
};

/* Zeros where not `is`. */
static __device__ __forceinline__ void copy_piece(uint32_t to, const __nv_bfloat16 *from, bool is)
{
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;"
                 :
                 : "r"(to), "l"(from), "r"(is ? 16 : 0)
                 : "memory");
}

/* The tiles blockIdx.x, + gridDim.x, ... of `tiles`. k: a multiple of DEPTH. sources(tile, g, k): few_sources;
 * rows(tile): of x, at most ROWS; finish(tile, row, c, a, b): the sums of column c of each run. Thread blocks have
 * THREADS threads and few_queue_bytes(STAGES) of shared memory. */
template <int STAGES, typename Sources, typename Rows, typename Finish>
static __device__ __forceinline__ void few_tiles(int tiles, int k_all, Sources sources, Rows rows,
                                                 Finish finish)
{
    extern __shared__ uint4 queue[];
    __shared__ float shared[WARPS][ROWS][2 * RUN];
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    int own_steps = (k_all / DEPTH - warp + WARPS - 1) / WARPS;
    uint4 *own = queue + (size_t)warp * STAGES * PIECES * 32 + lane;
    uint32_t own_address = shared_address(own);
    int next_tile = blockIdx.x, next_step = 0, slot = 0, taken = 0;
    float sums[4] = {};

    auto load_next = [&]() {
        if (own_steps > 0 && next_tile < tiles) {
            few_sources from = sources(next_tile, g, (next_step * WARPS + warp) * DEPTH + t * 8);
            uint32_t to = own_address + slot * (PIECES * 32 * 16);
#pragma unroll
            for (int i = 0; i < CHUNKS; i++) {
                copy_piece(to + 3 * i * 512, from.first + i * 32, true);
                copy_piece(to + (3 * i + 1) * 512, from.second + i * 32, true);
                copy_piece(to + (3 * i + 2) * 512, from.x + i * 32, from.has_row);
            }
            if (++next_step == own_steps) {
                next_step = 0;
                next_tile += gridDim.x;
            }
        }
        asm volatile("cp.async.commit_group;" ::: "memory");
        slot = slot + 1 == STAGES ? 0 : slot + 1;
    };

    for (int i = 0; i < STAGES - 1; i++) load_next();
    for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
        for (int step = 0; step < own_steps; step++) {
            uint4 pieces[PIECES];
            asm volatile("cp.async.wait_group %0;" ::"n"(STAGES - 2) : "memory");
#pragma unroll
            for (int i = 0; i < PIECES; i++) pieces[i] = own[taken * (PIECES * 32) + i * 32];
            load_next();
#pragma unroll
            for (int i = 0; i < CHUNKS; i++) {
                const uint4 &a = pieces[3 * i], &b = pieces[3 * i + 1], &row = pieces[3 * i + 2];
                multiply_piece(sums, {a.x, b.x, a.y, b.y}, row.x, row.y);
                multiply_piece(sums, {a.z, b.z, a.w, b.w}, row.z, row.w);
            }
            taken = taken + 1 == STAGES ? 0 : taken + 1;
        }
#pragma unroll
        for (int i = 0; i < 4; i++) {
            shared[warp][2 * t + i % 2][g + i / 2 * RUN] = sums[i];
            sums[i] = 0.0f;
        }
        __syncthreads();
        for (int i = threadIdx.x; i < rows(tile) * RUN; i += THREADS) {
            int row = i / RUN, c = i % RUN;
            float a = 0.0f, b = 0.0f;
            for (int w = 0; w < WARPS; w++) {
                a += shared[w][row][c];
                b += shared[w][row][c + RUN];
            }
            finish(tile, row, c, a, b);
        }
        __syncthreads();
    }
}

#endif
