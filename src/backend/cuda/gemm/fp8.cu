/* The kernel of fused.h for products in E4M3 with a scale a row of both; its sums: scaled_sums.cuh. */
#include "backend/cuda/gemm/scaled_sums.cuh"

namespace
{

struct scaled_shared : shared {
    float scale[2][2][COLUMNS]; /* of the tile's columns: for each group, in turns */
};

#if defined(TT_HOPPER)

/* The matrix that has this column of c; the last one for columns beyond all. */
TT_DEVICE int matrix_of(const tt_fused_scaled &scaled, int column)
{
    int at = 0;
    while (at + 1 < scaled.parts && column >= scaled.part[at + 1].first) at++;
    return at;
}

/* The column of c, or of gate | up, that is column `at` of the tile. */
template <int KIND> TT_DEVICE int column_of(const tt_fused_params &p, const tile &t, int at)
{
    constexpr int half = COLUMNS / 2;
    return KIND != TT_FUSED_SWIGLU || at < half ? t.n + at : p.n + t.n + at - half;
}

struct loader {
    const tt_fused_params &p;
    shared &s;
    uint32_t rank;
    ring at;

    TT_DEVICE bf16 *half_of_b()
    {
        return s.b[at.slot] + rank * (COLUMNS / 2 * DEPTH);
    }

    TT_DEVICE uint64_t *begin()
    {
        uint64_t *full = &s.full[at.slot];
        barrier_wait(&s.empty[at.slot], at.phase ^ 1);
        barrier_expect(full, (ROWS + COLUMNS) * DEPTH * (int)sizeof(bf16));
        return full;
    }

    /* All of a matrix' k: `k_a` is its first column of a, `n` the first row of this CTA's half. */
    TT_DEVICE void load_wide(const CUtensorMap *b, int k_a, int k, int m, int n)
    {
        for (int i = 0; i < k; i += E4M3_DEPTH, at.next()) {
            uint64_t *full = begin();
            copy_tile(s.a[at.slot], &p.a, full, k_a + i, m);
            copy_tile_to_all(half_of_b(), b, full, i, n);
        }
    }

    template <int KIND> TT_DEVICE void load_narrow(const tile &t)
    {
        int steps = narrow_steps<KIND>(p, t);
        for (int i = 0; i < steps; i++, at.next()) {
            step from = narrow_step<KIND>(p, t, i * DEPTH, rank);
            int n = from.n + (KIND == TT_FUSED_SWIGLU ? 0 : (int)rank * COLUMNS / 2);
            uint64_t *full = begin();
            copy_tile(s.a[at.slot], from.a, full, from.k_a, t.m);
            if (KIND == TT_FUSED_LORA_NN) {
                copy_tile_to_all(half_of_b(), from.b, full, n, from.k_b);
                copy_tile_to_all(half_of_b() + 64 * DEPTH, from.b, full, n + 64, from.k_b);
            } else {
                copy_tile_to_all(half_of_b(), from.b, full, from.k_b, n);
            }
        }
    }
};

/* One thread loads this CTA's a, and its half of b into both CTAs of the cluster. */
template <int KIND> TT_DEVICE void load_tiles(const tt_fused_params &p, shared &s)
{
    loader load = {p, s, blockIdx.x % CLUSTER, {}};
    const int first = (int)load.rank * (COLUMNS / 2);
    tile t;
    for (int turn = 0; tile_at<KIND>(p, turn, t); turn++) {
        if (KIND == TT_FUSED_LORA_NN) {
            for (int i = 0; i < p.scaled.parts; i++)
                load.load_wide(&p.b[i], p.scaled.part[i].first, p.scaled.part[i].size, t.m, t.n + first);
        } else {
            int column = column_of<KIND>(p, t, first), i = matrix_of(p.scaled, column);
            load.load_wide(&p.b[i], 0, p.k, t.m, column - p.scaled.part[i].first);
        }
        load.load_narrow<KIND>(t);
    }
}

/* The scales of two neighbouring columns of the tile; 0 beyond the matrix. With b along k those of its part `part`. */
template <int KIND> TT_DEVICE float2 column_scales(const tt_fused_params &p, const tile &t, int at, int part)
{
    constexpr int half = COLUMNS / 2;
    int column = column_of<KIND>(p, t, at), first = 0;
    if (t.n + (KIND == TT_FUSED_SWIGLU ? at % half : at) >= p.n) return {0, 0};
    if (KIND != TT_FUSED_LORA_NN) {
        part = matrix_of(p.scaled, column);
        first = p.scaled.part[part].first;
    }
    return __ldg(reinterpret_cast<const float2 *>(p.scaled.part[part].scale + column - first));
}

TT_DEVICE float2 row_scales(const tt_fused_params &p, int row)
{
    return {row < p.m ? __ldg(p.scaled.a_scale + row) : 0,
            row + 8 < p.m ? __ldg(p.scaled.a_scale + row + 8) : 0};
}

/* The factor that turns sums in units of one scale into those of the next one, which is not so small that the factor
 * would be infinite: then its products are nothing beside the sums. */
TT_DEVICE float change(float &scale, float next)
{
    const float least = scale * 0x1p-60f;
    float to = next < least ? least : next, factor = to > 0 ? __fdiv_rn(scale, to) : 0;
    scale = to;
    return factor;
}

template <int KIND> TT_DEVICE void multiply_tiles(const tt_fused_params &p, scaled_shared &s, int group)
{
    constexpr bool along_k = KIND == TT_FUSED_LORA_NN;
    const int thread = threadIdx.x % GROUP, lane = thread % 32, parts = along_k ? p.scaled.parts : 1;
    const int warp_row = group * 64 + thread / 32 * 16;
    product x = {s, group, thread, (uint32_t)(warp_row + (lane / 8 & 1) * 8 + lane % 8), {}};
    x.idle = false;
    int factors = 0;
    tile t;
    for (int turn = 0; tile_at<KIND>(p, turn, t); turn++) {
        float2 rows = row_scales(p, t.m + warp_row + lane / 4),
               columns = column_scales<KIND>(p, t, 2 * thread, 0);
        x.has_place = x.holds = false;
        int part = 0, left = steps_of(along_k ? p.scaled.part[0].size : p.k);
        for (bool first = true;; first = false) {
            int count = min(left, p.scaled.chain);
            x.template multiply<true, 0>(count, !first);
            left -= count;
            if (left == 0) {
                if (++part == parts) break;
                float2 next = column_scales<KIND>(p, t, 2 * thread, part), by;
                by.x = change(columns.x, next.x);
                by.y = change(columns.y, next.y);
                x.take_back();
                x.scale(s.scale[group][factors ^= 1], by, {1, 1});
                left = steps_of(p.scaled.part[part].size);
            }
            x.take_place(turn);
            x.hold();
        }
        x.take_back();
        x.scale(s.scale[group][factors ^= 1], columns, rows);
        x.template multiply<false, along_k>(narrow_steps<KIND>(p, t), true);
        x.take_place(turn);
        store_sums(x.sums, s.c, x.row);
        if (p.scaled.copies_out) stores_before_copies();
        __syncwarp();
        if (lane == 0) barrier_arrive(&s.sums_full);
    }
}

/* One thread. */
template <int KIND> TT_DEVICE void copy_tiles_out(const tt_fused_params &p, shared &s)
{
    tile t;
    for (int turn = 0; tile_at<KIND>(p, turn, t); turn++) {
        barrier_wait(&s.sums_full, turn & 1);
        for (int i = 0; i < COLUMNS / 64; i++)
            if (t.m < p.m && t.n + i * 64 < p.n) copy_tile_out(&p.y, s.c + i * SLAB, t.n + i * 64, t.m);
        copies_have_read();
        barrier_arrive(&s.sums_empty);
    }
}

template <int KIND> TT_DEVICE void write_or_copy_results(const tt_fused_params &p, shared &s)
{
    if constexpr (KIND == TT_FUSED_LORA || KIND == TT_FUSED_LORA_NN) {
        if (p.scaled.copies_out) {
            if (threadIdx.x == 32) copy_tiles_out<KIND>(p, s);
            return;
        }
    }
    write_results<KIND>(p, s);
}

#endif

template <int KIND>
__global__ void __launch_bounds__(THREADS, 1) gemm_fp8(const __grid_constant__ tt_fused_params p)
{
#if defined(TT_HOPPER)
    extern __shared__ __align__(1024) unsigned char bytes[];
    scaled_shared &s = *reinterpret_cast<scaled_shared *>(bytes);
    run_roles(
        s, p.scaled.copies_out ? 1 : WRITERS, [&] { load_tiles<KIND>(p, s); },
        [&] { write_or_copy_results<KIND>(p, s); }, [&](int group) { multiply_tiles<KIND>(p, s, group); });
#endif
}

template <int KIND> cudaError_t launch(const tt_fused_params *params, int ctas, cudaStream_t stream)
{
    return launch_clusters(gemm_fp8<KIND>, params, sizeof(scaled_shared), ctas, stream);
}

} // namespace

extern "C" bool tt_cuda_fused_scaled_is_built(void)
{
    return has_registers(gemm_fp8<TT_FUSED_LORA>, THREADS,
                         (LOADER_REGISTERS + 2 * PRODUCT_REGISTERS) * GROUP);
}

extern "C" cudaError_t tt_cuda_fused_scaled_launch(enum tt_fused_kind kind,
                                                   const struct tt_fused_params *params, int ctas,
                                                   cudaStream_t stream)
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
    default:
        return cudaErrorInvalidValue;
    }
}
