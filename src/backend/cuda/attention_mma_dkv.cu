/* Backward, dK and dV: one block per (block of keys, key/value head) goes over the heads of the group and the
 * queries that see its keys. All is transposed, rows are keys: a warp's scores and their gradients then are
 * left factors of P^T dO and dS^T Q without leaving its registers, and no two blocks write the same row: p^T
 * = exp(scale k q^T - lse);   ds^T = p^T (v do^T - delta);   dv = p^T do;   dk = scale ds^T q Head dimensions
 * over 128 have no room for both sums; two launches then do one each, the scores twice. */
#include "backend/cuda/attention_mma_tiles.h"

/* DK, DV: which of the two is computed. */
template <int D_, int KEYS_, int QUERIES_, int WARPS_, int STAGES_, bool DK_, bool DV_> struct dkv_tiles {
    static constexpr int D = D_, KEYS = KEYS_, QUERIES = QUERIES_, WARPS = WARPS_, STAGES = STAGES_;
    static constexpr bool DK = DK_, DV = DV_;
    static constexpr int THREADS = WARPS * 32, KEY = KEYS * D * 2, QUERY = QUERIES * D * 2, STAGE = 2 * QUERY;
    static constexpr int ROWS = (DK ? 2 : 1) * KEY + STAGES * STAGE; /* lse and delta of a stage's queries */
    static constexpr int TOTAL = ROWS + STAGES * 2 * QUERIES * 4;
    static constexpr int M = KEYS / WARPS / 16, N = QUERIES / 8;
};

/* The blocks of queries that see the block's keys, for each head of the group. */
struct query_range {
    int begin, count; /* in blocks of QUERIES */
};

template <typename tiles>
static __device__ __forceinline__ query_range queries_of(const tt_attention_problem &p,
                                                         const block_span &span)
{
    int last_key = min(span.first + tiles::KEYS, span.length_k) - 1;
    int begin = max(0, span.first - span.offset), limit = span.length_q;
    if (p.window > 0) limit = min(limit, last_key - span.offset + p.window);
    query_range range = {begin / tiles::QUERIES, 0};
    if (limit > begin) range.count = (limit + tiles::QUERIES - 1) / tiles::QUERIES - range.begin;
    return range;
}

/* q, do, lse and delta of QUERIES rows from `first` on. */
template <typename tiles>
static __device__ __forceinline__ void load_queries(const tt_attention_problem &p, const block_span &span,
                                                    uint32_t base, int stage, int head, int first)
{
    constexpr int D = tiles::D;
    uint32_t to = base + (tiles::DK ? 2 : 1) * tiles::KEY + stage * tiles::STAGE;
    load_tile<tiles::QUERIES, D, tiles::THREADS>(to, rows_of(p.q, span.q0, head), p.q.token, first,
                                                 span.length_q, p.head_dim);
    load_tile<tiles::QUERIES, D, tiles::THREADS>(to + tiles::QUERY, rows_of(p.go, span.q0, head), p.go.token,
                                                 first, span.length_q, p.head_dim);
    static_assert(2 * tiles::QUERIES <= tiles::THREADS, "one thread a number");
    if (threadIdx.x >= 2 * tiles::QUERIES) return;
    int row = first + threadIdx.x % tiles::QUERIES;
    bool is_delta = threadIdx.x >= tiles::QUERIES, valid = row < span.length_q;
    const float *from = is_delta ? p.delta + head * p.rows_q : p.lse + head * p.lse_head;
    copy_4(base + tiles::ROWS + (stage * 2 * tiles::QUERIES + threadIdx.x) * 4,
           valid ? from + span.q0 + row : from, valid);
}

/* Scores become weights; `lse` is that of the lane's first column. Rows past the last query have lse 0, q 0
 * and do 0. */
template <int M, int N>
static __device__ __forceinline__ void weigh(float (&s)[M][N][4], float scale_log2, const float *lse)
{
#pragma unroll
    for (int n = 0; n < N; n++) {
        float2 pair = *(const float2 *)(lse + n * 8);
        float reference[2] = {pair.x * TT_LOG2_E, pair.y * TT_LOG2_E};
#pragma unroll
        for (int m = 0; m < M; m++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                s[m][n][i] = exp2_fast(fmaf(s[m][n][i], scale_log2, -reference[i % 2]));
    }
}

template <int M, int N>
static __device__ __forceinline__ void differentiate(float (&s)[M][N][4], const float (&dp)[M][N][4],
                                                     const float *delta)
{
#pragma unroll
    for (int n = 0; n < N; n++) {
        float2 pair = *(const float2 *)(delta + n * 8);
#pragma unroll
        for (int m = 0; m < M; m++)
#pragma unroll
            for (int i = 0; i < 4; i++) s[m][n][i] *= dp[m][n][i] - (i % 2 == 0 ? pair.x : pair.y);
    }
}

/* What a warp adds up; the one that is not computed takes no registers. */
template <typename tiles> struct dkv_sums {
    float dk[tiles::M][tiles::D / 8][4], dv[tiles::M][tiles::D / 8][4];
};

/* One tile of queries, `first_query` on, against the warp's keys, `first_key` on. */
template <typename tiles>
static __device__ __forceinline__ void add_queries(const tt_attention_problem &p, dkv_sums<tiles> &sums,
                                                   const block_span &span, uint32_t lane_k, uint32_t lane_q,
                                                   const float *lse, int first_key, int first_query)
{
    constexpr int M = tiles::M, N = tiles::N, D = tiles::D, QUERIES = tiles::QUERIES;
    /* Key row r is seen by the columns low + r <= column < high + r. */
    int low = first_key - span.offset - first_query, high = p.window > 0 ? low + p.window : 1 << 29;
    if (first_key >= span.length_k || low >= QUERIES || high + 16 * M - 1 <= 0) return;
    float s[M][N][4];
    multiply_tiles<D>(s, lane_k, lane_q);
    if (low + 16 * M - 1 > 0 || high < QUERIES) mask_band(s, low, high);
    weigh(s, p.scale * TT_LOG2_E, lse);
    if (tiles::DV) multiply_add<D>(sums.dv, s, lane_q + tiles::QUERY);
    if (!tiles::DK) return;
    float dp[M][N][4];
    multiply_tiles<D>(dp, lane_k + tiles::KEY, lane_q + tiles::QUERY);
    differentiate(s, dp, lse + QUERIES);
    multiply_add<D>(sums.dk, s, lane_q);
}

template <typename tiles>
static __global__ void __launch_bounds__(tiles::THREADS, 256 / tiles::THREADS)
    dkv_kernel(const __grid_constant__ tt_attention_problem p)
{
    constexpr int M = tiles::M, D = tiles::D, STAGES = tiles::STAGES, THREADS = tiles::THREADS;
    extern __shared__ __align__(1024) unsigned char shared[];
    int kv_head = blockIdx.x % p.kv_heads; /* early keys, which most queries see, first */
    block_span span;
    if (!find_block<tiles::KEYS, true>(p, blockIdx.x / p.kv_heads, &span)) return;

    query_range range = queries_of<tiles>(p, span);
    uint32_t base = shared_address(shared), queries = base + (tiles::DK ? 2 : 1) * tiles::KEY;
    load_tile<tiles::KEYS, D, THREADS>(base, rows_of(p.k, span.k0, kv_head), p.k.token, span.first,
                                       span.length_k, p.head_dim);
    if (tiles::DK)
        load_tile<tiles::KEYS, D, THREADS>(base + tiles::KEY, rows_of(p.v, span.k0, kv_head), p.v.token,
                                           span.first, span.length_k, p.head_dim);
    int left = range.count * p.group, block = range.begin;       /* now computed */
    int next_head = kv_head * p.group, next_block = range.begin; /* loaded next */
    if (STAGES == 2 && left > 0) {
        load_queries<tiles>(p, span, base, 0, next_head, next_block * tiles::QUERIES);
        if (++next_block == range.begin + range.count) next_block = range.begin, next_head++;
    }
    copy_commit();

    int warp = threadIdx.x / 32, lane = threadIdx.x % 32, first_key = span.first + warp * (16 * M);
    dkv_sums<tiles> sums;
    clear(sums.dk);
    clear(sums.dv);
    uint32_t lane_k = lane_address<D>(base + warp * (16 * M * D * 2));
    const float *lse = (const float *)(shared + tiles::ROWS) + lane % 4 * 2;
    for (int stage = 0; left > 0; left--, stage ^= STAGES - 1) {
        if (STAGES == 2) copy_wait();
        __syncthreads(); /* two stages: this tile is there; both: nobody reads any more what is overwritten
                            next */
        if (left >= STAGES) {
            load_queries<tiles>(p, span, base, stage ^ (STAGES - 1), next_head, next_block * tiles::QUERIES);
            if (++next_block == range.begin + range.count) next_block = range.begin, next_head++;
            copy_commit();
        }
        if (STAGES == 1) {
            copy_wait();
            __syncthreads();
        }
        add_queries<tiles>(p, sums, span, lane_k, lane_address<D>(queries + stage * tiles::STAGE),
                           lse + stage * 2 * tiles::QUERIES, first_key, block * tiles::QUERIES);
        if (++block == range.begin + range.count) block = range.begin;
    }
    copy_wait(); /* k and v, where no query sees them */
    __syncthreads();
    float factor[M][2];
    unsigned char *stage = shared + warp * (16 * M * D * 2); /* the warp's own rows of k */
#pragma unroll
    for (int m = 0; m < M; m++) factor[m][0] = factor[m][1] = p.scale;
    if (tiles::DK)
        store_rows<D, M>(sums.dk, factor, stage, rows_of(p.gk, span.k0, kv_head), p.gk.token, first_key,
                         span.length_k, p.head_dim);
#pragma unroll
    for (int m = 0; m < M; m++) factor[m][0] = factor[m][1] = 1.0f;
    if (tiles::DV)
        store_rows<D, M>(sums.dv, factor, stage, rows_of(p.gv, span.k0, kv_head), p.gv.token, first_key,
                         span.length_k, p.head_dim);
}

template <typename tiles> static void launch(const tt_attention_problem *problem, cudaStream_t stream)
{
    int64_t slots = tt_attention_slots(problem->rows_k, problem->sequences, tiles::KEYS);
    tt_attention_launch(dkv_kernel<tiles>, slots * problem->kv_heads, tiles::THREADS, tiles::TOTAL, problem,
                        stream);
}

/* All fit the 99 KiB of the smallest chips. */
void tt_attention_mma_dkv(const struct tt_attention_problem *problem, cudaStream_t stream)
{
    if (problem->head_dim <= 64) {
        launch<dkv_tiles<64, 128, 32, 4, 2, true, true>>(problem, stream);
    } else if (problem->head_dim <= 128) {
        launch<dkv_tiles<128, 64, 64, 4, 2, true, true>>(problem, stream);
    } else {
        launch<dkv_tiles<256, 64, 32, 4, 2, false, true>>(problem, stream);
        launch<dkv_tiles<256, 64, 32, 4, 1, true, false>>(problem, stream);
    }
}
