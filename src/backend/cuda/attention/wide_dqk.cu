/* dq: the block's rows are queries, its tiles keys. dk: its rows are keys, its tiles queries; matrices are transposed.
 *     ds = p (dp - delta);   dq = scale ds k;   dk = scale ds^T q
 * x is what scores and sums are made of (k, or q), y what the gradients of the weights are made of (v, or do). */
#include "backend/cuda/attention/wide.cuh"

namespace
{

enum { TILE = 32, HALF = TILE * COLUMNS / 2, X_SLOTS = 3 }; /* elements of half a tile */

/* A slot has 256 columns of a tile. y is free again once it was multiplied, x only at the end of its tile: its group of
 * columns is multiplied by ds. */
struct shared {
    bf16 rows[2][ROWS * COLUMNS]; /* q and do, or k and v */
    bf16 x[X_SLOTS][HALF];
    bf16 y[2][HALF];
    bf16 ds[ROWS * 64]; /* 32 columns, and as many that nothing reads */
    float exchange[2][8][GROUP];
    uint64_t rows_full, x_full[X_SLOTS], x_empty[X_SLOTS], y_full[2], y_empty[2];
};

#if defined(TT_HOPPER)

/* The place of a tile: its head, and its first row in its sequence. */
struct place {
    int head, first;
};

template <bool KEYS>
TT_DEVICE place place_of(const tt_attention_problem &p, tile_range range, int head, int i)
{
    if (!KEYS) return {head, (range.begin + i) * TILE};
    return {head * p.group + i / range.count, (range.begin + i % range.count) * TILE};
}

template <bool KEYS>
TT_DEVICE void load(const tt_wide_params &params, shared &s, const block_span &span, tile_range range,
                    int head, int tiles)
{
    const tt_attention_problem &p = params.problem;
    const CUtensorMap *x = KEYS ? &params.q : &params.k, *y = KEYS ? &params.go : &params.v;
    int first = (KEYS ? span.k0 : span.q0) + span.first;
    barrier_expect(&s.rows_full, 2 * ROWS * COLUMNS * (int)sizeof(bf16));
    for (int i = 0; i < 2; i++)
        copy_rows<ROWS, 8>(s.rows[i],
                           i == 0 ? (KEYS ? &params.k : &params.q) : (KEYS ? &params.v : &params.go),
                           &s.rows_full, 0, head, first);
    ring at;
    for (int i = 0; i < tiles; i++) {
        place from = place_of<KEYS>(p, range, head, i);
        int row = (KEYS ? span.q0 : span.k0) + from.first, tile_head = KEYS ? from.head : from.head / p.group;
        for (int h = 0; h < 2; h++, at.next<X_SLOTS>()) {
            barrier_wait(&s.y_empty[h], ~i & 1);
            load_rows<TILE, 4>(s.y[h], y, &s.y_full[h], h * 256, tile_head, row);
            barrier_wait(&s.x_empty[at.slot], at.phase ^ 1);
            load_rows<TILE, 4>(s.x[at.slot], x, &s.x_full[at.slot], h * 256, tile_head, row);
        }
    }
}

/* lse and delta of the elements of ds that a thread computes: of its two rows, or of its four columns. */
struct references {
    float lse[4], delta[4];
};

/* Element i of 8: its row of the block, beyond the thread's first, and its column of the tile, beyond the group's. */
TT_DEVICE int row_in(int i)
{
    return i / 2 % 2 * 8;
}
TT_DEVICE int column_in(int i)
{
    return i / 4 * 8 + i % 2;
}
template <bool KEYS> TT_DEVICE int reference_in(int i)
{
    return KEYS ? i / 4 * 2 + i % 2 : i / 2 % 2;
}

/* References of `count` rows from `first` on. */
template <bool KEYS>
TT_DEVICE void read_references(const tt_attention_problem &p, references &r, int head, int64_t first, int at,
                               int count)
{
    const float *lse = p.lse + head * p.lse_head + first, *delta = p.delta + head * p.rows_q + first;
#pragma unroll
    for (int i = 0; i < (KEYS ? 4 : 2); i++) {
        int row = at + (KEYS ? i / 2 * 8 + i % 2 : i * 8);
        r.lse[i] = row < count ? lse[row] * TT_LOG2_E : 0.0f;
        r.delta[i] = row < count ? delta[row] : 0.0f;
    }
}

/* The first group's scores, or the second group's gradients of the weights; x is at `slot` and the slot after it. */
TT_DEVICE void multiply_tile(shared &s, float (&c)[16], const ring (&slots)[2], uint32_t phase)
{
    int group = threadIdx.x / GROUP;
    for (int h = 0; h < 2; h++) {
        if (group == 0)
            barrier_wait(&s.x_full[slots[h].slot], slots[h].phase);
        else
            barrier_wait(&s.y_full[h], phase);
        wgmma_fence();
        multiply_scores<TILE>(c, s.rows[group] + h * 4 * ROWS * 64, group == 0 ? s.x[slots[h].slot] : s.y[h],
                              h > 0);
        wgmma_commit();
    }
    wgmma_wait<1>();
    if (group == 1) release(&s.y_empty[0]);
    wgmma_wait<0>();
    wgmma_results(c);
    if (group == 1) release(&s.y_empty[1]);
}

/* Each group keeps 16 columns of its matrix and gets the other's: s and dp of 8 elements. */
TT_DEVICE void exchange(shared &s, const float (&c)[16], float (&scores)[8], float (&dp)[8])
{
    int group = threadIdx.x / GROUP, thread = threadIdx.x % GROUP;
#pragma unroll
    for (int i = 0; i < 8; i++) s.exchange[group][i][thread] = group == 0 ? c[8 + i] : c[i];
    groups_sync();
#pragma unroll
    for (int i = 0; i < 8; i++) {
        float mine = group == 0 ? c[i] : c[8 + i], other = s.exchange[group ^ 1][i][thread];
        scores[i] = group == 0 ? mine : other;
        dp[i] = group == 0 ? other : mine;
    }
}

/* Computes and stores the group's columns of ds. */
template <bool CAPPED, bool KEYS>
TT_DEVICE void store_ds(const tt_attention_problem &p, shared &s, const float (&scores)[8],
                        const float (&dp)[8], const references &r, const band &seen)
{
    int group = threadIdx.x / GROUP, thread = threadIdx.x % GROUP;
    int row = thread / 32 * 16 + thread % 32 / 4, column = group * 16 + thread % 4 * 2;
    float ds[8], scale = exponent_scale<CAPPED>(p), factor = CAPPED ? cap_factor(p) : 0.0f;
#pragma unroll
    for (int i = 0; i < 8; i++) {
        int of = reference_in<KEYS>(i);
        float t = CAPPED ? capped(scores[i], factor) : scores[i];
        ds[i] = exp2_fast(fmaf(t, scale, -r.lse[of])) * (dp[i] - r.delta[of]);
        if (CAPPED) ds[i] *= slope_of(t);
    }
    if (!seen.is_whole(TILE)) {
#pragma unroll
        for (int i = 0; i < 8; i++)
            if (!seen.sees(row + row_in(i), column + column_in(i))) ds[i] = 0.0f;
    }
    store_weights(s.ds, group * 2, ds);
}

/* sums += ds x, the group's columns, which are in the slot `at`. */
TT_DEVICE void add_tile(shared &s, float (&sums)[128], ring at, int count)
{
    barrier_wait(&s.x_full[at.slot], at.phase);
    if (count < TILE) clear_rows(s.x[at.slot], count);
    stores_before_copies();
    groups_sync();
    wgmma_fence();
    multiply_sums(sums, s.ds, 0, s.x[at.slot]);
    wgmma_commit();
    wgmma_wait<0>();
    wgmma_results(sums);
    release(&s.x_empty[at.slot]);
}

template <bool CAPPED, bool KEYS>
TT_DEVICE void multiply(const tt_attention_problem &p, shared &s, const block_span &span, tile_range range,
                        int head, int tiles)
{
    int group = threadIdx.x / GROUP, thread = threadIdx.x % GROUP, warp = thread / 32;
    const float factor[2] = {p.scale, p.scale};
    const tt_attention_view &to = KEYS ? p.gk : p.gq;
    float sums[128];
    references r;
    ring slots[2];
    if (!KEYS)
        read_references<false>(p, r, head, span.q0 + span.first, warp * 16 + thread % 32 / 4,
                               span.length_q - span.first);
    clear_sums(sums);
    slots[1].next<X_SLOTS>();
    barrier_wait(&s.rows_full, 0);
    for (int i = 0; i < tiles; i++) {
        place at = place_of<KEYS>(p, range, head, i);
        band seen = KEYS ? band_of_queries(p, span, at.first) : band_of_keys(p, span, at.first);
        float c[16], scores[8], dp[8];
        if (KEYS)
            read_references<true>(p, r, at.head, span.q0 + at.first, group * 16 + thread % 4 * 2, seen.count);
        multiply_tile(s, c, slots, i & 1);
        exchange(s, c, scores, dp);
        store_ds<CAPPED, KEYS>(p, s, scores, dp, r, seen);
        add_tile(s, sums, group == 0 ? slots[0] : slots[1], seen.count);
        for (int h = 0; h < 2; h++) slots[h].next<X_SLOTS>(), slots[h].next<X_SLOTS>();
    }
    store_sums(sums, factor, s.rows[0] + (group * 4 + warp) * (16 * 256),
               rows_of(to, KEYS ? span.k0 : span.q0, head), to.token, span.first + warp * 16,
               KEYS ? span.length_k : span.length_q, p.head_dim);
}

#endif

template <bool CAPPED, bool KEYS>
__global__ void __launch_bounds__(THREADS, 1) wide_dqk(const __grid_constant__ tt_wide_params params)
{
#if defined(TT_HOPPER)
    extern __shared__ __align__(1024) unsigned char bytes[];
    shared &s = *reinterpret_cast<shared *>(bytes);
    const tt_attention_problem &p = params.problem;
    /* The blocks with most tiles run first: of late queries, or of early keys. */
    int heads = KEYS ? p.kv_heads : p.heads, head = blockIdx.x % heads;
    int slot = (KEYS ? blockIdx.x : gridDim.x - 1 - blockIdx.x) / heads;
    block_span span;
    if (!find_block<ROWS, KEYS>(p, slot, &span)) return;
    tile_range range = KEYS ? queries_seeing<TILE>(p, span) : keys_seen<TILE>(p, span);
    int tiles = range.count * (KEYS ? p.group : 1);
    if (threadIdx.x == 0) {
        barrier_init(&s.rows_full, 1);
        for (int i = 0; i < X_SLOTS; i++) barrier_init(&s.x_full[i], 1), barrier_init(&s.x_empty[i], 1);
        for (int i = 0; i < 2; i++) barrier_init(&s.y_full[i], 1), barrier_init(&s.y_empty[i], 1);
        barriers_are_ready();
    }
    run_roles([&] { load<KEYS>(params, s, span, range, head, tiles); },
              [&] { multiply<CAPPED, KEYS>(p, s, span, range, head, tiles); });
#endif
}

template <bool KEYS>
void launch_any(const tt_wide_params *params, int64_t rows, int heads, cudaStream_t stream)
{
    const tt_attention_problem *p = &params->problem;
    launch(p->cap > 0 ? wide_dqk<true, KEYS> : wide_dqk<false, KEYS>,
           tt_attention_slots(rows, p->sequences, ROWS) * heads, sizeof(shared), params, stream);
}

} // namespace

void tt_attention_wide_launch_dq(const tt_wide_params *params, cudaStream_t stream)
{
    launch_any<false>(params, params->problem.rows_q, params->problem.heads, stream);
}

void tt_attention_wide_launch_dk(const tt_wide_params *params, cudaStream_t stream)
{
    launch_any<true>(params, params->problem.rows_k, params->problem.kv_heads, stream);
}
