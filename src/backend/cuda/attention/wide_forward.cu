#include "backend/cuda/attention/wide.cuh"

namespace
{

enum { KEYS = 64, SLOT = 32 * COLUMNS }; /* elements of half a tile */

/* Two slots have the columns 0 .. 255 and 256 .. 511 of k's tile, two the rows 0 .. 31 and 32 .. 63 of v's. */
struct shared {
    bf16 rows[ROWS * COLUMNS];
    bf16 slots[4][SLOT];
    bf16 weights[ROWS * KEYS];
    float parts[2][ROWS]; /* of a row: each group's maximum, then its sum */
    uint64_t rows_full, full[4], empty[4];
};

#if defined(TT_HOPPER)

TT_DEVICE void load(const tt_wide_params &params, shared &s, const block_span &span, tile_range range,
                    int head)
{
    const tt_attention_problem &p = params.problem;
    int kv_head = head / p.group;
    load_rows<ROWS, 8>(s.rows, &params.q, &s.rows_full, 0, head, span.q0 + span.first);
    for (int i = 0; i < range.count; i++) {
        int row = span.k0 + (range.begin + range.count - 1 - i) * KEYS;
        uint32_t free = ~i & 1;
        for (int h = 0; h < 2; h++) {
            barrier_wait(&s.empty[h], free);
            load_rows<ROWS, 4>(s.slots[h], &params.k, &s.full[h], h * 256, kv_head, row);
        }
        for (int h = 0; h < 2; h++) {
            barrier_wait(&s.empty[2 + h], free);
            load_rows<32, 8>(s.slots[2 + h], &params.v, &s.full[2 + h], 0, kv_head, row + h * 32);
        }
    }
}

/* The softmax of a thread's two rows. */
struct softmax {
    float max[2], sum[2]; /* maximum so far, in raw scores; this thread's part of the sum */
    float scale;          /* of scores in exponents of 2 */
    float slack;          /* what a maximum may be exceeded by, as in mma_forward.cu */
};

/* The scores of the group's half of the keys. */
template <bool CAPPED>
TT_DEVICE void compute_scores(const tt_attention_problem &p, shared &s, float (&scores)[16], uint32_t phase,
                              const band &seen)
{
    int group = threadIdx.x / GROUP, thread = threadIdx.x % GROUP;
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
    if (CAPPED) {
        float factor = cap_factor(p);
#pragma unroll
        for (int i = 0; i < 16; i++) scores[i] = capped(scores[i], factor);
    }
    if (seen.is_whole(KEYS)) return;
    int row = thread / 32 * 16 + thread % 32 / 4, column = group * 32 + thread % 4 * 2;
#pragma unroll
    for (int i = 0; i < 16; i++)
        if (!seen.sees(row + i / 2 % 2 * 8, column + i / 4 * 8 + i % 2)) scores[i] = -INFINITY;
}

/* Turns scores into weights, with the maxima of both groups, and stores them. */
TT_DEVICE void soften(shared &s, softmax &soft, float (&scores)[16], float (&sums)[128])
{
    int group = threadIdx.x / GROUP, thread = threadIdx.x % GROUP, row = thread / 32 * 16 + thread % 32 / 4;
    float top[2];
    bool exceeds = false;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        top[h] = fmaxf(scores[2 * h], scores[2 * h + 1]);
#pragma unroll
        for (int i = 4; i < 16; i += 4)
            top[h] = fmaxf(top[h], fmaxf(scores[i + 2 * h], scores[i + 2 * h + 1]));
        top[h] = fmaxf(top[h], __shfl_xor_sync(0xffffffffu, top[h], 1));
        top[h] = fmaxf(top[h], __shfl_xor_sync(0xffffffffu, top[h], 2));
        if (thread % 4 == 0) s.parts[group][row + 8 * h] = top[h];
    }
    groups_sync();
#pragma unroll
    for (int h = 0; h < 2; h++) {
        top[h] = fmaxf(top[h], s.parts[group ^ 1][row + 8 * h]);
        exceeds |= top[h] > soft.max[h] + soft.slack;
    }
    if (__any_sync(0xffffffffu, exceeds)) {
#pragma unroll
        for (int h = 0; h < 2; h++) {
            float next = fmaxf(top[h], soft.max[h]);
            float factor = next == -INFINITY ? 1.0f : exp2_fast((soft.max[h] - next) * soft.scale);
            soft.max[h] = next;
            soft.sum[h] *= factor;
#pragma unroll
            for (int i = 0; i < 128; i += 4) {
                sums[i + 2 * h] *= factor;
                sums[i + 2 * h + 1] *= factor;
            }
        }
    }
#pragma unroll
    for (int h = 0; h < 2; h++) {
        float reference = soft.max[h] == -INFINITY ? 0.0f : soft.max[h] * soft.scale, sum = 0.0f;
#pragma unroll
        for (int i = 2 * h; i < 16; i += 4)
#pragma unroll
            for (int j = i; j < i + 2; j++) {
                scores[j] = exp2_fast(fmaf(scores[j], soft.scale, -reference));
                sum += scores[j];
            }
        soft.sum[h] += sum;
    }
    store_weights(s.weights, group * 4, scores);
    store_weights(s.weights, group * 4 + 2, scores + 8);
}

/* sums += weights v, the group's columns. `count`: keys of the tile that the sequence has. */
TT_DEVICE void add_values(shared &s, float (&sums)[128], uint32_t phase, int count)
{
    int columns = threadIdx.x / GROUP * 4 * BOX;
    for (int h = 0; h < 2 && count < KEYS; h++) {
        barrier_wait(&s.full[2 + h], phase);
        clear_rows(s.slots[2 + h] + columns, count - h * 32);
    }
    stores_before_copies();
    groups_sync();
    for (int h = 0; h < 2; h++) {
        barrier_wait(&s.full[2 + h], phase);
        wgmma_fence();
        multiply_sums(sums, s.weights, h * 32, s.slots[2 + h] + columns);
        wgmma_commit();
    }
    wgmma_wait<1>();
    release(&s.empty[2]);
    wgmma_wait<0>();
    wgmma_results(sums);
    release(&s.empty[3]);
}

TT_DEVICE void finish(const tt_attention_problem &p, shared &s, const softmax &soft, const float (&sums)[128],
                      const block_span &span, int head)
{
    int group = threadIdx.x / GROUP, warp = threadIdx.x % GROUP / 32, lane = threadIdx.x % 32;
    int row = warp * 16 + lane / 4;
    float factor[2];
#pragma unroll
    for (int h = 0; h < 2; h++) {
        float sum = soft.sum[h];
        sum += __shfl_xor_sync(0xffffffffu, sum, 1);
        sum += __shfl_xor_sync(0xffffffffu, sum, 2);
        if (lane % 4 == 0) s.parts[group][row + 8 * h] = sum;
    }
    groups_sync();
#pragma unroll
    for (int h = 0; h < 2; h++) {
        float sum = s.parts[0][row + 8 * h] + s.parts[1][row + 8 * h];
        int at = span.first + row + 8 * h;
        factor[h] = 1.0f / sum;
        if (p.lse == NULL || group != 0 || lane % 4 != 0 || at >= span.length_q) continue;
        p.lse[head * p.lse_head + span.q0 + at] = (soft.max[h] * soft.scale + log2f(sum)) * TT_LN_2;
    }
    store_sums(sums, factor, s.rows + (group * 4 + warp) * (16 * 256), rows_of(p.o, span.q0, head), p.o.token,
               span.first + warp * 16, span.length_q, p.head_dim);
}

template <bool CAPPED>
TT_DEVICE void multiply(const tt_attention_problem &p, shared &s, const block_span &span, tile_range range,
                        int head)
{
    float sums[128], scale = exponent_scale<CAPPED>(p);
    softmax soft = {{-INFINITY, -INFINITY}, {0.0f, 0.0f}, scale, 8.0f / scale};
    clear_sums(sums);
    barrier_wait(&s.rows_full, 0);
    for (int i = 0; i < range.count; i++) {
        int key = (range.begin + range.count - 1 - i) * KEYS;
        band seen = band_of_keys(p, span, key);
        float scores[16];
        compute_scores<CAPPED>(p, s, scores, i & 1, seen);
        soften(s, soft, scores, sums);
        add_values(s, sums, i & 1, seen.count);
    }
    finish(p, s, soft, sums, span, head);
}

#endif

template <bool CAPPED>
__global__ void __launch_bounds__(THREADS, 1) wide_forward(const __grid_constant__ tt_wide_params params)
{
#if defined(TT_HOPPER)
    extern __shared__ __align__(1024) unsigned char bytes[];
    shared &s = *reinterpret_cast<shared *>(bytes);
    const tt_attention_problem &p = params.problem;
    /* The blocks with most keys run first. */
    int head = blockIdx.x % p.heads, slot = (gridDim.x - 1 - blockIdx.x) / p.heads;
    block_span span;
    if (!find_block<ROWS, false>(p, slot, &span)) return;
    tile_range range = keys_seen<KEYS>(p, span);
    if (threadIdx.x == 0) {
        barrier_init(&s.rows_full, 1);
        for (int i = 0; i < 4; i++) barrier_init(&s.full[i], 1), barrier_init(&s.empty[i], 2);
        barriers_are_ready();
    }
    run_roles([&] { load(params, s, span, range, head); },
              [&] { multiply<CAPPED>(p, s, span, range, head); });
#endif
}

} // namespace

bool tt_attention_wide_is_built(void)
{
    return has_registers(wide_forward<false>, THREADS, (LOADER_REGISTERS + 2 * PRODUCT_REGISTERS) * GROUP);
}

void tt_attention_wide_launch_forward(const tt_wide_params *params, cudaStream_t stream)
{
    const tt_attention_problem *p = &params->problem;
    launch(p->cap > 0 ? wide_forward<true> : wide_forward<false>,
           tt_attention_slots(p->rows_q, p->sequences, ROWS) * p->heads, sizeof(shared), params, stream);
}
