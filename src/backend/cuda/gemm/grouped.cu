#include "backend/cuda/gemm/grouped_tiles.cuh"

namespace
{

#if defined(TT_HOPPER)

template <int TRANSPOSED> TT_DEVICE void load_tiles(const tt_grouped_params &p, grouped_shared &g)
{
    const int rank = blockIdx.x % CLUSTER, wide = wide_steps(p), steps = steps_of(p);
    shared &s = g.s;
    finder tiles;
    ring at;
    grouped_tile t;
    for (int turn = 0; tiles.find(p, g, turn, t); turn++) {
        for (int i = 0; i < steps; i++, at.next()) {
            bool narrow = i >= wide;
            int k = (narrow ? i - wide : i) * DEPTH;
            uint64_t *full = &s.full[at.slot];
            barrier_wait(&s.empty[at.slot], at.phase ^ 1);
            barrier_expect(full, (ROWS + COLUMNS) * DEPTH * (int)sizeof(bf16));
            load_a(s.a[at.slot], narrow ? &p.a2 : &p.a, full, k, t, rank);
            load_b<TRANSPOSED>(s.b[at.slot], narrow ? &p.b2 : &p.b, full, k, t, rank);
        }
    }
}

template <int TRANSPOSED>
TT_DEVICE void multiply_tiles(const tt_grouped_params &p, grouped_shared &g, int group)
{
    const int steps = steps_of(p);
    finder tiles;
    auto next = [&](int turn) -> work {
        grouped_tile t;
        if (!tiles.find(p, g, turn, t)) return {0, false};
        return {steps, t.m + group * 64 >= t.end};
    };
    multiply_each<TRANSPOSED>(g.s, group, next, [&](float(&sums)[128]) {
        if (p.alpha == 1) return;
#pragma unroll
        for (int i = 0; i < 128; i++) sums[i] *= p.alpha;
    });
}

#endif

template <int TRANSPOSED>
__global__ void __launch_bounds__(THREADS, 1) gemm_grouped(const __grid_constant__ tt_grouped_params p)
{
#if defined(TT_HOPPER)
    extern __shared__ __align__(1024) unsigned char bytes[];
    grouped_shared &g = *reinterpret_cast<grouped_shared *>(bytes);
    count_tiles(p, g);
    run_roles(
        g.s, WRITERS, [&] { load_tiles<TRANSPOSED>(p, g); }, [&] { write_tiles(p, g); },
        [&](int group) { multiply_tiles<TRANSPOSED>(p, g, group); });
#endif
}

} // namespace

extern "C" bool tt_cuda_grouped_is_built(void)
{
    return has_registers(gemm_grouped<0>, THREADS, (LOADER_REGISTERS + 2 * PRODUCT_REGISTERS) * GROUP);
}

extern "C" cudaError_t tt_cuda_grouped_launch(bool transposed, const struct tt_grouped_params *params,
                                              int ctas, cudaStream_t stream)
{
    return launch_clusters(transposed ? gemm_grouped<1> : gemm_grouped<0>, params, sizeof(grouped_shared),
                           ctas, stream);
}
