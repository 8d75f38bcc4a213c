/* The kernel of grouped.h for products in E4M3 with a scale a row of both; its sums: scaled_sums.cuh. */
#include "backend/cuda/gemm/grouped_tiles.cuh"
#include "backend/cuda/gemm/scaled_sums.cuh"

namespace
{

struct scaled_shared : grouped_shared {
    float scale[2][2][COLUMNS]; /* of the tile's columns: for each group, in turns */
};

#if defined(TT_HOPPER)

/* Each stage: codes, then numbers of the adapter. The matrices of codes are [X, n, k] in both directions. */
template <int TRANSPOSED> TT_DEVICE void load_tiles(const tt_grouped_params &p, scaled_shared &g)
{
    const int rank = blockIdx.x % CLUSTER, wide = steps_of(p.k), steps = wide + tiles_along(p.r, DEPTH);
    finder tiles;
    ring at;
    grouped_tile t;
    for (int turn = 0; tiles.find(p, g, turn, t); turn++) {
        for (int i = 0; i < steps; i++, at.next()) {
            bf16 *a = g.s.a[at.slot], *b = g.s.b[at.slot];
            uint64_t *full = &g.s.full[at.slot];
            barrier_wait(&g.s.empty[at.slot], at.phase ^ 1);
            barrier_expect(full, (ROWS + COLUMNS) * DEPTH * (int)sizeof(bf16));
            if (i < wide) {
                load_a(a, &p.a, full, i * E4M3_DEPTH, t, rank);
                load_b<0>(b, &p.b, full, i * E4M3_DEPTH, t, rank);
            } else {
                load_a(a, &p.a2, full, (i - wide) * DEPTH, t, rank);
                load_b<TRANSPOSED>(b, &p.b2, full, (i - wide) * DEPTH, t, rank);
            }
        }
    }
}

/* The scales of two neighbouring columns of the tile; 0 beyond the matrix. */
TT_DEVICE float2 column_scales(const tt_grouped_params &p, const grouped_tile &t, int at)
{
    if (t.n + at >= p.n) return {0, 0};
    return __ldg(reinterpret_cast<const float2 *>(p.b_scale + (int64_t)t.expert * p.n + t.n + at));
}

TT_DEVICE float2 row_scales(const tt_grouped_params &p, const grouped_tile &t, int in_tile)
{
    int row = t.m + in_tile;
    return {row < t.end ? __ldg(p.a_scale + row) : 0, row + 8 < t.end ? __ldg(p.a_scale + row + 8) : 0};
}

template <int TRANSPOSED>
TT_DEVICE void multiply_tiles(const tt_grouped_params &p, scaled_shared &g, int group)
{
    const int thread = threadIdx.x % GROUP, lane = thread % 32, warp_row = group * 64 + thread / 32 * 16;
    const int wide = steps_of(p.k), narrow = tiles_along(p.r, DEPTH);
    product x = {g.s, group, thread, (uint32_t)(warp_row + (lane / 8 & 1) * 8 + lane % 8), {}};
    finder tiles;
    grouped_tile t;
    for (int turn = 0; tiles.find(p, g, turn, t); turn++) {
        float2 rows = row_scales(p, t, warp_row + lane / 4), columns = column_scales(p, t, 2 * thread);
        x.has_place = x.holds = false;
        x.idle = t.m + group * 64 >= t.end;
        for (int done = 0, count; done < wide; done += count) {
            if (done > 0) {
                x.take_place(turn);
                x.hold();
            }
            count = min(wide - done, p.chain);
            x.multiply<true, 0>(count, done > 0);
        }
        x.take_back();
        x.scale(g.scale[group][turn & 1], columns, rows);
        x.multiply<false, TRANSPOSED>(narrow, true);
        x.take_place(turn);
        store_sums(x.sums, g.s.c, x.row);
        __syncwarp();
        if (lane == 0) barrier_arrive(&g.s.sums_full);
    }
}

#endif

template <int TRANSPOSED>
__global__ void __launch_bounds__(THREADS, 1) gemm_grouped_fp8(const __grid_constant__ tt_grouped_params p)
{
#if defined(TT_HOPPER)
    extern __shared__ __align__(1024) unsigned char bytes[];
    scaled_shared &g = *reinterpret_cast<scaled_shared *>(bytes);
    count_tiles(p, g);
    run_roles(
        g.s, WRITERS, [&] { load_tiles<TRANSPOSED>(p, g); }, [&] { write_tiles(p, g); },
        [&](int group) { multiply_tiles<TRANSPOSED>(p, g, group); });
#endif
}

} // namespace

extern "C" bool tt_cuda_grouped_fp8_is_built(void)
{
    return has_registers(gemm_grouped_fp8<0>, THREADS, (LOADER_REGISTERS + 2 * PRODUCT_REGISTERS) * GROUP) &&
           has_registers(gemm_grouped_fp8<1>, THREADS, (LOADER_REGISTERS + 2 * PRODUCT_REGISTERS) * GROUP);
}

extern "C" cudaError_t tt_cuda_grouped_fp8_launch(bool transposed, const struct tt_grouped_params *params,
                                                  int ctas, cudaStream_t stream)
{
    return launch_clusters(transposed ? gemm_grouped_fp8<1> : gemm_grouped_fp8<0>, params,
                           sizeof(scaled_shared), ctas, stream);
}
