#include <float.h>
#include <math.h>

#include "backend/cuda/device_math.cuh"
#include "backend/cuda/fast_math.cuh"

/* One thread block per row. All logits are read once to find the largest, its index, the sum of exp(logit -
 * largest so far), and for the entropy the sum of (logit - largest) times that. As many logits as fit stay in
 * shared memory, so that the gradient need not load them again. The rest of the row comes from the second-level
 * cache, which holds the rows in progress. */

namespace
{

constexpr int THREADS_MAX = 1024, BATCH = 4; /* vectors that a thread has in flight */

struct entropy {
    void *logits;
    int64_t stride, words;
    const int32_t *labels;
    float *loss;
    int32_t *correct;       /* NULL: not computed */
    float *row_entropy;     /* NULL: not computed */
    float *row_mean;        /* NULL: not computed */
    const float *row_scale; /* of the gradient; NULL: grad_scale for all rows */
    float grad_scale, smoothing;
    bool gradient;
    int held; /* vectors of a row that fit into shared memory */
};

/* e^x. Logits in bf16 use the hardware's power of two, whose subnormal results are 0. */
__device__ __forceinline__ float exponential(float x, bf16)
{
    return exp_fast(x);
}

__device__ __forceinline__ float exponential(float x, float)
{
    return expf(x);
}

__device__ __forceinline__ float largest_of(const vec<float, 4> &v)
{
    float x[4];
    widen(v, x);
    return fmaxf(fmaxf(x[0], x[1]), fmaxf(x[2], x[3]));
}

__device__ __forceinline__ uint32_t max_of_pairs(uint32_t a, uint32_t b)
{
    uint32_t c;
    asm("max.bf16x2 %0, %1, %2;" : "=r"(c) : "r"(a), "r"(b));
    return c;
}

__device__ __forceinline__ float largest_of(const vec<bf16, 8> &v)
{
    vec<bf16, 2> pair;
    pair.word[0] = max_of_pairs(max_of_pairs(v.word[0], v.word[1]), max_of_pairs(v.word[2], v.word[3]));
    float x[2];
    widen(pair, x);
    return fmaxf(x[0], x[1]);
}

/* A logit as it is, or capped (backend/ops/cross_entropy.h). tanhf instead of the hardware's tanh, whose error of 2^-11
 * would be as large as the rounding of the logits to bf16. */
struct uncapped {
    __device__ __forceinline__ float operator()(float x) const
    {
        return x;
    }
    __device__ __forceinline__ float slope(float) const
    {
        return 1.0f;
    }
};

struct capped {
    float cap;
    /* Rounded as a product: contracted into a following difference, equal logits would not cancel. */
    __device__ __forceinline__ float operator()(float x) const
    {
        return __fmul_rn(cap, tanhf(x / cap));
    }
    /* 1 - tanh^2, without a difference of almost equal numbers */
    __device__ __forceinline__ float slope(float x) const
    {
        float e = expf(-2.0f * fabsf(x / cap)), f = 1.0f + e;
        return 4.0f * e / (f * f);
    }
};

/* The values of the logits read so far. `largest` is not capped and starts as the smallest finite number, so that a
 * word whose logit is -inf does not make a NaN. */
struct tally {
    float largest, exp_sum, weighted, sum;
    int32_t index; /* of the first word of the first vector that has the largest */
};

constexpr int32_t NOWHERE = 0x7fffffff;
/* exp of this is 0: smaller differences add 0 to `weighted`, so that -inf does not make 0 times infinity. */
constexpr float NOTHING = -128.0f;

/* Changes the reference to `top`, which is at least the largest logit so far. */
template <typename T, typename C>
__device__ __forceinline__ void measure_from(struct tally &tally, float top, C cap)
{
    float down = cap(tally.largest) - cap(top), scale = exponential(down, T{});
    tally.weighted = (tally.weighted + tally.exp_sum * fmaxf(down, NOTHING)) * scale;
    tally.exp_sum *= scale;
    tally.largest = top;
}

/* `first` is the index of the vector's first word; a thread reads its vectors in rising order. */
template <typename T, bool SUM, typename C, int W>
__device__ __forceinline__ void count(struct tally &tally, const vec<T, W> &v, int32_t first, C cap)
{
    float top = largest_of(v), x[W];
    if (top > tally.largest) {
        measure_from<T>(tally, top, cap);
        tally.index = first;
    }
    widen(v, x);
#pragma unroll
    for (int i = 0; i < W; i++) x[i] = cap(x[i]);
    if (SUM) {
#pragma unroll
        for (int i = 0; i < W; i++) tally.sum += x[i];
    }
    float weighted = 0.0f, largest = cap(tally.largest);
#pragma unroll
    for (int i = 0; i < W; i++) {
        float down = x[i] - largest;
        x[i] = exponential(down, T{});
        weighted = fmaf(x[i], fmaxf(down, NOTHING), weighted);
    }
#pragma unroll
    for (int half = W / 2; half > 0; half /= 2)
#pragma unroll
        for (int i = 0; i < half; i++) x[i] += x[i + half];
    tally.exp_sum += x[0];
    tally.weighted += weighted;
}

template <typename T, typename C>
__device__ __forceinline__ void count_lone(struct tally &tally, float x, int32_t word, C cap)
{
    if (x > tally.largest) {
        measure_from<T>(tally, x, cap);
        tally.index = word;
    } else if (x == tally.largest && word < tally.index) {
        tally.index = word;
    }
    float value = cap(x), down = value - cap(tally.largest), e = exponential(down, T{});
    tally.exp_sum += e;
    tally.weighted += e * fmaxf(down, NOTHING);
    tally.sum += value;
}

/* Maps the bits of a float to an integer of the same order, and back. */
__device__ __forceinline__ int ordered(int bits)
{
    return bits ^ (bits >> 31 & 0x7fffffff);
}

template <typename T, bool SUM, typename C>
__device__ __forceinline__ void join_warp(struct tally &own, C cap)
{
    int key = __reduce_max_sync(0xffffffffu, ordered(__float_as_int(own.largest)));
    float top = __int_as_float(ordered(key));
    own.index =
        (int)__reduce_min_sync(0xffffffffu, own.largest == top ? (unsigned)own.index : (unsigned)NOWHERE);
    measure_from<T>(own, top, cap);
    own.exp_sum = lanes_sum(own.exp_sum, 32);
    own.weighted = lanes_sum(own.weighted, 32);
    if (SUM) own.sum = lanes_sum(own.sum, 32);
}

template <typename T, bool SUM, typename C>
__device__ __forceinline__ struct tally join_block(struct tally own, struct tally (&partial)[32], C cap)
{
    unsigned lane = threadIdx.x % 32;
    join_warp<T, SUM>(own, cap);
    if (lane == 0) partial[threadIdx.x / 32] = own;
    __syncthreads();
    struct tally none = {-FLT_MAX, 0.0f, 0.0f, 0.0f, NOWHERE};
    own = lane < blockDim.x / 32 ? partial[lane] : none;
    join_warp<T, SUM>(own, cap);
    return own;
}

/* The vectors of 16 bytes in a row: `lead` words come before them, fewer than a vector's after them, and one
 * thread handles each of those words. */
struct split {
    int lead, vectors;
    int64_t lone; /* this thread's word outside the vectors; -1: none */
};

template <typename T> __device__ __forceinline__ struct split split_row(const T *row, int64_t words)
{
    constexpr int W = wide<T>();
    struct split s;
    s.lead = (int)((16 - (uintptr_t)row % 16) % 16 / sizeof(T));
    if (s.lead > words) s.lead = (int)words;
    s.vectors = (int)((words - s.lead) / W);
    int thread = (int)threadIdx.x, tail = (int)(words - s.lead - (int64_t)s.vectors * W);
    s.lone = thread < s.lead ? thread : thread - s.lead < tail ? (int64_t)s.vectors * W + thread : -1;
    return s;
}

/* The label's logit, and the largest of the words before it in its vector: the label loses a tie with those. */
struct label_place {
    float logit, before;
    int64_t first; /* word of its vector, or itself when it is in none */
};

template <typename T>
__device__ __forceinline__ struct label_place find_label(const T *row, const struct split &split,
                                                         int64_t label)
{
    constexpr int W = wide<T>();
    struct label_place place = {load_one(row + label), -INFINITY, label};
    if (label < split.lead || label >= split.lead + (int64_t)split.vectors * W) return place;
    place.first = label - (label - split.lead) % W;
    float x[W];
    widen(load<T, W>(row + place.first), x);
#pragma unroll
    for (int i = 0; i < W; i++)
        if (place.first + i < label) place.before = fmaxf(place.before, x[i]);
    return place;
}

/* The gradient of a word is exp(logit - largest) * factor - everywhere; the label's is smaller by at_label. `largest`
 * is capped. */
struct slope {
    float largest, factor, everywhere, at_label;
    int64_t label;
};

template <typename T, typename C>
__device__ __forceinline__ float slope_at(const struct slope &s, float x, int64_t word, C cap)
{
    float p = exponential(cap(x) - s.largest, T{}) * s.factor - s.everywhere;
    return (word == s.label ? p - s.at_label : p) * cap.slope(x);
}

/* `label` is the label's index in the vector, if the vector holds it. */
template <typename T, typename C, int W>
__device__ __forceinline__ vec<T, W> gradient_of(const struct slope &s, const vec<T, W> &v, int64_t label,
                                                 C cap)
{
    float x[W], slope[W];
    widen(v, x);
#pragma unroll
    for (int i = 0; i < W; i++) {
        slope[i] = cap.slope(x[i]);
        x[i] = exponential(cap(x[i]) - s.largest, T{}) * s.factor - s.everywhere;
    }
    if (label >= 0 && label < W) {
#pragma unroll
        for (int i = 0; i < W; i++)
            if (i == label) x[i] -= s.at_label;
    }
#pragma unroll
    for (int i = 0; i < W; i++) x[i] *= slope[i];
    vec<T, W> out;
    narrow(out, x);
    return out;
}

/* Loads the BATCH vectors of a thread from number i on. */
template <typename T, int W>
__device__ __forceinline__ void load_batch(vec<T, W> (&v)[BATCH], const T *body, int i, int vectors)
{
#pragma unroll
    for (int k = 0; k < BATCH; k++) {
        int at = i + k * (int)blockDim.x;
        if (at < vectors) v[k] = load<T, W>(body + (int64_t)at * W);
    }
}

template <typename T, typename C>
__device__ __forceinline__ void write_gradient(T *row, const struct split &split, const struct slope &slope,
                                               float lone, int held, const uint4 *cache, C cap)
{
    constexpr int W = wide<T>();
    T *body = row + split.lead;
    int threads = (int)blockDim.x, i = (int)threadIdx.x;
    int64_t label = slope.label - split.lead;
    if (held > split.vectors) held = split.vectors;
#pragma unroll 4
    for (; i < held; i += threads) {
        uint4 raw = cache[i];
        vec<T, W> v = {{raw.x, raw.y, raw.z, raw.w}};
        store(body + (int64_t)i * W, gradient_of(slope, v, label - (int64_t)i * W, cap));
    }
    for (; i < split.vectors; i += threads * BATCH) {
        vec<T, W> v[BATCH];
        load_batch(v, body, i, split.vectors);
#pragma unroll
        for (int k = 0; k < BATCH; k++) {
            int64_t at = (int64_t)(i + k * threads) * W;
            if (i + k * threads < split.vectors) store(body + at, gradient_of(slope, v[k], label - at, cap));
        }
    }
    if (split.lone >= 0) store_one(row + split.lone, slope_at<T>(slope, lone, split.lone, cap));
}

template <typename T, bool SUM, typename C>
__global__ void __launch_bounds__(THREADS_MAX, 1) entropy_rows(const struct entropy e, C cap)
{
    constexpr int W = wide<T>();
    extern __shared__ uint4 cache[];
    __shared__ struct tally partial[32];
    int64_t n = blockIdx.x, label = e.labels[n];
    T *row = static_cast<T *>(e.logits) + n * e.stride;
    struct split split = split_row(row, e.words);
    struct tally own = {-FLT_MAX, 0.0f, 0.0f, 0.0f, NOWHERE};
    float lone = split.lone >= 0 ? load_one(row + split.lone) : 0.0f;
    const T *body = row + split.lead;
    int threads = (int)blockDim.x;
    vec<T, W> v[BATCH], next[BATCH];
    load_batch(v, body, (int)threadIdx.x, split.vectors);
    for (int i = (int)threadIdx.x; i < split.vectors; i += threads * BATCH) {
        load_batch(next, body, i + threads * BATCH, split.vectors);
#pragma unroll
        for (int k = 0; k < BATCH; k++) {
            int at = i + k * threads;
            if (at >= split.vectors) break;
            if (at < e.held) cache[at] = make_uint4(v[k].word[0], v[k].word[1], v[k].word[2], v[k].word[3]);
            count<T, SUM>(own, v[k], split.lead + at * W, cap);
        }
#pragma unroll
        for (int k = 0; k < BATCH; k++) v[k] = next[k];
    }
    if (split.lone >= 0) count_lone<T>(own, lone, (int32_t)split.lone, cap);
    struct label_place place = {};
    if (threadIdx.x == 0) place = find_label(row, split, label); /* before another thread writes there */
    struct tally all = join_block<T, SUM>(own, partial, cap);
    float wrong = 1.0f - e.smoothing, largest = cap(all.largest);
    if (threadIdx.x == 0) {
        float loss = wrong * (largest - cap(place.logit)) + logf(all.exp_sum);
        if (SUM && e.smoothing > 0.0f) loss += e.smoothing * (largest - all.sum / (float)e.words);
        e.loss[n] = loss;
        /* The difference is fp64: where one word has nearly all of the probability the two terms cancel. */
        if (SUM && e.row_mean != nullptr) e.row_mean[n] = all.sum / (float)e.words;
        if (e.row_entropy != nullptr)
            e.row_entropy[n] = (float)(log((double)all.exp_sum) - (double)all.weighted / (double)all.exp_sum);
        bool first = all.index == place.first && place.before < place.logit;
        if (e.correct != nullptr) e.correct[n] = first && place.logit == all.largest;
    }
    if (!e.gradient) return;
    struct slope slope;
    float scale = e.row_scale != nullptr ? e.row_scale[n] : e.grad_scale;
    slope.largest = largest, slope.factor = scale / all.exp_sum;
    slope.everywhere = e.smoothing * scale / (float)e.words;
    slope.at_label = wrong * scale, slope.label = label;
    write_gradient(row, split, slope, lone, e.held, cache, cap);
}

constexpr int SUM_THREADS = 1024;

/* Thread i sums rows i, i + SUM_THREADS, ...: the order of additions never changes. */
__global__ void __launch_bounds__(SUM_THREADS)
    sum_losses(double *sums, const float *loss, const int32_t *correct, const float *entropy, int64_t rows)
{
    __shared__ double loss_partial[32], correct_partial[32], entropy_partial[32];
    double losses = 0, hits = 0, entropies = 0;
#pragma unroll 4
    for (int64_t n = threadIdx.x; n < rows; n += SUM_THREADS) {
        losses += (double)loss[n];
        if (correct != nullptr) hits += (double)correct[n];
        if (entropy != nullptr) entropies += (double)entropy[n];
    }
    losses = block_sum(losses, loss_partial);
    hits = block_sum(hits, correct_partial);
    entropies = block_sum(entropies, entropy_partial);
    if (threadIdx.x > 0) return;
    sums[0] += losses;
    sums[1] += hits;
    sums[2] += entropies;
}

/* Each thread gets a few vectors; shared memory holds as much of the row as a block may have. */
template <typename T, bool SUM, typename C>
tt_status entropy_typed(struct tt_stream *stream, struct entropy e, int64_t rows, const tt_tensor *logits,
                        C cap)
{
    int64_t bytes = e.words * (int64_t)sizeof(T);
    int threads = bytes <= 4096 ? 128 : bytes <= 100 << 10 ? 256 : THREADS_MAX;
    size_t shared = 0;
    if (e.gradient) {
        int limit = 0, device = tt_cuda_device_of(stream)->index;
        cudaError_t error = cudaDeviceGetAttribute(&limit, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
        TT_TRY(tt_cuda_check(error, stream, "cross_entropy"));
        int64_t room = limit - (int64_t)sizeof(struct tally[32]) - 128;
        e.held = (int)((bytes < room ? bytes : room) / 16);
        shared = (size_t)e.held * 16;
        error = cudaFuncSetAttribute(entropy_rows<T, SUM, C>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                     (int)room);
        TT_TRY(tt_cuda_check(error, stream, "cross_entropy"));
    }
    entropy_rows<T, SUM, C><<<(unsigned)rows, threads, shared, tt_cuda_handle(stream)>>>(e, cap);
    return tt_cuda_launched(stream, "cross_entropy", logits);
}

template <typename C>
tt_status entropy_any(struct tt_stream *stream, const struct entropy &e, int64_t rows,
                      const tt_tensor *logits, C cap)
{
    return with_type(logits->dtype, [&](auto t) {
        return e.smoothing > 0 || e.row_mean != nullptr
                   ? entropy_typed<decltype(t), true>(stream, e, rows, logits, cap)
                   : entropy_typed<decltype(t), false>(stream, e, rows, logits, cap);
    });
}

} // namespace

extern "C" tt_status tt_cuda_cross_entropy(struct tt_stream *stream, const struct tt_cross_entropy_args *args)
{
    int64_t rows = args->logits_NV.dims[0];
    if (rows == 0) return TT_OK;
    struct entropy e = {};
    e.logits = args->logits_NV.data, e.stride = args->logits_NV.strides[0], e.words = args->logits_NV.dims[1];
    e.labels = static_cast<const int32_t *>(args->labels_N.data);
    e.loss = static_cast<float *>(args->loss_N.data);
    if (!tt_tensor_is_empty(args->correct_N)) e.correct = static_cast<int32_t *>(args->correct_N.data);
    if (!tt_tensor_is_empty(args->entropy_N)) e.row_entropy = static_cast<float *>(args->entropy_N.data);
    if (!tt_tensor_is_empty(args->mean_N)) e.row_mean = static_cast<float *>(args->mean_N.data);
    if (!tt_tensor_is_empty(args->grad_scale_N))
        e.row_scale = static_cast<const float *>(args->grad_scale_N.data);
    e.grad_scale = args->grad_scale, e.smoothing = args->label_smoothing, e.gradient = args->gradient;
    return args->soft_cap > 0 ? entropy_any(stream, e, rows, &args->logits_NV, capped{args->soft_cap})
                              : entropy_any(stream, e, rows, &args->logits_NV, uncapped{});
}

extern "C" tt_status tt_cuda_loss_sums(struct tt_stream *stream, const struct tt_loss_sums_args *args)
{
    int64_t rows = args->loss_N.dims[0];
    if (rows == 0) return TT_OK;
    const int32_t *correct = nullptr;
    if (!tt_tensor_is_empty(args->correct_N)) correct = static_cast<const int32_t *>(args->correct_N.data);
    const float *entropy = nullptr;
    if (!tt_tensor_is_empty(args->entropy_N)) entropy = static_cast<const float *>(args->entropy_N.data);
    sum_losses<<<1, SUM_THREADS, 0, tt_cuda_handle(stream)>>>(static_cast<double *>(args->sums.data),
                                                              static_cast<const float *>(args->loss_N.data),
                                                              correct, entropy, rows);
    return tt_cuda_launched(stream, "loss_sums", &args->loss_N);
}
