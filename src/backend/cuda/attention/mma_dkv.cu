/* Backward, dK and dV: one thread block per (block of keys, key/value head) visits the heads of the group and
 * the queries that see its keys. Matrices are transposed: rows are keys. No two blocks write the same row, so
 * repeats are equal bit for bit:
 *     p^T = exp(scale k q^T - lse);   ds^T = p^T (v do^T - delta);   dv = p^T do;   dk = scale ds^T q
 * Of capped scores, cap t, ds has the factor 1 - t^2 (mma_dq.cu).
 *
 * SHARE warps share the same keys: each computes the weights of its part of the queries, and sums its part of
 * the columns of dk and dv. With SHARE 1 a warp keeps the weights in registers as the left factors of the sums.
 * For head dimensions over 128 the registers of one warp cannot hold all columns; there the weights pass through
 * shared memory (H200, 2026-11-21, 4 x 4096 tokens, 16:8 heads of 256: 3.8 ms; with one launch each for dk and
 * dv: 5.2 ms). */
#include "backend/cuda/attention/mma_tiles.h"

template <int D_, int KEYS_, int QUERIES_, int STAGES_, int M_, int SHARE_, bool CAPPED_ = false>
struct dkv_tiles {
    static constexpr bool CAPPED = CAPPED_;
    using capped = dkv_tiles<D_, KEYS_, QUERIES_, STAGES_, M_, SHARE_, true>;
    static constexpr int D = D_, KEYS = KEYS_, QUERIES = QUERIES_, STAGES = STAGES_, M = M_, SHARE = SHARE_;
    static constexpr int WARPS = KEYS / (16 * M) * SHARE, THREADS = WARPS * 32, COLUMNS = D / SHARE;
    /* A part has at least the queries of one ldmatrix; superfluous warps then compute a part twice. */
    static constexpr int PART = QUERIES / SHARE < 16 ? 16 : QUERIES / SHARE, PARTS = QUERIES / PART,
                         N = PART / 8;
    static constexpr int KEY = KEYS * D * 2, QUERY = QUERIES * D * 2, STAGE = 2 * QUERY; /* bytes of tiles */
    static constexpr int WEIGHTS = 2 * KEY + STAGES * STAGE, WEIGHT = SHARE == 1 ? 0 : KEYS * 128; /* p, ds */
    static constexpr int ROWS = WEIGHTS + 2 * WEIGHT; /* lse and delta of a stage's queries */
    static constexpr int TOTAL = ROWS + STAGES * 2 * QUERIES * 4;
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

/* Loads q, do, lse and delta of QUERIES rows from `first` on. */
template <typename tiles>
static __device__ __forceinline__ void load_queries(const tt_attention_problem &p, const block_span &span,
                                                    uint32_t base, int stage, int head, int first)
{
    constexpr int D = tiles::D;
    uint32_t to = base + 2 * tiles::KEY + stage * tiles::STAGE;
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

/* Turns scores into weights; `lse` is that of the lane's first column. Rows after the last query have lse 0, q 0
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

/* Turns weights into ds; `lse` and `delta` are those of the lane's first column. A weight is exp(cap t - lse), from
 * which t follows without registers for a second matrix; a weight of 0 has t = -infinity and slope 0. */
template <bool CAPPED, int M, int N>
static __device__ __forceinline__ void differentiate(float (&s)[M][N][4], const float (&dp)[M][N][4],
                                                     float scale_log2, const float *lse, const float *delta)
{
#pragma unroll
    for (int n = 0; n < N; n++) {
        float2 pair = *(const float2 *)(delta + n * 8), pair_lse = *(const float2 *)(lse + n * 8);
#pragma unroll
        for (int m = 0; m < M; m++)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                float weight = s[m][n][i], reference = (i % 2 == 0 ? pair_lse.x : pair_lse.y) * TT_LOG2_E;
                s[m][n][i] *= dp[m][n][i] - (i % 2 == 0 ? pair.x : pair.y);
                if (CAPPED) s[m][n][i] *= slope_of((__log2f(weight) + reference) / scale_log2);
            }
    }
}

/* Stores the warp's part of the weights in the tile that its group shares, as bf16. */
template <typename tiles>
static __device__ __forceinline__ void share(unsigned char *tile, const float (&s)[tiles::M][tiles::N][4],
                                             int part)
{
    static_assert(tiles::SHARE == 1 || tiles::QUERIES <= 64, "rows of 128 bytes, as a tile of 64 columns");
    if (part >= tiles::PARTS) return;
    int lane = threadIdx.x % 32;
#pragma unroll
    for (int m = 0; m < tiles::M; m++)
#pragma unroll
        for (int n = 0; n < tiles::N; n++)
#pragma unroll
            for (int h = 0; h < 2; h++) {
                int row = m * 16 + h * 8 + lane / 4, chunk = part * tiles::N + n;
                *(uint32_t *)(tile + row * 128 + ((chunk ^ (row & 7)) << 4) + lane % 4 * 4) =
                    pack_bf16(s[m][n][2 * h], s[m][n][2 * h + 1]);
            }
}

/* c[i][e] += sum over j < QUERIES of a[i][j] b[j][e], both in shared memory: the group's weights, and 64 columns
 * of a tile of queries (given as lane addresses). */
template <int D, int QUERIES, int M>
static __device__ __forceinline__ void multiply_add_shared(float (&c)[M][8][4], uint32_t a, uint32_t b)
{
#pragma unroll
    for (int k = 0; k < QUERIES / 16; k++) {
        uint32_t fa[M][4], fb[4];
#pragma unroll
        for (int m = 0; m < M; m++) load_pieces(fa[m], (a ^ (k << 5)) + m * 16 * 128);
#pragma unroll
        for (int n = 0; n < 4; n++) {
            load_pieces_transposed(fb, (b ^ (n << 5)) + k * 16 * D * 2);
#pragma unroll
            for (int m = 0; m < M; m++) {
                multiply_piece(c[m][2 * n], fa[m], fb[0], fb[1]);
                multiply_piece(c[m][2 * n + 1], fa[m], fb[2], fb[3]);
            }
        }
    }
}

/* The part of a warp, and its sums. */
template <typename tiles> struct dkv_warp {
    int part, first_key;    /* part of the queries and columns; first of the keys that its group shares */
    uint32_t lane_k;        /* lane address of those keys */
    unsigned char *weights; /* the group's rows of p; ds follows at WEIGHT */
    float dk[tiles::M][tiles::COLUMNS / 8][4], dv[tiles::M][tiles::COLUMNS / 8][4];
};

/* A tile of queries: its lane address, and that of its lse, which delta follows. */
struct query_tile {
    uint32_t lane;
    const float *lse;
    int low, high; /* the warp's key row r is seen by the columns low + r <= column < high + r */
};

/* Computes the warp's part of p, or of ds, which needs p. */
template <typename tiles>
static __device__ __forceinline__ void compute_p(float (&s)[tiles::M][tiles::N][4],
                                                 const tt_attention_problem &p, const query_tile &tile,
                                                 const dkv_warp<tiles> &warp)
{
    constexpr int D = tiles::D, PART = tiles::PART;
    int first = warp.part % tiles::PARTS * PART;
    multiply_tiles<D>(s, warp.lane_k, tile.lane + first * (D * 2));
    if (tiles::CAPPED) cap_scores(s, p);
    if (tile.low + 16 * tiles::M - 1 > first || tile.high < first + PART)
        mask_band(s, tile.low - first, tile.high - first);
    weigh(s, exponent_scale<tiles::CAPPED>(p), tile.lse + first + threadIdx.x % 4 * 2);
}

template <typename tiles>
static __device__ __forceinline__ void compute_ds(float (&s)[tiles::M][tiles::N][4],
                                                  const tt_attention_problem &p, const query_tile &tile,
                                                  const dkv_warp<tiles> &warp)
{
    constexpr int D = tiles::D;
    int first = warp.part % tiles::PARTS * tiles::PART;
    float dp[tiles::M][tiles::N][4];
    multiply_tiles<D>(dp, warp.lane_k + tiles::KEY, tile.lane + tiles::QUERY + first * (D * 2));
    const float *lse = tile.lse + first + threadIdx.x % 4 * 2;
    differentiate<tiles::CAPPED>(s, dp, exponent_scale<tiles::CAPPED>(p), lse, lse + tiles::QUERIES);
}

/* Adds the contribution of one tile of queries, from `first_query` on, to the warp's keys. All warps of the
 * block call it. */
template <typename tiles>
static __device__ __forceinline__ void add_queries(const tt_attention_problem &p, dkv_warp<tiles> &warp,
                                                   const block_span &span, query_tile tile, int first_query)
{
    constexpr int M = tiles::M, D = tiles::D, QUERIES = tiles::QUERIES;
    tile.low = warp.first_key - span.offset - first_query;
    tile.high = p.window > 0 ? tile.low + p.window : 1 << 29;
    bool seen = warp.first_key < span.length_k && tile.low < QUERIES && tile.high + 16 * M - 1 > 0;
    float s[M][tiles::N][4];
    if constexpr (tiles::SHARE == 1) {
        if (!seen) return;
        compute_p<tiles>(s, p, tile, warp);
        multiply_add<D>(warp.dv, s, tile.lane + tiles::QUERY);
        compute_ds<tiles>(s, p, tile, warp);
        multiply_add<D>(warp.dk, s, tile.lane);
    } else {
        if (seen) {
            compute_p<tiles>(s, p, tile, warp);
            share<tiles>(warp.weights, s, warp.part);
            compute_ds<tiles>(s, p, tile, warp);
            share<tiles>(warp.weights + tiles::WEIGHT, s, warp.part);
        }
        __syncthreads();
        if (!seen) return;
        static_assert(tiles::COLUMNS == 64, "128 bytes");
        uint32_t weights = lane_address<64>(shared_address(warp.weights)), columns = warp.part << 7;
        multiply_add_shared<D, QUERIES>(warp.dv, weights, (tile.lane + tiles::QUERY) ^ columns);
        multiply_add_shared<D, QUERIES>(warp.dk, weights + tiles::WEIGHT, tile.lane ^ columns);
    }
}

template <typename tiles>
static __device__ __forceinline__ void store_sums(const tt_attention_problem &p, dkv_warp<tiles> &warp,
                                                  const block_span &span, int kv_head, unsigned char *stage)
{
    constexpr int M = tiles::M, COLUMNS = tiles::COLUMNS;
    int column = warp.part * COLUMNS;
    float factor[M][2];
#pragma unroll
    for (int m = 0; m < M; m++) factor[m][0] = factor[m][1] = p.scale;
    store_rows<COLUMNS, M>(warp.dk, factor, stage, rows_of(p.gk, span.k0, kv_head) + column, p.gk.token,
                           warp.first_key, span.length_k, p.head_dim - column);
#pragma unroll
    for (int m = 0; m < M; m++) factor[m][0] = factor[m][1] = 1.0f;
    store_rows<COLUMNS, M>(warp.dv, factor, stage, rows_of(p.gv, span.k0, kv_head) + column, p.gv.token,
                           warp.first_key, span.length_k, p.head_dim - column);
}

template <typename tiles>
static __global__ void __launch_bounds__(tiles::THREADS, 256 / tiles::THREADS)
    dkv_kernel(const __grid_constant__ tt_attention_problem p)
{
    constexpr int D = tiles::D, STAGES = tiles::STAGES, THREADS = tiles::THREADS, ROWS = 16 * tiles::M;
    extern __shared__ __align__(1024) unsigned char shared[];
    int kv_head = blockIdx.x % p.kv_heads; /* blocks of early keys, which most queries see, run first */
    block_span span;
    if (!find_block<tiles::KEYS, true>(p, blockIdx.x / p.kv_heads, &span)) return;

    query_range range = queries_of<tiles>(p, span);
    uint32_t base = shared_address(shared), queries = base + 2 * tiles::KEY;
    load_tile<tiles::KEYS, D, THREADS>(base, rows_of(p.k, span.k0, kv_head), p.k.token, span.first,
                                       span.length_k, p.head_dim);
    load_tile<tiles::KEYS, D, THREADS>(base + tiles::KEY, rows_of(p.v, span.k0, kv_head), p.v.token,
                                       span.first, span.length_k, p.head_dim);
    int left = range.count * p.group, block = range.begin;       /* computed now */
    int next_head = kv_head * p.group, next_block = range.begin; /* loaded next */
    if (STAGES == 2 && left > 0) {
        load_queries<tiles>(p, span, base, 0, next_head, next_block * tiles::QUERIES);
        if (++next_block == range.begin + range.count) next_block = range.begin, next_head++;
    }
    copy_commit();

    int index = threadIdx.x / 32, group = index / tiles::SHARE;
    dkv_warp<tiles> warp;
    warp.part = index % tiles::SHARE;
    warp.first_key = span.first + group * ROWS;
    warp.lane_k = lane_address<D>(base + group * (ROWS * D * 2));
    warp.weights = shared + tiles::WEIGHTS + group * (ROWS * 128);
    clear(warp.dk);
    clear(warp.dv);
    for (int stage = 0; left > 0; left--, stage ^= STAGES - 1) {
        if (STAGES == 2) copy_wait();
        /* The next load overwrites a stage that no warp may read any more. With two stages this also makes the
         * tile of this stage visible. */
        __syncthreads();
        if (left >= STAGES) {
            load_queries<tiles>(p, span, base, stage ^ (STAGES - 1), next_head, next_block * tiles::QUERIES);
            if (++next_block == range.begin + range.count) next_block = range.begin, next_head++;
            copy_commit();
        }
        if (STAGES == 1) {
            copy_wait();
            __syncthreads();
        }
        query_tile tile = {};
        tile.lane = lane_address<D>(queries + stage * tiles::STAGE);
        tile.lse = (const float *)(shared + tiles::ROWS) + stage * 2 * tiles::QUERIES;
        add_queries<tiles>(p, warp, span, tile, block * tiles::QUERIES);
        if (++block == range.begin + range.count) block = range.begin;
    }
    copy_wait(); /* k and v, when no query sees them */
    __syncthreads();
    /* The sums overwrite k, which is no longer read. */
    store_sums<tiles>(p, warp, span, kv_head, shared + index * (ROWS * tiles::COLUMNS * 2));
}

template <typename tiles> static void launch(const tt_attention_problem *problem, cudaStream_t stream)
{
    int64_t slots = tt_attention_slots(problem->rows_k, problem->sequences, tiles::KEYS);
    auto *kernel = problem->cap > 0 ? dkv_kernel<typename tiles::capped> : dkv_kernel<tiles>;
    tt_attention_launch(kernel, slots * problem->kv_heads, tiles::THREADS, tiles::TOTAL, problem, stream);
}

/* All variants but `wide` fit the 99 KiB of the smallest chips. */
void tt_attention_mma_dkv(const struct tt_attention_problem *problem, cudaStream_t stream)
{
    using wide = dkv_tiles<256, 64, 64, 2, 2, 4>;
    if (problem->head_dim <= 64)
        launch<dkv_tiles<64, 128, 32, 2, 2, 1>>(problem, stream);
    else if (problem->head_dim <= 128)
        launch<dkv_tiles<128, 64, 64, 2, 1, 1>>(problem, stream);
    else if (wide::TOTAL <= problem->max_shared)
        launch<wide>(problem, stream);
    else
        launch<dkv_tiles<256, 32, 32, 1, 2, 4>>(problem, stream);
}
