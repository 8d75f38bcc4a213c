/* Forward: one thread block per (block of query rows, head) visits the keys that its rows see and computes the
 * softmax online (arXiv 2205.14135). A warp owns whole rows, so scores become the left factor of P V in its
 * registers. */
#include "backend/cuda/attention/mma_softmax.h"

/* Scores are rescaled to a new maximum only when it exceeds the old one by this many powers of two: fp32 sums
 * and bf16 weights are as precise at 2^8, and most tiles then need no rescaling. */
#define SLACK_POWERS 8.0f

template <int M, int D>
static __device__ __forceinline__ void rows_finish(const tt_attention_problem &p, softmax_rows<M, D> &rows,
                                                   const block_span &span, int head, int first,
                                                   float scale_log2, unsigned char *stage)
{
    int lane = threadIdx.x % 32;
    float factor[M][2];
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
            float sum = rows.sum[m][h];
            sum += __shfl_xor_sync(0xffffffffu, sum, 1);
            sum += __shfl_xor_sync(0xffffffffu, sum, 2);
            factor[m][h] = 1.0f / sum;
            float lse = (rows.max[m][h] * scale_log2 + log2f(sum)) * TT_LN_2;
            if (p.sinks != NULL) {
                tt_attention_sunk sunk = tt_attention_sink(lse, p.sinks[head]);
                factor[m][h] *= sunk.factor;
                lse = sunk.lse;
            }
            int row = first + m * 16 + h * 8 + lane / 4;
            if (p.lse == NULL || lane % 4 != 0 || row >= span.length_q) continue;
            p.lse[head * p.lse_head + span.q0 + row] = lse;
        }
    store_rows<D, M>(rows.o, factor, stage, rows_of(p.o, span.q0, head), p.o.token, first, span.length_q,
                     p.head_dim);
}

template <int D, int ROWS, int KEYS, int WARPS_> struct forward_tiles {
    enum {
        Q = ROWS * D * 2,
        KEY = KEYS * D * 2,
        STAGE = 2 * KEY,
        TOTAL = Q + 2 * STAGE,
        WARPS = WARPS_,
        THREADS = WARPS * 32
    };
};

template <int D, int ROWS, int KEYS, int WARPS, bool CAPPED>
static __global__ void __launch_bounds__(WARPS * 32, 8 / WARPS)
    forward_kernel(const __grid_constant__ tt_attention_problem p)
{
    using tiles = forward_tiles<D, ROWS, KEYS, WARPS>;
    constexpr int M = ROWS / WARPS / 16, N = KEYS / 8;
    extern __shared__ __align__(1024) unsigned char shared[];
    /* The blocks with most keys run first. */
    int head = blockIdx.x % p.heads, slot = (gridDim.x - 1 - blockIdx.x) / p.heads;
    block_span span;
    if (!find_block<ROWS, false>(p, slot, &span)) return;

    const __nv_bfloat16 *q = rows_of(p.q, span.q0, head);
    const __nv_bfloat16 *k = rows_of(p.k, span.k0, head / p.group);
    const __nv_bfloat16 *v = rows_of(p.v, span.k0, head / p.group);
    int limit = min(span.first + ROWS, span.length_q) + span.offset; /* keys that some row sees */
    int tile = (limit - 1) / KEYS;
    int last_tile = p.window > 0 ? max(0, span.first + span.offset - p.window + 1) / KEYS : 0;
    uint32_t base = shared_address(shared), keys = base + tiles::Q;
    load_tile<ROWS, D, tiles::THREADS>(base, q, p.q.token, span.first, span.length_q, p.head_dim);
    load_tile<KEYS, D, tiles::THREADS>(keys, k, p.k.token, tile * KEYS, span.length_k, p.head_dim);
    load_tile<KEYS, D, tiles::THREADS>(keys + tiles::KEY, v, p.v.token, tile * KEYS, span.length_k,
                                       p.head_dim);
    copy_commit();

    int warp = threadIdx.x / 32, first = span.first + warp * (16 * M); /* first row of the warp */
    float scale_log2 = exponent_scale<CAPPED>(p), slack = SLACK_POWERS / scale_log2;
    softmax_rows<M, D> rows;
    clear(rows.o);
#pragma unroll
    for (int m = 0; m < M; m++) {
        rows.max[m][0] = rows.max[m][1] = -INFINITY;
        rows.sum[m][0] = rows.sum[m][1] = 0.0f;
    }
    uint32_t lane_q = lane_address<D>(base + warp * (16 * M * D * 2));
    for (int stage = 0; tile >= last_tile; tile--, stage ^= 1) {
        copy_wait();
        __syncthreads(); /* this tile is loaded, and the other stage is no longer read */
        if (tile > last_tile) {
            uint32_t to = keys + (stage ^ 1) * tiles::STAGE;
            load_tile<KEYS, D, tiles::THREADS>(to, k, p.k.token, (tile - 1) * KEYS, span.length_k,
                                               p.head_dim);
            load_tile<KEYS, D, tiles::THREADS>(to + tiles::KEY, v, p.v.token, (tile - 1) * KEYS,
                                               span.length_k, p.head_dim);
            copy_commit();
        }
        /* The warp's row r sees the tile's keys low + r <= key < high + r. */
        int high = first + span.offset + 1 - tile * KEYS;
        int low = p.window > 0 ? high - p.window : -(1 << 29);
        if (first >= span.length_q || high + 16 * M - 1 <= 0 || low >= KEYS) continue;
        uint32_t lane_k = lane_address<D>(keys + stage * tiles::STAGE);
        float s[M][N][4];
        multiply_tiles<D>(s, lane_q, lane_k);
        if (CAPPED) cap_scores(s, p);
        if (high < KEYS || low + 16 * M - 1 > 0) mask_band(s, low, high);
        rows_soften(rows, s, scale_log2, slack);
        multiply_add<D>(rows.o, s, lane_k + tiles::KEY);
    }
    if (first < span.length_q)
        rows_finish(p, rows, span, head, first, scale_log2, shared + warp * (16 * M * D * 2));
}

template <int D, int ROWS, int KEYS, int WARPS>
static void launch(const tt_attention_problem *problem, cudaStream_t stream)
{
    using tiles = forward_tiles<D, ROWS, KEYS, WARPS>;
    int64_t slots = tt_attention_slots(problem->rows_q, problem->sequences, ROWS);
    auto *kernel = problem->cap > 0 ? forward_kernel<D, ROWS, KEYS, WARPS, true>
                                    : forward_kernel<D, ROWS, KEYS, WARPS, false>;
    tt_attention_launch(kernel, slots * problem->heads, tiles::THREADS, tiles::TOTAL, problem, stream);
}

void tt_attention_mma_forward(const struct tt_attention_problem *problem, cudaStream_t stream)
{
    if (problem->head_dim <= 64)
        launch<64, 128, 64, 4>(problem, stream);
    else if (problem->head_dim <= 128)
        launch<128, 128, 32, 4>(problem, stream);
    else if (forward_tiles<256, 128, 64, 8>::TOTAL <= problem->max_shared)
        launch<256, 128, 64, 8>(problem, stream);
    else
        launch<256, 64, 32, 4>(problem, stream);
}
