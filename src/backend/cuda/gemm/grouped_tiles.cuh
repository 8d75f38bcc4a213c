/* Shared by the kernels of grouped.h: the tiles of all experts, which a CTA finds by their borders, and what loads and
 * writes them. */
#ifndef TT_BACKEND_CUDA_GEMM_GROUPED_TILES_CUH
#define TT_BACKEND_CUDA_GEMM_GROUPED_TILES_CUH

#include "backend/cuda/gemm/grouped.h"
#include "backend/cuda/gemm/tiles.cuh"

namespace
{

enum { EXPERTS_MAX = TT_GROUPED_EXPERTS_MAX, BOX = TT_GROUPED_BOX_ROWS, HIGH = CLUSTER * ROWS };

struct grouped_shared {
    shared s;
    int border[EXPERTS_MAX + 1], first[EXPERTS_MAX + 1]; /* rows, and tiles of clusters, before each expert */
};

#if defined(TT_HOPPER)

TT_DEVICE int tiles_along(int size, int each)
{
    return (size + each - 1) / each;
}

/* The number of tiles of 256 rows; a rest of at most 128 is left. */
TT_DEVICE int high_tiles(int rows)
{
    return (rows + ROWS - 1) / HIGH;
}

TT_DEVICE int tiles_of(int rows, int n)
{
    int high = high_tiles(rows), rest = rows > high * HIGH;
    return high * tiles_along(n, COLUMNS) + rest * tiles_along(n, CLUSTER * COLUMNS);
}

TT_DEVICE void count_tiles(const tt_grouped_params &p, grouped_shared &g)
{
    for (int e = threadIdx.x; e <= p.experts; e += THREADS) g.border[e] = p.border[e];
    __syncthreads();
    const int lane = threadIdx.x % 32;
    for (int first = 0, before = 0; first <= p.experts && threadIdx.x < 32; first += 32) {
        int e = first + lane, own = e < p.experts ? tiles_of(g.border[e + 1] - g.border[e], p.n) : 0,
            sum = own;
#pragma unroll
        for (int step = 1; step < 32; step *= 2) {
            int other = __shfl_up_sync(0xffffffffu, sum, step);
            if (lane >= step) sum += other;
        }
        if (e <= p.experts) g.first[e] = before + sum - own;
        before += __shfl_sync(0xffffffffu, sum, 31);
    }
    __syncthreads();
}

/* A CTA's tile: rows from m to before `end`, columns from n. */
struct grouped_tile {
    int expert, m, end, n;
    bool wide;
};

/* Finds the tiles of a CTA, turn after turn. */
struct finder {
    int expert = 0;

    TT_DEVICE bool find(const tt_grouped_params &p, const grouped_shared &g, int turn, grouped_tile &t)
    {
        int at = turn * (int)(gridDim.x / CLUSTER) + (int)(blockIdx.x / CLUSTER), rank = blockIdx.x % CLUSTER;
        if (at >= g.first[p.experts]) return false;
        while (at >= g.first[expert + 1]) expert++;
        int begin = g.border[expert], i = at - g.first[expert];
        t.expert = expert;
        t.end = g.border[expert + 1];
        int high = high_tiles(t.end - begin), wide = i - high * tiles_along(p.n, COLUMNS);
        t.wide = wide >= 0;
        if (t.wide) {
            t.m = begin + high * HIGH;
            t.n = (wide * CLUSTER + rank) * COLUMNS;
        } else {
            t.m = begin + i % high * HIGH + rank * ROWS;
            t.n = i / high * COLUMNS;
        }
        return true;
    }
};

TT_DEVICE int wide_steps(const tt_grouped_params &p)
{
    return tiles_along(p.k, DEPTH);
}

TT_DEVICE int steps_of(const tt_grouped_params &p)
{
    return wide_steps(p) + tiles_along(p.r, DEPTH);
}

/* a: the half of a wide tile for both CTAs, or this CTA's rows. */
TT_DEVICE void load_a(bf16 *to, const CUtensorMap *map, uint64_t *full, int k, const grouped_tile &t,
                      int rank)
{
    if (t.wide) {
        copy_tile_to_all(to + rank * (BOX * DEPTH), map, full, k, t.m + rank * BOX);
    } else {
        copy_tile(to, map, full, k, t.m);
        copy_tile(to + BOX * DEPTH, map, full, k, t.m + BOX);
    }
}

/* b: this CTA's columns of a wide tile, or half of the columns for both CTAs. */
template <int TRANSPOSED>
TT_DEVICE void load_b(bf16 *to, const CUtensorMap *map, uint64_t *full, int k, const grouped_tile &t,
                      int rank)
{
    constexpr int columns = TRANSPOSED ? 64 : COLUMNS / 2, half = COLUMNS / 2;
#pragma unroll
    for (int i = 0; i < COLUMNS; i += columns) {
        int n = t.n + i, x = TRANSPOSED ? n : k, y = TRANSPOSED ? k : n;
        if (t.wide)
            copy_tile_3d(to + i * DEPTH, map, full, x, y, t.expert);
        else if (i / half == rank)
            copy_tile_3d_to_all(to + i * DEPTH, map, full, x, y, t.expert);
    }
}

struct bias8 {
    float value[8];
};

TT_DEVICE void load_bias(const tt_grouped_params &p, int64_t at, bias8 &bias)
{
    if (p.bias_is_bf16) {
        uint4 words = __ldg(reinterpret_cast<const uint4 *>(static_cast<const bf16 *>(p.bias) + at));
        const uint32_t word[4] = {words.x, words.y, words.z, words.w};
#pragma unroll
        for (int i = 0; i < 4; i++)
            bias.value[2 * i] = low_half(word[i]), bias.value[2 * i + 1] = high_half(word[i]);
    } else {
        const float *from = static_cast<const float *>(p.bias) + at;
#pragma unroll
        for (int i = 0; i < 8; i++) bias.value[i] = __ldg(from + i);
    }
}

TT_DEVICE uint4 add_bias(uint4 c, const bias8 &bias)
{
    const float(&b)[8] = bias.value;
    return {
        pack(low_half(c.x) + b[0], high_half(c.x) + b[1]), pack(low_half(c.y) + b[2], high_half(c.y) + b[3]),
        pack(low_half(c.z) + b[4], high_half(c.z) + b[5]), pack(low_half(c.w) + b[6], high_half(c.w) + b[7])};
}

TT_DEVICE void write_tiles(const tt_grouped_params &p, grouped_shared &g)
{
    const int warp = (int)threadIdx.x / 32 - 1, lane = threadIdx.x % 32;
    shared &s = g.s;
    finder tiles;
    grouped_tile t;
    bias8 bias;
    for (int turn = 0; tiles.find(p, g, turn, t); turn++) {
        const int rows = min(ROWS, t.end - t.m), column = t.n + lane * 8;
        const bool writes = column < p.n, adds = writes && p.bias != nullptr;
        if (adds) load_bias(p, (int64_t)t.expert * p.n + column, bias);
        barrier_wait(&s.sums_full, turn & 1);
        if (writes) {
#pragma unroll 4
            for (int row = warp; row < rows; row += WRITERS) {
                uint4 c = sums_at(s, row, lane);
                put(p.c, (int64_t)(t.m + row) * p.c_row + column, adds ? add_bias(c, bias) : c);
            }
        }
        __syncwarp();
        if (lane == 0) barrier_arrive(&s.sums_empty);
    }
}

#endif

} // namespace

#endif
