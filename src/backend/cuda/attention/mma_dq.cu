/* Backward, dQ: one thread block per (block of query rows, head) visits the keys that its rows see, as the
 * forward pass does. Scores and weights are computed again from q, k and lse, so that no sum crosses blocks and
 * repeats are equal bit for bit:
 *     p = exp(scale q k^T - lse);   ds = p (do v^T - delta);   dq = scale ds k
 * Of capped scores, cap t with t = tanh(scale q k^T / cap), ds has the factor 1 - t^2. */
#include "backend/cuda/attention/mma_tiles.h"

/* delta[h, t] = sum over e of do o; LANES lanes compute a row, 8 columns each at a time. It is a kernel of its own:
 * computed by the blocks of dq for their rows it makes short sequences slower (H200, 2026-11-21, 64 x 256: 0.40 ms, not
 * 0.34). */
template <int LANES>
static __global__ void __launch_bounds__(256) delta_kernel(const __grid_constant__ tt_attention_problem p)
{
    int64_t index = (int64_t)blockIdx.x * (256 / LANES) + threadIdx.x / LANES;
    int64_t row = index / p.heads;
    int head = (int)(index % p.heads), lane = threadIdx.x % LANES;
    float sum = 0.0f;
    for (int column = lane * 8; row < p.rows_q && column < p.head_dim; column += LANES * 8) {
        uint4 a = *(const uint4 *)(rows_of(p.o, row, head) + column);
        uint4 b = *(const uint4 *)(rows_of(p.go, row, head) + column);
        const __nv_bfloat162 *pa = (const __nv_bfloat162 *)&a, *pb = (const __nv_bfloat162 *)&b;
#pragma unroll
        for (int i = 0; i < 4; i++) {
            float2 fa = __bfloat1622float2(pa[i]), fb = __bfloat1622float2(pb[i]);
            sum = fmaf(fa.x, fb.x, fmaf(fa.y, fb.y, sum));
        }
    }
#pragma unroll
    for (int step = LANES / 2; step > 0; step /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, step);
    if (row < p.rows_q && lane == 0) p.delta[head * p.rows_q + row] = sum;
}

void tt_attention_mma_delta(const struct tt_attention_problem *problem, cudaStream_t stream)
{
    int lanes = problem->head_dim <= 64 ? 8 : problem->head_dim <= 128 ? 16 : 32, rows = 256 / lanes;
    unsigned blocks = (unsigned)((problem->rows_q * problem->heads + rows - 1) / rows);
    if (lanes == 8)
        delta_kernel<8><<<blocks, 256, 0, stream>>>(*problem);
    else if (lanes == 16)
        delta_kernel<16><<<blocks, 256, 0, stream>>>(*problem);
    else
        delta_kernel<32><<<blocks, 256, 0, stream>>>(*problem);
}

template <int D, int ROWS, int KEYS, int STAGES, int WARPS_> struct dq_tiles {
    enum {
        ROW = ROWS * D * 2,
        KEY = KEYS * D * 2,
        STAGE = 2 * KEY,
        TOTAL = 2 * ROW + STAGES * STAGE,
        WARPS = WARPS_,
        THREADS = WARPS * 32
    };
};

/* Turns s and dp into ds. */
template <bool CAPPED, int M, int N>
static __device__ __forceinline__ void rows_differentiate(float (&s)[M][N][4], const float (&dp)[M][N][4],
                                                          float scale_log2, const float (&lse_log2)[M][2],
                                                          const float (&delta)[M][2])
{
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int n = 0; n < N; n++)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                float weight = exp2_fast(fmaf(s[m][n][i], scale_log2, -lse_log2[m][i / 2]));
                float t = s[m][n][i];
                s[m][n][i] = weight * (dp[m][n][i] - delta[m][i / 2]);
                if (CAPPED) s[m][n][i] *= slope_of(t);
            }
}

template <int D, int ROWS, int KEYS, int STAGES, int WARPS, bool CAPPED>
static __global__ void __launch_bounds__(WARPS * 32, 8 / WARPS)
    dq_kernel(const __grid_constant__ tt_attention_problem p)
{
    using tiles = dq_tiles<D, ROWS, KEYS, STAGES, WARPS>;
    constexpr int M = ROWS / WARPS / 16, N = KEYS / 8, THREADS = tiles::THREADS;
    extern __shared__ __align__(1024) unsigned char shared[];
    /* The blocks with most keys run first. */
    int head = blockIdx.x % p.heads, slot = (gridDim.x - 1 - blockIdx.x) / p.heads;
    block_span span;
    if (!find_block<ROWS, false>(p, slot, &span)) return;

    const __nv_bfloat16 *k = rows_of(p.k, span.k0, head / p.group);
    const __nv_bfloat16 *v = rows_of(p.v, span.k0, head / p.group);
    int limit = min(span.first + ROWS, span.length_q) + span.offset; /* keys that some row sees */
    int tile = (limit - 1) / KEYS;
    int last_tile = p.window > 0 ? max(0, span.first + span.offset - p.window + 1) / KEYS : 0;
    uint32_t base = shared_address(shared), keys = base + 2 * tiles::ROW;
    load_tile<ROWS, D, THREADS>(base, rows_of(p.q, span.q0, head), p.q.token, span.first, span.length_q,
                                p.head_dim);
    load_tile<ROWS, D, THREADS>(base + tiles::ROW, rows_of(p.go, span.q0, head), p.go.token, span.first,
                                span.length_q, p.head_dim);
    if (STAGES == 2) {
        load_tile<KEYS, D, THREADS>(keys, k, p.k.token, tile * KEYS, span.length_k, p.head_dim);
        load_tile<KEYS, D, THREADS>(keys + tiles::KEY, v, p.v.token, tile * KEYS, span.length_k, p.head_dim);
    }
    copy_commit();

    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    int first = span.first + warp * (16 * M); /* first row of the warp */
    float scale_log2 = exponent_scale<CAPPED>(p);
    float lse_log2[M][2], delta[M][2], dq[M][D / 8][4];
    clear(dq);
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
            int row = first + m * 16 + h * 8 + lane / 4;
            bool inside = row < span.length_q;
            lse_log2[m][h] = inside ? p.lse[head * p.lse_head + span.q0 + row] * TT_LOG2_E : 0.0f;
            delta[m][h] = inside ? p.delta[head * p.rows_q + span.q0 + row] : 0.0f;
        }
    uint32_t lane_q = lane_address<D>(base + warp * (16 * M * D * 2)), lane_go = lane_q + tiles::ROW;
    for (int stage = 0; tile >= last_tile; tile--, stage ^= STAGES - 1) {
        int next = tile + 1 - STAGES;
        if (STAGES == 2) copy_wait();
        /* The next load overwrites a stage that no warp may read any more. With two stages this also makes the
         * tile of this stage visible. */
        __syncthreads();
        if (next >= last_tile) {
            uint32_t to = keys + (stage ^ (STAGES - 1)) * tiles::STAGE;
            load_tile<KEYS, D, THREADS>(to, k, p.k.token, next * KEYS, span.length_k, p.head_dim);
            load_tile<KEYS, D, THREADS>(to + tiles::KEY, v, p.v.token, next * KEYS, span.length_k,
                                        p.head_dim);
            copy_commit();
        }
        if (STAGES == 1) {
            copy_wait();
            __syncthreads();
        }
        /* The warp's row r sees the tile's keys low + r <= key < high + r. */
        int high = first + span.offset + 1 - tile * KEYS;
        int low = p.window > 0 ? high - p.window : -(1 << 29);
        if (first >= span.length_q || high + 16 * M - 1 <= 0 || low >= KEYS) continue;
        uint32_t lane_k = lane_address<D>(keys + stage * tiles::STAGE);
        float s[M][N][4], dp[M][N][4];
        multiply_tiles<D>(s, lane_q, lane_k);
        if (CAPPED) cap_scores(s, p);
        multiply_tiles<D>(dp, lane_go, lane_k + tiles::KEY);
        if (high < KEYS || low + 16 * M - 1 > 0) mask_band(s, low, high);
        rows_differentiate<CAPPED>(s, dp, scale_log2, lse_log2, delta);
        multiply_add<D>(dq, s, lane_k);
    }
    if (first >= span.length_q) return;
    float factor[M][2];
#pragma unroll
    for (int m = 0; m < M; m++) factor[m][0] = factor[m][1] = p.scale;
    store_rows<D, M>(dq, factor, shared + warp * (16 * M * D * 2), rows_of(p.gq, span.q0, head), p.gq.token,
                     first, span.length_q, p.head_dim);
}

template <int D, int ROWS, int KEYS, int STAGES, int WARPS>
static void launch(const tt_attention_problem *problem, cudaStream_t stream)
{
    using tiles = dq_tiles<D, ROWS, KEYS, STAGES, WARPS>;
    int64_t slots = tt_attention_slots(problem->rows_q, problem->sequences, ROWS);
    auto *kernel = problem->cap > 0 ? dq_kernel<D, ROWS, KEYS, STAGES, WARPS, true>
                                    : dq_kernel<D, ROWS, KEYS, STAGES, WARPS, false>;
    tt_attention_launch(kernel, slots * problem->heads, tiles::THREADS, tiles::TOTAL, problem, stream);
}

/* All variants fit the 99 KiB of the smallest chips. */
void tt_attention_mma_dq(const struct tt_attention_problem *problem, cudaStream_t stream)
{
    if (problem->head_dim <= 64)
        launch<64, 128, 64, 2, 4>(problem, stream);
    else if (problem->head_dim <= 128)
        launch<128, 128, 32, 2, 4>(problem, stream);
    else
        launch<256, 64, 32, 1, 4>(problem, stream);
}
