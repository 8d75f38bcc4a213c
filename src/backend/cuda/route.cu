#include "backend/cuda/device_math.cuh"

/* The choice of experts. A warp has a token, whose scores are in shared memory. Sums over tokens are made by warps of
 * successive tokens, each in a line of the scratch, and the lines are added in order. */

namespace
{

constexpr int WARP = 32, EXPERTS_MAX = TT_ROUTE_EXPERTS_MAX, SLOTS_MAX = TT_ROUTE_SLOTS_MAX;
constexpr int LINE_TOKENS = 8;

struct rule {
    int score, groups, kept_groups;
    bool normalizes, rounds_scores, rounds_weights;
    float epsilon, factor;
};

struct rule rule_of(const struct tt_route_rule &from)
{
    struct rule r = {};
    r.score = (int)from.score, r.groups = from.groups, r.kept_groups = from.kept_groups;
    r.normalizes = from.normalizes, r.rounds_scores = from.rounds_scores;
    r.rounds_weights = from.rounds_weights;
    r.epsilon = from.epsilon, r.factor = from.factor == 0 ? 1 : from.factor;
    return r;
}

template <typename T> __device__ __forceinline__ float rounded(float x)
{
    T stored;
    store_one(&stored, x);
    return load_one(&stored);
}

__device__ __forceinline__ float warp_most(float x)
{
#pragma unroll
    for (int step = 16; step > 0; step /= 2) x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, step));
    return x;
}

/* x[0 .. count) becomes its softmax. */
__device__ void softmax(float *x, int count)
{
    float most = -INFINITY, sum = 0;
    for (int e = threadIdx.x; e < count; e += WARP) most = fmaxf(most, x[e]);
    most = warp_most(most);
    for (int e = threadIdx.x; e < count; e += WARP) sum += x[e] = expf(x[e] - most);
    sum = lanes_sum(sum, WARP);
    for (int e = threadIdx.x; e < count; e += WARP) x[e] /= sum;
    __syncwarp();
}

/* The largest of x that is not `out`, of equal ones the first; it becomes `out`. */
__device__ int choose(const float *x, int count, bool *out)
{
    int best = -1;
    float value = 0;
    for (int e = threadIdx.x; e < count; e += WARP)
        if (!out[e] && (best < 0 || x[e] > value)) best = e, value = x[e];
#pragma unroll
    for (int step = 16; step > 0; step /= 2) {
        int other = __shfl_xor_sync(0xffffffffu, best, step);
        float other_value = __shfl_xor_sync(0xffffffffu, value, step);
        bool better = other_value > value || (other_value == value && other < best);
        if (other >= 0 && (best < 0 || better)) best = other, value = other_value;
    }
    best = __shfl_sync(0xffffffffu, best, 0); /* lanes may differ where values are NaN */
    if (threadIdx.x == 0) out[best] = true;
    __syncwarp();
    return best;
}

template <typename T> __device__ void load_row(const T *logits, int count, float *row)
{
    for (int e = threadIdx.x; e < count; e += WARP) row[e] = load_one(logits + e);
    __syncwarp();
}

template <typename T> __device__ void make_scores(const struct rule &r, float *x, int experts)
{
    if (r.score == TT_ROUTE_SOFTMAX) softmax(x, experts);
    for (int e = threadIdx.x; e < experts && r.score == TT_ROUTE_SIGMOID; e += WARP)
        x[e] = 1.0f / (1.0f + expf(-x[e]));
    for (int e = threadIdx.x; e < experts && r.rounds_scores && r.score != TT_ROUTE_CHOSEN; e += WARP)
        x[e] = rounded<T>(x[e]);
    __syncwarp();
}

__device__ void keep_groups(const struct rule &r, const float *values, int experts, bool *out)
{
    __shared__ float sums[TT_ROUTE_GROUPS_MAX];
    __shared__ bool kept[TT_ROUTE_GROUPS_MAX];
    int each = experts / r.groups;
    for (int g = threadIdx.x; g < r.groups; g += WARP) {
        float best = -INFINITY, second = -INFINITY;
        for (int e = g * each; e < (g + 1) * each; e++) {
            if (values[e] > best)
                second = best, best = values[e];
            else if (values[e] > second)
                second = values[e];
        }
        sums[g] = best + second;
        kept[g] = false;
    }
    __syncwarp();
    for (int i = 0; i < r.kept_groups; i++) (void)choose(sums, r.groups, kept);
    for (int e = threadIdx.x; e < experts; e += WARP) out[e] = !kept[e / each];
    __syncwarp();
}

/* The weights of the chosen before the factors, in every lane's view of shared memory; returns their divisor. */
__device__ float make_weights(const struct rule &r, const float *scores, const int32_t *ids, int slots,
                              float *weights)
{
    for (int s = threadIdx.x; s < slots; s += WARP) weights[s] = scores[ids[s]];
    __syncwarp();
    if (r.score == TT_ROUTE_CHOSEN) softmax(weights, slots);
    if (!r.normalizes) return 1;
    float sum = 0;
    for (int s = 0; s < slots; s++) sum += weights[s];
    sum += r.epsilon;
    __syncwarp();
    for (int s = threadIdx.x; s < slots; s += WARP) weights[s] /= sum;
    __syncwarp();
    return sum;
}

template <typename T>
__global__ void __launch_bounds__(WARP)
    forward(struct rule r, const T *logits, const float *bias, const float *scale, int32_t *ids,
            float *weights, int experts, int slots)
{
    __shared__ float scores[EXPERTS_MAX], values[EXPERTS_MAX], chosen[SLOTS_MAX];
    __shared__ bool out[EXPERTS_MAX];
    int64_t t = blockIdx.x;
    load_row(logits + t * experts, experts, scores);
    make_scores<T>(r, scores, experts);
    for (int e = threadIdx.x; e < experts; e += WARP) {
        values[e] = scores[e] + (bias == nullptr ? 0 : bias[e]);
        out[e] = false;
    }
    __syncwarp();
    if (r.groups > 0) keep_groups(r, values, experts, out);
    ids += t * slots;
    for (int s = 0; s < slots; s++) {
        int best = choose(values, experts, out);
        if (threadIdx.x == 0) ids[s] = best;
    }
    __syncwarp();
    (void)make_weights(r, scores, ids, slots, chosen);
    for (int s = threadIdx.x; s < slots; s += WARP) {
        float w = chosen[s] * r.factor * (scale == nullptr ? 1 : scale[ids[s]]);
        weights[t * slots + s] = r.rounds_weights ? rounded<T>(w) : w;
    }
}

/* Counts and sums of the tokens of a line. */
template <typename T>
__global__ void __launch_bounds__(WARP)
    load_lines(const T *logits, float *lines, int64_t tokens, int64_t line_tokens, int experts, int slots)
{
    __shared__ float p[EXPERTS_MAX];
    __shared__ bool out[EXPERTS_MAX];
    float *line = lines + (int64_t)blockIdx.x * 2 * experts;
    int64_t first = (int64_t)blockIdx.x * line_tokens, end = first + line_tokens;
    for (int e = threadIdx.x; e < 2 * experts; e += WARP) line[e] = 0;
    __syncwarp();
    for (int64_t t = first; t < end && t < tokens; t++) {
        load_row(logits + t * experts, experts, p);
        for (int e = threadIdx.x; e < experts; e += WARP) out[e] = false;
        __syncwarp();
        for (int s = 0; s < slots; s++) {
            int best = choose(p, experts, out);
            if (threadIdx.x == 0) line[best] += 1;
        }
        softmax(p, experts);
        for (int e = threadIdx.x; e < experts; e += WARP) line[experts + e] += p[e];
        __syncwarp();
    }
}

/* d, the gradient of softmax p, becomes that of its input. */
__device__ void softmax_back(const float *p, float *d, int count)
{
    float dot = 0;
    for (int e = threadIdx.x; e < count; e += WARP) dot += p[e] * d[e];
    dot = lanes_sum(dot, WARP);
    for (int e = threadIdx.x; e < count; e += WARP) d[e] = p[e] * (d[e] - dot);
    __syncwarp();
}

struct backward_tensors {
    const float *scale, *dweights, *dload;
    const int32_t *ids;
};

template <typename T>
__global__ void __launch_bounds__(WARP)
    backward(struct rule r, const T *logits, struct backward_tensors in, T *dlogits, int experts, int slots)
{
    __shared__ float scores[EXPERTS_MAX], d[EXPERTS_MAX], extra[EXPERTS_MAX];
    __shared__ float weights[SLOTS_MAX], chosen[SLOTS_MAX];
    int64_t t = blockIdx.x;
    const int32_t *ids = in.ids + t * slots;
    load_row(logits + t * experts, experts, scores);
    make_scores<T>(r, scores, experts);
    for (int e = threadIdx.x; e < experts; e += WARP) d[e] = extra[e] = 0;
    for (int s = threadIdx.x; s < slots; s += WARP)
        chosen[s] = in.dweights[t * slots + s] * r.factor * (in.scale == nullptr ? 1 : in.scale[ids[s]]);
    __syncwarp();
    float sum = make_weights(r, scores, ids, slots, weights);
    if (r.normalizes) {
        float dot = 0;
        for (int s = 0; s < slots; s++) dot += chosen[s] * weights[s];
        __syncwarp();
        for (int s = threadIdx.x; s < slots; s += WARP) chosen[s] = (chosen[s] - dot) / sum;
        __syncwarp();
    }
    if (r.score == TT_ROUTE_CHOSEN) {
        struct rule plain = {};
        plain.score = TT_ROUTE_CHOSEN;
        (void)make_weights(plain, scores, ids, slots, weights);
        softmax_back(weights, chosen, slots);
    }
    for (int s = threadIdx.x; s < slots; s += WARP) d[ids[s]] = chosen[s];
    __syncwarp();
    if (r.score == TT_ROUTE_SOFTMAX) softmax_back(scores, d, experts);
    for (int e = threadIdx.x; e < experts && r.score == TT_ROUTE_SIGMOID; e += WARP)
        d[e] *= scores[e] * (1 - scores[e]);
    if (in.dload != nullptr) {
        load_row(logits + t * experts, experts, scores);
        softmax(scores, experts);
        for (int e = threadIdx.x; e < experts; e += WARP) extra[e] = in.dload[e];
        __syncwarp();
        softmax_back(scores, extra, experts);
    }
    for (int e = threadIdx.x; e < experts; e += WARP) store_one(dlogits + t * experts + e, d[e] + extra[e]);
}

__global__ void balance(const float *load, int64_t slots, float scale, float *dload, float loss_scale,
                        double *loss, int64_t experts)
{
    double rows = 0, sum = 0;
    for (int64_t e = 0; e < experts; e++) rows += (double)load[e] / (double)slots;
    double factor = rows > 0 ? (double)experts / (rows * rows) : 0;
    for (int64_t e = 0; e < experts; e++) {
        sum += factor * (double)load[e] * (double)load[experts + e];
        dload[e] = (float)((double)scale * factor * (double)load[e]);
    }
    if (loss != nullptr) *loss += (double)loss_scale * sum;
}

template <typename T>
tt_status forward_typed(struct tt_stream *stream, const struct tt_route_forward_args *args)
{
    int64_t tokens = args->logits_TX.dims[0];
    int experts = (int)args->logits_TX.dims[1], slots = (int)args->ids_TS.dims[1];
    const T *logits = static_cast<const T *>(args->logits_TX.data);
    cudaStream_t on = tt_cuda_handle(stream);
    if (tokens == 0) return TT_OK;
    forward<T><<<(unsigned)tokens, WARP, 0, on>>>(
        rule_of(args->rule), logits, static_cast<const float *>(args->bias_X.data),
        static_cast<const float *>(args->scale_X.data), static_cast<int32_t *>(args->ids_TS.data),
        static_cast<float *>(args->weights_TS.data), experts, slots);
    if (!tt_tensor_is_empty(args->load_2X)) {
        int64_t most = TT_CUDA_SCRATCH_BYTES / (int64_t)sizeof(float) / (2 * experts), each = LINE_TOKENS;
        if ((tokens + each - 1) / each > most) each = (tokens + most - 1) / most;
        int lines = (int)((tokens + each - 1) / each);
        float *scratch = static_cast<float *>(tt_cuda_scratch(stream));
        load_lines<T><<<(unsigned)lines, WARP, 0, on>>>(logits, scratch, tokens, each, experts, slots);
        launch_add_lines(stream, static_cast<float *>(args->load_2X.data), scratch, lines, 2 * experts);
    }
    return tt_cuda_launched(stream, "route_forward", &args->logits_TX);
}

template <typename T>
tt_status backward_typed(struct tt_stream *stream, const struct tt_route_backward_args *args)
{
    struct backward_tensors in = {};
    in.scale = static_cast<const float *>(args->scale_X.data);
    in.dweights = static_cast<const float *>(args->dweights_TS.data);
    in.dload = static_cast<const float *>(args->dload_X.data);
    in.ids = static_cast<const int32_t *>(args->ids_TS.data);
    if (args->logits_TX.dims[0] == 0) return TT_OK;
    backward<T><<<(unsigned)args->logits_TX.dims[0], WARP, 0, tt_cuda_handle(stream)>>>(
        rule_of(args->rule), static_cast<const T *>(args->logits_TX.data), in,
        static_cast<T *>(args->dlogits_TX.data), (int)args->logits_TX.dims[1], (int)args->ids_TS.dims[1]);
    return tt_cuda_launched(stream, "route_backward", &args->logits_TX);
}

} // namespace

extern "C" tt_status tt_cuda_route_forward(struct tt_stream *stream, const struct tt_route_forward_args *args)
{
    return with_type(args->logits_TX.dtype, [&](auto t) { return forward_typed<decltype(t)>(stream, args); });
}

extern "C" tt_status tt_cuda_route_backward(struct tt_stream *stream,
                                            const struct tt_route_backward_args *args)
{
    return with_type(args->logits_TX.dtype,
                     [&](auto t) { return backward_typed<decltype(t)>(stream, args); });
}

extern "C" tt_status tt_cuda_route_balance(struct tt_stream *stream, const struct tt_route_balance_args *args)
{
    balance<<<1, 1, 0, tt_cuda_handle(stream)>>>(static_cast<const float *>(args->load_2X.data), args->slots,
                                                 args->scale, static_cast<float *>(args->dload_X.data),
                                                 args->loss_scale, static_cast<double *>(args->loss.data),
                                                 args->dload_X.dims[0]);
    return tt_cuda_launched(stream, "route_balance", &args->load_2X);
}
