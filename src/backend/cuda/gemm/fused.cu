#include "backend/cuda/gemm/tiles.cuh"

namespace
{

#if defined(TT_HOPPER)

template <int KIND> TT_DEVICE step wide_step(const tt_fused_params &p, const tile &t, int k, uint32_t rank)
{
    bool up = KIND == TT_FUSED_SWIGLU && rank == 1;
    return {&p.a, &p.b[0], k, k, up ? p.n + t.n : t.n};
}

/* One thread loads this CTA's a, and its half of b into both CTAs of the cluster. */
template <int KIND> TT_DEVICE void load_tiles(const tt_fused_params &p, shared &s)
{
    constexpr bool transposed = KIND == TT_FUSED_LORA_NN || KIND == TT_FUSED_SWIGLU_BACKWARD;
    const uint32_t rank = blockIdx.x % CLUSTER;
    const int wide = (p.k + DEPTH - 1) / DEPTH;
    ring at;
    tile t;
    for (int turn = 0; tile_at<KIND>(p, turn, t); turn++) {
        int steps = wide + narrow_steps<KIND>(p, t);
        for (int i = 0; i < steps; i++, at.next()) {
            step from = i < wide ? wide_step<KIND>(p, t, i * DEPTH, rank)
                                 : narrow_step<KIND>(p, t, (i - wide) * DEPTH, rank);
            uint64_t *full = &s.full[at.slot];
            barrier_wait(&s.empty[at.slot], at.phase ^ 1);
            barrier_expect(full, (ROWS + COLUMNS) * DEPTH * (int)sizeof(bf16));
            copy_tile(s.a[at.slot], from.a, full, from.k_a, t.m);
            bf16 *half = s.b[at.slot] + rank * (COLUMNS / 2 * DEPTH);
            int n = from.n + (KIND == TT_FUSED_SWIGLU ? 0 : (int)rank * COLUMNS / 2);
            if (transposed) {
                copy_tile_to_all(half, from.b, full, n, from.k_b);
                copy_tile_to_all(half + 64 * DEPTH, from.b, full, n + 64, from.k_b);
            } else {
                copy_tile_to_all(half, from.b, full, from.k_b, n);
            }
        }
    }
}

template <int KIND> TT_DEVICE void multiply_tiles(const tt_fused_params &p, shared &s, int group)
{
    constexpr int transposed = KIND == TT_FUSED_LORA_NN || KIND == TT_FUSED_SWIGLU_BACKWARD;
    const int wide = (p.k + DEPTH - 1) / DEPTH;
    auto next = [&](int turn) -> work {
        tile t;
        if (!tile_at<KIND>(p, turn, t)) return {0, false};
        return {wide + narrow_steps<KIND>(p, t), false};
    };
    multiply_each<transposed>(s, group, next, [](float(&)[128]) {});
}

#endif

template <int KIND>
__global__ void __launch_bounds__(THREADS, 1) gemm_fused(const __grid_constant__ tt_fused_params p)
{
#if defined(TT_HOPPER)
    extern __shared__ __align__(1024) unsigned char bytes[];
    shared &s = *reinterpret_cast<shared *>(bytes);
    run_roles(
        s, WRITERS, [&] { load_tiles<KIND>(p, s); }, [&] { write_results<KIND>(p, s); },
        [&](int group) { multiply_tiles<KIND>(p, s, group); });
#endif
}

template <int KIND> cudaError_t launch(const tt_fused_params *params, int ctas, cudaStream_t stream)
{
    return launch_clusters(gemm_fused<KIND>, params, sizeof(shared), ctas, stream);
}

} // namespace

extern "C" bool tt_cuda_fused_is_built(void)
{
    return has_registers(gemm_fused<TT_FUSED_LORA>, THREADS,
                         (LOADER_REGISTERS + 2 * PRODUCT_REGISTERS) * GROUP);
}

extern "C" cudaError_t tt_cuda_fused_launch(enum tt_fused_kind kind, const struct tt_fused_params *params,
                                            int ctas, cudaStream_t stream)
{
    switch (kind) {
    case TT_FUSED_LORA:
        return launch<TT_FUSED_LORA>(params, ctas, stream);
    case TT_FUSED_LORA_NN:
        return launch<TT_FUSED_LORA_NN>(params, ctas, stream);
    case TT_FUSED_ROTATED:
        return launch<TT_FUSED_ROTATED>(params, ctas, stream);
    case TT_FUSED_SWIGLU:
        return launch<TT_FUSED_SWIGLU>(params, ctas, stream);
    case TT_FUSED_SWIGLU_BACKWARD:
        return launch<TT_FUSED_SWIGLU_BACKWARD>(params, ctas, stream);
    default:
        return cudaErrorInvalidValue;
    }
}
