#include <float.h>

#include "backend/cuda/device_math.cuh"

/* A block per row. First all logits are read once: the largest, where it lies, the sum of exp(logit - largest
 * so far). As they pass, as many as fit stay in shared memory, so that the gradient need not fetch them
 * again; the rest of the row comes from the second-level cache, where the rows under way fit together. */

namespace
{

constexpr int THREADS_MAX = 1024, BATCH = 4; /* vectors that a thread has in flight */

struct entropy {
    void *logits;
    int64_t stride, words;
    const int32_t *labels;
    float *loss;
    int32_t *correct; /* NULL: not wanted */
    float grad_scale, smoothing;
    bool gradient;
    int held; /* vectors of a row that fit into shared memory */
};

__device__ __forceinline__ float exponential(float x, bf16)
{
    return __expf(x);
}

__device__ __forceinline__ float exponential(float x, float)
{
    return expf(x);
}

/* Of the logits read so far. `largest` starts as the smallest finite number, so that a word that is ruled out
 * by -inf does not make a NaN. */
struct tally {
    float largest, exp_sum, sum;
    int32_t index; /* of the first that is the largest */

    template <typename T> __device__ __forceinline__ void merge(const struct tally &other, T type)
    {
        bool better = other.largest > largest || (other.largest == largest && other.index < index);
        float top = better ? other.largest : largest;
        exp_sum = exp_sum * exponential(largest - top, type) +
                  other.exp_sum * exponential(other.largest - top, type);
        sum += other.sum;
        largest = top;
        index = better ? other.index : index;
    }
};

constexpr int32_t NOWHERE = 0x7fffffff;

__device__ __forceinline__ struct tally empty_tally()
{
    return {-FLT_MAX, 0.0f, 0.0f, NOWHERE};
}

/* `first` is the index of the vector's first word; a thread meets its vectors in rising order. */
template <typename T, int W>
__device__ __forceinline__ void count(struct tally &tally, const vec<T, W> &v, int32_t first)
{
    float x[W];
    widen(v, x);
    float top = x[0];
#pragma unroll
    for (int i = 1; i < W; i++) top = fmaxf(top, x[i]);
    if (top > tally.largest) {
        tally.exp_sum *= exponential(tally.largest - top, T{});
        tally.largest = top;
        int place = 0;
#pragma unroll
        for (int i = W - 1; i > 0; i--) place = x[i] == top ? i : place;
        tally.index = first + (x[0] == top ? 0 : place);
    }
#pragma unroll
    for (int i = 0; i < W; i++) {
        tally.exp_sum += exponential(x[i] - tally.largest, T{});
        tally.sum += x[i];
    }
}

template <typename T>
__device__ __forceinline__ struct tally block_tally(struct tally own, struct tally (&partial)[32])
{
    auto across = [](struct tally &value) {
#pragma unroll
        for (int step = 16; step > 0; step /= 2) {
            struct tally other;
            other.largest = __shfl_xor_sync(0xffffffffu, value.largest, step);
            other.exp_sum = __shfl_xor_sync(0xffffffffu, value.exp_sum, step);
            other.sum = __shfl_xor_sync(0xffffffffu, value.sum, step);
            other.index = __shfl_xor_sync(0xffffffffu, value.index, step);
            value.merge(other, T{});
        }
    };
    unsigned lane = threadIdx.x % 32;
    across(own);
    if (lane == 0) partial[threadIdx.x / 32] = own;
    __syncthreads();
    own = lane < blockDim.x / 32 ? partial[lane] : empty_tally();
    across(own);
    return own;
}

/* Where a row's vectors of 16 bytes begin and end: `lead` words before them, `tail` behind them, one thread
 * each. */
struct split {
    int lead, tail, vectors;
    int64_t lone; /* this thread's word outside the vectors; -1: none */
};

template <typename T> __device__ __forceinline__ struct split split_row(const T *row, int64_t words)
{
    constexpr int W = wide<T>();
    struct split s;
    s.lead = (int)((16 - (uintptr_t)row % 16) % 16 / sizeof(T));
    if (s.lead > words) s.lead = (int)words;
    s.vectors = (int)((words - s.lead) / W);
    s.tail = (int)(words - s.lead - (int64_t)s.vectors * W);
    int thread = (int)threadIdx.x;
    s.lone = thread < s.lead ? thread : thread - s.lead < s.tail ? (int64_t)s.vectors * W + thread : -1;
    return s;
}

struct slope {
    float largest, factor, everywhere, at_label; /* of the gradient */
    int64_t label;
};

template <typename T> __device__ __forceinline__ float slope_at(const struct slope &s, float x, int64_t word)
{
    float p = exponential(x - s.largest, T{}) * s.factor - s.everywhere;
    return word == s.label ? p - s.at_label : p;
}

template <typename T, int W>
__device__ __forceinline__ vec<T, W> gradient_of(const struct slope &s, const vec<T, W> &v, int64_t first)
{
    float x[W];
    widen(v, x);
#pragma unroll
    for (int i = 0; i < W; i++) x[i] = exponential(x[i] - s.largest, T{}) * s.factor - s.everywhere;
    if (s.label >= first && s.label < first + W) {
#pragma unroll
        for (int i = 0; i < W; i++)
            if (first + i == s.label) x[i] -= s.at_label;
    }
    vec<T, W> out;
    narrow(out, x);
    return out;
}

template <typename T>
__device__ __forceinline__ void write_gradient(T *row, const struct split &split, const struct slope &slope,
                                               float lone, int held, const uint4 *cache)
{
    constexpr int W = wide<T>();
    T *body = row + split.lead;
    int threads = (int)blockDim.x, i = (int)threadIdx.x;
    for (; i < held && i < split.vectors; i += threads) {
        uint4 raw = cache[i];
        vec<T, W> v = {{raw.x, raw.y, raw.z, raw.w}};
        store(body + (int64_t)i * W, gradient_of(slope, v, split.lead + (int64_t)i * W));
    }
    for (; i < split.vectors; i += threads * BATCH) {
        vec<T, W> v[BATCH];
#pragma unroll
        for (int k = 0; k < BATCH; k++)
            if (i + k * threads < split.vectors) v[k] = load<T, W>(body + (int64_t)(i + k * threads) * W);
#pragma unroll
        for (int k = 0; k < BATCH; k++) {
            int64_t at = (int64_t)(i + k * threads) * W;
            if (i + k * threads < split.vectors) store(body + at, gradient_of(slope, v[k], split.lead + at));
        }
    }
    if (split.lone >= 0) store_one(row + split.lone, slope_at<T>(slope, lone, split.lone));
}

template <typename T> __global__ void __launch_bounds__(THREADS_MAX, 1) entropy_rows(const struct entropy e)
{
    constexpr int W = wide<T>();
    extern __shared__ uint4 cache[];
    __shared__ struct tally partial[32];
    int64_t n = blockIdx.x, label = e.labels[n];
    T *row = static_cast<T *>(e.logits) + n * e.stride;
    float at_label = load_one(row + label);
    struct split split = split_row(row, e.words);
    struct tally own = empty_tally();
    float lone = split.lone >= 0 ? load_one(row + split.lone) : 0.0f;
    const T *body = row + split.lead;
    int threads = (int)blockDim.x;
    for (int i = (int)threadIdx.x; i < split.vectors; i += threads * BATCH) {
        vec<T, W> v[BATCH];
#pragma unroll
        for (int k = 0; k < BATCH; k++)
            if (i + k * threads < split.vectors) v[k] = load<T, W>(body + (int64_t)(i + k * threads) * W);
#pragma unroll
        for (int k = 0; k < BATCH; k++) {
            int at = i + k * threads;
            if (at >= split.vectors) break;
            if (at < e.held) cache[at] = make_uint4(v[k].word[0], v[k].word[1], v[k].word[2], v[k].word[3]);
            count(own, v[k], split.lead + at * W);
        }
    }
    if (split.lone >= 0) own.merge({lone, 1.0f, lone, (int32_t)split.lone}, T{});
    struct tally all = block_tally<T>(own, partial);
    float wrong = 1.0f - e.smoothing, log_sum = logf(all.exp_sum); /* relative to the largest */
    if (threadIdx.x == 0) {
        float loss = wrong * (all.largest - at_label) + log_sum;
        if (e.smoothing > 0) loss += e.smoothing * (all.largest - all.sum / (float)e.words);
        e.loss[n] = loss;
        if (e.correct != nullptr) e.correct[n] = all.index == label;
    }
    if (!e.gradient) return;
    struct slope slope;
    slope.largest = all.largest, slope.factor = e.grad_scale / all.exp_sum;
    slope.everywhere = e.smoothing * e.grad_scale / (float)e.words;
    slope.at_label = wrong * e.grad_scale, slope.label = label;
    write_gradient(row, split, slope, lone, e.held, cache);
}

constexpr int SUM_THREADS = 1024;

/* Each thread sums a run of rows in order; the runs' borders depend on the number of rows alone. */
__global__ void __launch_bounds__(SUM_THREADS)
    sum_losses(double *sums, const float *loss, const int32_t *correct, int64_t rows)
{
    __shared__ double loss_partial[32], correct_partial[32];
    int64_t run = (rows + SUM_THREADS - 1) / SUM_THREADS, first = threadIdx.x * run;
    int64_t end = first + run < rows ? first + run : rows;
    double losses = 0, hits = 0;
#pragma unroll 4
    for (int64_t n = first; n < end; n++) {
        losses += (double)loss[n];
        if (correct != nullptr) hits += (double)correct[n];
    }
    losses = block_sum(losses, loss_partial);
    hits = block_sum(hits, correct_partial);
    if (threadIdx.x > 0) return;
    sums[0] += losses;
    sums[1] += hits;
}

/* Threads so that each has a few vectors; as much of the row in shared memory as a block may have. */
template <typename T>
tt_status entropy_typed(struct tt_stream *stream, struct entropy e, int64_t rows, const tt_tensor *logits)
{
    int64_t bytes = e.words * (int64_t)sizeof(T);
    int threads = bytes <= 4096 ? 128 : bytes <= 16384 ? 256 : bytes <= 100 << 10 ? 512 : THREADS_MAX;
    size_t shared = 0;
    if (e.gradient) {
        int limit = 0, device = tt_cuda_device_of(stream)->index;
        TT_TRY(tt_cuda_check(cudaDeviceGetAttribute(&limit, cudaDevAttrMaxSharedMemoryPerBlockOptin, device),
                             stream, "cross_entropy"));
        int64_t room = limit - (int64_t)sizeof(struct tally[32]) - 128;
        e.held = (int)((bytes < room ? bytes : room) / 16);
        shared = (size_t)e.held * 16;
        TT_TRY(tt_cuda_check(
            cudaFuncSetAttribute(entropy_rows<T>, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared),
            stream, "cross_entropy"));
    }
    entropy_rows<T><<<(unsigned)rows, threads, shared, tt_cuda_handle(stream)>>>(e);
    return tt_cuda_launched(stream, "cross_entropy", logits);
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
    e.grad_scale = args->grad_scale, e.smoothing = args->label_smoothing, e.gradient = args->gradient;
    return with_type(args->logits_NV.dtype,
                     [&](auto t) { return entropy_typed<decltype(t)>(stream, e, rows, &args->logits_NV); });
}

extern "C" tt_status tt_cuda_loss_sums(struct tt_stream *stream, const struct tt_loss_sums_args *args)
{
    int64_t rows = args->loss_N.dims[0];
    if (rows == 0) return TT_OK;
    const int32_t *correct = nullptr;
    if (!tt_tensor_is_empty(args->correct_N)) correct = static_cast<const int32_t *>(args->correct_N.data);
    sum_losses<<<1, SUM_THREADS, 0, tt_cuda_handle(stream)>>>(
        static_cast<double *>(args->sums.data), static_cast<const float *>(args->loss_N.data), correct, rows);
    return tt_cuda_launched(stream, "loss_sums", &args->loss_N);
}
