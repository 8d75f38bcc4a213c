#include "backend/cuda/attention/wide.cuh"

namespace
{

enum { QUERIES = 64, SLOT = 32 * COLUMNS }; /* elements of half a tile */

/* Two slots have the columns 0 .. 255 and 256 .. 511 of q's tile, two the rows 0 .. 31 and 32 .. 63 of do's. A group
 * may store the weights of a tile while the other one multiplies by those of the tile before. */
struct shared {
    bf16 rows[ROWS * COLUMNS];
    bf16 slots[4][SLOT];
    bf16 weights[2][ROWS * QUERIES];
    uint64_t rows_full, full[4], empty[4];
};

#if defined(TT_HOPPER)

TT_DEVICE void load(const tt_wide_params &params, shared &s, const block_span &span, tile_range range,
                    int kv_head)
{
    const tt_attention_problem &p = params.problem;
    load_rows<ROWS, 8>(s.rows, &params.k, &s.rows_full, 0, kv_head, span.k0 + span.first);
    for (int i = 0; i < range.count * p.group; i++) {
        int head = kv_head * p.group + i / range.count,
            row = span.q0 + (range.begin + i % range.count) * QUERIES;
        uint32_t free = ~i & 1;
        for (int h = 0; h < 2; h++) {
            barrier_wait(&s.empty[h], free);
            load_rows<ROWS, 4>(s.slots[h], &params.q, &s.full[h], h * 256, head, row);
        }
        for (int h = 0; h < 2; h++) {
            barrier_wait(&s.empty[2 + h], free);
            load_rows<32, 8>(s.slots[2 + h], &params.go, &s.full[2 + h], 0, head, row + h * 32);
        }
    }
}

/* Computes the weights of the group's half of the queries, transposed, and stores them. `lse` is that of query 0. */
template <bool CAPPED>
TT_DEVICE void compute_weights(const tt_attention_problem &p, shared &s, bf16 *weights, uint32_t phase,
                               const band &seen, const float *lse)
{
    int group = threadIdx.x / GROUP, thread = threadIdx.x % GROUP;
    int row = thread / 32 * 16 + thread % 32 / 4, column = group * 32 + thread % 4 * 2;
    float scores[16], reference[8], scale = exponent_scale<CAPPED>(p);
#pragma unroll
    for (int i = 0; i < 8; i++) {
        int at = column + i / 2 * 8 + i % 2;
        reference[i] = at < seen.count ? lse[at] * TT_LOG2_E : 0.0f;
    }
    for (int h = 0; h < 2; h++) {
        barrier_wait(&s.full[h], phase);
        wgmma_fence();
        multiply_scores<ROWS>(scores, s.rows + h * 4 * ROWS * 64, s.slots[h] + group * 32 * 64, h > 0);
        wgmma_commit();
    }
    wgmma_wait<1>();
    release(&s.empty[0]);
    wgmma_wait<0>();
    wgmma_results(scores);
    release(&s.empty[1]);
    float factor = CAPPED ? cap_factor(p) : 0.0f;
#pragma unroll
    for (int i = 0; i < 16; i++) {
        if (CAPPED) scores[i] = capped(scores[i], factor);
        scores[i] = exp2_fast(fmaf(scores[i], scale, -reference[i / 4 * 2 + i % 2]));
    }
    if (!seen.is_whole(QUERIES)) {
#pragma unroll
        for (int i = 0; i < 16; i++)
            if (!seen.sees(row + i / 2 % 2 * 8, column + i / 4 * 8 + i % 2)) scores[i] = 0.0f;
    }
    store_weights(weights, group * 4, scores);
    store_weights(weights, group * 4 + 2, scores + 8);
}

/* sums += weights do, the group's columns. `count`: queries of the tile that the sequence has. */
TT_DEVICE void add_gradients(shared &s, const bf16 *weights, float (&sums)[128], uint32_t phase, int count)
{
    int columns = threadIdx.x / GROUP * 4 * BOX;
    for (int h = 0; h < 2 && count < QUERIES; h++) {
        barrier_wait(&s.full[2 + h], phase);
        clear_rows(s.slots[2 + h] + columns, count - h * 32);
    }
    stores_before_copies();
    groups_sync();
    for (int h = 0; h < 2; h++) {
        barrier_wait(&s.full[2 + h], phase);
        wgmma_fence();
        multiply_sums(sums, weights, h * 32, s.slots[2 + h] + columns);
        wgmma_commit();
    }
    wgmma_wait<1>();
    release(&s.empty[2]);
    wgmma_wait<0>();
    wgmma_results(sums);
    release(&s.empty[3]);
}

template <bool CAPPED>
TT_DEVICE void multiply(const tt_attention_problem &p, shared &s, const block_span &span, tile_range range,
                        int kv_head)
{
    int group = threadIdx.x / GROUP, warp = threadIdx.x % GROUP / 32;
    const float factor[2] = {1.0f, 1.0f};
    float sums[128];
    clear_sums(sums);
    barrier_wait(&s.rows_full, 0);
    for (int i = 0; i < range.count * p.group; i++) {
        int head = kv_head * p.group + i / range.count, query = (range.begin + i % range.count) * QUERIES;
        band seen = band_of_queries(p, span, query);
        compute_weights<CAPPED>(p, s, s.weights[i & 1], i & 1, seen,
                                p.lse + head * p.lse_head + span.q0 + query);
        add_gradients(s, s.weights[i & 1], sums, i & 1, seen.count);
    }
    store_sums(sums, factor, s.rows + (group * 4 + warp) * (16 * 256), rows_of(p.gv, span.k0, kv_head),
               p.gv.token, span.first + warp * 16, span.length_k, p.head_dim);
}

#endif

template <bool CAPPED>
__global__ void __launch_bounds__(THREADS, 1) wide_dv(const __grid_constant__ tt_wide_params params)
{
#if defined(TT_HOPPER)
    extern __shared__ __align__(1024) unsigned char bytes[];
    shared &s = *reinterpret_cast<shared *>(bytes);
    const tt_attention_problem &p = params.problem;
    int kv_head = blockIdx.x % p.kv_heads; /* blocks of early keys, which most queries see, run first */
    block_span span;
    if (!find_block<ROWS, true>(p, blockIdx.x / p.kv_heads, &span)) return;
    tile_range range = queries_seeing<QUERIES>(p, span);
    if (threadIdx.x == 0) {
        barrier_init(&s.rows_full, 1);
        for (int i = 0; i < 4; i++) barrier_init(&s.full[i], 1), barrier_init(&s.empty[i], 2);
        barriers_are_ready();
    }
    run_roles([&] { load(params, s, span, range, kv_head); },
              [&] { multiply<CAPPED>(p, s, span, range, kv_head); });
#endif
}

} // namespace

void tt_attention_wide_launch_dv(const tt_wide_params *params, cudaStream_t stream)
{
    const tt_attention_problem *p = &params->problem;
    launch(p->cap > 0 ? wide_dv<true> : wide_dv<false>,
           tt_attention_slots(p->rows_k, p->sequences, ROWS) * p->kv_heads, sizeof(shared), params, stream);
}
