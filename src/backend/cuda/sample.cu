/* The choice of tokens: one thread block for each row of logits, which it reads once for the largest logit, and where
 * a token is drawn about four times more: counts of distances by their upper bits, counts of the lower bits in each
 * bin where a border falls, and the search for the token. Counts and sums are integers, so atomics give the same
 * result in any order. Nothing is sorted. */
#include "backend/cuda/cuda.h"
#include "backend/ops/sample.h"

enum {
    THREADS = 1024,
    LOADS = 8, /* of a thread at a time */
    FINE_BITS = 13,
    FINE = 1 << FINE_BITS,
    COARSE = 2048, /* at least (TT_SAMPLE_DISTANCE_MAX >> FINE_BITS) + 1 */
};
static_assert((TT_SAMPLE_DISTANCE_MAX >> FINE_BITS) < COARSE && COARSE % THREADS == 0, "bins of all distances");

typedef unsigned long long wide;

struct sample_shared {
    wide sums[COARSE];
    uint32_t counts[COARSE];
    uint32_t fine[FINE];
    wide warp[THREADS / 32];
    wide found_before, found_weight;
    int found, warp_count[THREADS / 32];
};

struct sample_row {
    const float *logits;
    int vocab;
    float top, steps_per_logit;
    int fine_bin;
};

/* Calls body(id, logit) for every token; a thread always gets the same ones. */
template <typename Body>
static __device__ __forceinline__ void each_logit(const float *logits, int vocab, Body body)
{
    for (int first = threadIdx.x; first < vocab; first += LOADS * THREADS) {
        float loaded[LOADS];
#pragma unroll
        for (int i = 0; i < LOADS; i++)
            if (first + i * THREADS < vocab) loaded[i] = logits[first + i * THREADS];
#pragma unroll
        for (int i = 0; i < LOADS; i++)
            if (first + i * THREADS < vocab) body(first + i * THREADS, loaded[i]);
    }
}

/* Ascends with the logit, then descends with the id. Zeros of both signs are equal, and NaN is like -infinity. */
static __device__ __forceinline__ wide key_of(float logit, int id)
{
    if (!(logit >= -INFINITY)) logit = -INFINITY;
    uint32_t bits = __float_as_uint(logit + 0.0f);
    bits ^= (bits >> 31) != 0 ? 0xffffffffu : 0x80000000u;
    return (wide)bits << 32 | (uint32_t)~id;
}

static __device__ wide block_max(sample_shared &shared, wide value)
{
    for (int offset = 16; offset > 0; offset /= 2) {
        wide other = __shfl_xor_sync(0xffffffffu, value, offset);
        value = other > value ? other : value;
    }
    if (threadIdx.x % 32 == 0) shared.warp[threadIdx.x / 32] = value;
    __syncthreads();
    for (int i = 0; i < THREADS / 32; i++) value = shared.warp[i] > value ? shared.warp[i] : value;
    __syncthreads();
    return value;
}

/* The sum over the threads before this one; *total: over all. */
static __device__ wide block_scan(sample_shared &shared, wide value, wide *total)
{
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    wide sum = value, before = 0, all = 0;
    for (int offset = 1; offset < 32; offset *= 2) {
        wide other = __shfl_up_sync(0xffffffffu, sum, offset);
        if (lane >= offset) sum += other;
    }
    if (lane == 31) shared.warp[warp] = sum;
    __syncthreads();
    for (int i = 0; i < THREADS / 32; i++) {
        if (i < warp) before += shared.warp[i];
        all += shared.warp[i];
    }
    __syncthreads();
    *total = all;
    return before + sum - value;
}

static __device__ void count_coarse(sample_shared &shared, sample_row &row)
{
    for (int i = threadIdx.x; i < COARSE; i += THREADS) shared.sums[i] = shared.counts[i] = 0;
    row.fine_bin = -1;
    __syncthreads();
    each_logit(row.logits, row.vocab, [&](int, float logit) {
        int distance = tt_sample_distance(logit, row.top, row.steps_per_logit);
        if (distance < 0) return;
        atomicAdd(&shared.sums[distance >> FINE_BITS], (wide)tt_sample_weight(distance));
        atomicAdd(&shared.counts[distance >> FINE_BITS], 1u);
    });
    __syncthreads();
}

static __device__ void count_fine(sample_shared &shared, sample_row &row, int bin)
{
    if (row.fine_bin == bin) return;
    row.fine_bin = bin;
    for (int i = threadIdx.x; i < FINE; i += THREADS) shared.fine[i] = 0;
    __syncthreads();
    each_logit(row.logits, row.vocab, [&](int, float logit) {
        int distance = tt_sample_distance(logit, row.top, row.steps_per_logit);
        if (distance >= 0 && distance >> FINE_BITS == bin) atomicAdd(&shared.fine[distance & (FINE - 1)], 1u);
    });
    __syncthreads();
}

/* `values` [count] in the order of the threads: finds the one in which `place` lies, shared.found, after
 * shared.found_before; count is a multiple of THREADS. */
template <typename Value>
static __device__ void find_in(sample_shared &shared, int count, wide before, wide place, Value value)
{
    int each = count / THREADS, first = threadIdx.x * each;
    wide sum = 0, total;
    for (int i = 0; i < each; i++) sum += value(first + i);
    wide at = before + block_scan(shared, sum, &total);
    if (at <= place && place < at + sum) {
        int i = first;
        for (wide next; (next = at + value(i)) <= place; i++) at = next;
        shared.found = i;
        shared.found_before = at;
    }
    __syncthreads();
}

/* The distance of the token in which the `place`-th unit of weight lies, and the weight before tokens of it. */
static __device__ int find_place(sample_shared &shared, sample_row &row, wide place, wide *before)
{
    find_in(shared, COARSE, 0, place, [&](int bin) { return shared.sums[bin]; });
    int bin = shared.found;
    wide start = shared.found_before;
    __syncthreads();
    count_fine(shared, row, bin);
    find_in(shared, FINE, start, place, [&](int fine) {
        uint32_t here = shared.fine[fine];
        return here > 0 ? (wide)here * tt_sample_weight(bin << FINE_BITS | fine) : 0;
    });
    int distance = bin << FINE_BITS | shared.found;
    *before = shared.found_before;
    __syncthreads();
    return distance;
}

/* The weight of the tokens in bins below `bin`, and of those in it whose lower bits are below `end`. */
static __device__ wide sum_below(sample_shared &shared, int bin, int end)
{
    wide sum = 0, total;
    for (int i = threadIdx.x; i < bin; i += THREADS) sum += shared.sums[i];
    for (int i = threadIdx.x; i < end; i += THREADS)
        if (shared.fine[i] > 0) sum += (wide)shared.fine[i] * tt_sample_weight(bin << FINE_BITS | i);
    block_scan(shared, sum, &total);
    return total;
}

/* The weight of the first `count` tokens, of which there are more. */
static __device__ wide sum_of_first(sample_shared &shared, sample_row &row, wide count)
{
    find_in(shared, COARSE, 0, count, [&](int bin) { return (wide)shared.counts[bin]; });
    int bin = shared.found;
    wide start = shared.found_before;
    __syncthreads();
    count_fine(shared, row, bin);
    find_in(shared, FINE, start, count, [&](int fine) { return (wide)shared.fine[fine]; });
    int fine = shared.found;
    wide rest = count - shared.found_before;
    __syncthreads();
    return sum_below(shared, bin, fine) + rest * tt_sample_weight(bin << FINE_BITS | fine);
}

/* The weight that the rules leave: each leaves the first tokens, up to its own border. */
static __device__ wide sum_kept(sample_shared &shared, sample_row &row, const tt_sample_rule &rule)
{
    wide sum = 0, count = 0, kept, counted, before;
    for (int i = threadIdx.x; i < COARSE; i += THREADS) {
        sum += shared.sums[i];
        count += shared.counts[i];
    }
    block_scan(shared, sum, &kept);
    block_scan(shared, count, &counted);
    if (rule.top_k > 0 && (wide)rule.top_k < counted) kept = sum_of_first(shared, row, (wide)rule.top_k);
    if (rule.top_p < 1) {
        wide least = tt_sample_least(rule.top_p, kept);
        wide weight = tt_sample_weight(find_place(shared, row, least - 1, &before));
        kept = before + (least - before + weight - 1) / weight * weight;
    }
    if (rule.distance_max < TT_SAMPLE_DISTANCE_MAX) {
        int bin = rule.distance_max >> FINE_BITS;
        count_fine(shared, row, bin);
        wide likely = sum_below(shared, bin, (rule.distance_max & (FINE - 1)) + 1);
        kept = likely < kept ? likely : kept;
    }
    return kept;
}

/* The id of token number `skipped` of this distance. */
static __device__ int find_token(sample_shared &shared, const sample_row &row, int distance, wide skipped)
{
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    for (int first = 0; first < row.vocab; first += THREADS) {
        int id = first + threadIdx.x;
        bool is = id < row.vocab &&
                  tt_sample_distance(row.logits[id], row.top, row.steps_per_logit) == distance;
        int count = __syncthreads_count(is);
        if (skipped >= (wide)count) {
            skipped -= (wide)count;
            continue;
        }
        unsigned here = __ballot_sync(0xffffffffu, is);
        if (lane == 0) shared.warp_count[warp] = __popc(here);
        __syncthreads();
        int place = __popc(here & ((1u << lane) - 1));
        for (int i = 0; i < warp; i++) place += shared.warp_count[i];
        if (is && (wide)place == skipped) shared.found = id;
        __syncthreads();
        return shared.found;
    }
    return 0;
}

static __device__ int draw(sample_shared &shared, sample_row &row, const tt_sample_rule &rule)
{
    wide before;
    count_coarse(shared, row);
    wide place = tt_sample_place(rule.uniform, sum_kept(shared, row, rule));
    int distance = find_place(shared, row, place, &before);
    return find_token(shared, row, distance, (place - before) / tt_sample_weight(distance));
}

static __global__ void __launch_bounds__(THREADS)
    sample_kernel(float *all, int64_t stride, int vocab, const tt_sample_rule *rules, uint32_t *all_seen,
                  int64_t seen_stride, const uint32_t *all_masks, int64_t mask_stride, int32_t *ids)
{
    extern __shared__ char memory[];
    sample_shared &shared = *reinterpret_cast<sample_shared *>(memory);
    const tt_sample_rule rule = rules[blockIdx.x];
    float *logits = all + blockIdx.x * stride;
    uint32_t *seen =
        all_seen != NULL && rule.seen_row >= 0 ? all_seen + rule.seen_row * seen_stride : NULL;
    const uint32_t *mask =
        all_masks != NULL && rule.mask > 0 ? all_masks + (rule.mask - 1) * mask_stride : NULL;
    wide best = 0;
    each_logit(logits, vocab, [&](int id, float logit) {
        if (mask != NULL && (mask[id / 32] >> (id % 32) & 1) == 0) {
            logit = -INFINITY;
            logits[id] = logit;
        }
        if (seen != NULL && (seen[id / 32] >> (id % 32) & 1) != 0) {
            logit = tt_sample_penalized(logit, rule.penalty);
            logits[id] = logit;
        }
        wide key = key_of(logit, id);
        best = key > best ? key : best;
    });
    best = block_max(shared, best);
    int id = (int)~(uint32_t)best;
    float top = logits[id];
    if (rule.draws != 0 && isfinite(top)) {
        sample_row row = {logits, vocab, top, rule.steps_per_logit, -1};
        id = draw(shared, row, rule);
    }
    if (threadIdx.x != 0) return;
    ids[blockIdx.x] = id;
    if (seen != NULL) seen[id / 32] |= 1u << (id % 32);
}

extern "C" tt_status tt_cuda_sample(struct tt_stream *stream, const struct tt_sample_args *args)
{
    int64_t rows = args->logits_NV.dims[0];
    if (rows == 0) return TT_OK;
    bool any_seen = args->seen_SW.dtype != TT_DTYPE_NONE, any_mask = args->masks_SW.dtype != TT_DTYPE_NONE;
    TT_TRY(tt_cuda_check(cudaFuncSetAttribute(sample_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                              (int)sizeof(sample_shared)),
                         stream, "sample"));
    sample_kernel<<<(unsigned)rows, THREADS, sizeof(sample_shared), tt_cuda_handle(stream)>>>(
        (float *)args->logits_NV.data, args->logits_NV.strides[0], (int)args->logits_NV.dims[1],
        (const tt_sample_rule *)args->rules_N.data, any_seen ? (uint32_t *)args->seen_SW.data : NULL,
        any_seen ? args->seen_SW.strides[0] : 0, any_mask ? (const uint32_t *)args->masks_SW.data : NULL,
        any_mask ? args->masks_SW.strides[0] : 0, (int32_t *)args->ids_N.data);
    return tt_cuda_launched(stream, "sample", &args->logits_NV);
}
