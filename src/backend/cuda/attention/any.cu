/* Attention for all arguments that the tensor-core kernels decline: fp32, head dimensions or strides that are not
 * multiples of 8, and those over 256 without Hopper. A warp computes one row (a query of one head, or a key of one
 * key/value head) and visits the rows on the other side 32 at a time: first each lane computes the score of one of
 * them, then each lane adds up the columns lane, lane + 32, ... of the weighted sum. These kernels are general rather
 * than fast. Sums have one order, so repeats are equal bit for bit. */
#include "backend/cuda/attention/mma_tiles.h"
#include "backend/ops/attention.h"

enum { WARPS = 4, WIDE = 16 }; /* columns per lane: 8 for head dimensions up to 256, else WIDE */
static_assert(32 * WIDE == TT_ATTENTION_HEAD_DIM_MAX, "a warp holds a row");

static __device__ __forceinline__ float widen(float x)
{
    return x;
}

static __device__ __forceinline__ float widen(__nv_bfloat16 x)
{
    return __bfloat162float(x);
}

static __device__ __forceinline__ void narrow(float *to, float x)
{
    *to = x;
}

static __device__ __forceinline__ void narrow(__nv_bfloat16 *to, float x)
{
    *to = __float2bfloat16_rn(x);
}

template <typename T>
static __device__ __forceinline__ T *row_at(const tt_attention_view &view, int64_t row, int head)
{
    return (T *)view.data + row * view.token + head * view.head;
}

static __device__ __forceinline__ float sum_lanes(float x)
{
    for (int step = 16; step > 0; step /= 2) x += __shfl_xor_sync(0xffffffffu, x, step);
    return x;
}

static __device__ __forceinline__ float max_lanes(float x)
{
    for (int step = 16; step > 0; step /= 2) x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, step));
    return x;
}

template <typename T> static __device__ __forceinline__ float dot(const float *a, const T *b, int count)
{
    float sum = 0.0f;
    for (int e = 0; e < count; e++) sum = fmaf(a[e], widen(b[e]), sum);
    return sum;
}

/* c[i] += sum over j < count of weight(lane j) rows[j][lane + 32 i] */
template <int COLUMNS, typename T>
static __device__ __forceinline__ void add_rows(float (&c)[COLUMNS], float weight, const T *rows,
                                                int64_t stride, int count, int columns)
{
    int lane = threadIdx.x % 32;
    for (int j = 0; j < count; j++) {
        float w = __shfl_sync(0xffffffffu, weight, j);
#pragma unroll
        for (int i = 0; i < COLUMNS; i++)
            if (lane + 32 * i < columns) c[i] = fmaf(w, widen(rows[j * stride + lane + 32 * i]), c[i]);
    }
}

template <typename T> static __device__ __forceinline__ void read_row(float *to, const T *from, int columns)
{
    for (int e = threadIdx.x % 32; e < columns; e += 32) to[e] = widen(from[e]);
}

template <int COLUMNS, typename T>
static __device__ __forceinline__ void write_row(T *to, const float (&c)[COLUMNS], float factor, int columns)
{
#pragma unroll
    for (int i = 0; i < COLUMNS; i++) {
        int e = threadIdx.x % 32 + 32 * i;
        if (e < columns) narrow(to + e, c[i] * factor);
    }
}

/* A score from the product of its rows, and with a cap its derivative by the scaled product. */
struct scored {
    float score, slope;
};

template <bool CAPPED>
static __device__ __forceinline__ scored score_of(const tt_attention_problem &p, float product)
{
    float score = p.scale * product;
    if (!CAPPED) return {score, 1.0f};
    float t = tanhf(score / p.cap);
    return {p.cap * t, fmaf(-t, t, 1.0f)};
}

/* The keys that a query sees: [begin, end) of its sequence, whose key 0 is row k0. */
struct key_range {
    int begin, end;
    int64_t k0;
};

static __device__ __forceinline__ key_range keys_of(const tt_attention_problem &p, int row)
{
    int b = find_sequence(p.cu_q, p.sequences, 1, 0, row);
    int length_q = p.cu_q[b + 1] - p.cu_q[b], length_k = p.cu_k[b + 1] - p.cu_k[b];
    int end = row - p.cu_q[b] + length_k - length_q + 1;
    return {p.window > 0 ? max(0, end - p.window) : 0, end, p.cu_k[b]};
}

template <typename T, bool CAPPED, int COLUMNS>
static __global__ void __launch_bounds__(WARPS * 32)
    any_forward(const __grid_constant__ tt_attention_problem p)
{
    __shared__ float queries[WARPS][32 * COLUMNS];
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32, columns = p.head_dim;
    int64_t index = (int64_t)blockIdx.x * WARPS + warp;
    if (index >= p.rows_q * p.heads) return;
    int row = (int)(index / p.heads), head = (int)(index % p.heads);
    key_range keys = keys_of(p, row);
    read_row(queries[warp], row_at<const T>(p.q, row, head), columns);
    __syncwarp();
    float max = -INFINITY, sum = 0.0f, o[COLUMNS] = {0};
    for (int first = keys.begin; first < keys.end; first += 32) {
        int key = first + lane, count = min(32, keys.end - first);
        float score = -INFINITY;
        if (lane < count)
            score = score_of<CAPPED>(
                        p, dot(queries[warp], row_at<const T>(p.k, keys.k0 + key, head / p.group), columns))
                        .score;
        float next = fmaxf(max, max_lanes(score)), shrink = expf(max - next), weight = expf(score - next);
        sum = sum * shrink + sum_lanes(weight);
        max = next;
#pragma unroll
        for (int i = 0; i < COLUMNS; i++) o[i] *= shrink;
        add_rows(o, weight, row_at<const T>(p.v, keys.k0 + first, head / p.group), p.v.token, count, columns);
    }
    float factor = 1.0f / sum, lse = max + logf(sum);
    if (p.sinks != NULL) {
        tt_attention_sunk sunk = tt_attention_sink(lse, p.sinks[head]);
        factor *= sunk.factor;
        lse = sunk.lse;
    }
    write_row(row_at<T>(p.o, row, head), o, factor, columns);
    if (p.lse != NULL && lane == 0) p.lse[head * p.lse_head + row] = lse;
}

/* Computes dq, and delta for the kernel of dk and dv. */
template <typename T, bool CAPPED, int COLUMNS>
static __global__ void __launch_bounds__(WARPS * 32) any_dq(const __grid_constant__ tt_attention_problem p)
{
    __shared__ float queries[WARPS][32 * COLUMNS], gradients[WARPS][32 * COLUMNS];
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32, columns = p.head_dim;
    int64_t index = (int64_t)blockIdx.x * WARPS + warp;
    if (index >= p.rows_q * p.heads) return;
    int row = (int)(index / p.heads), head = (int)(index % p.heads);
    key_range keys = keys_of(p, row);
    read_row(queries[warp], row_at<const T>(p.q, row, head), columns);
    read_row(gradients[warp], row_at<const T>(p.go, row, head), columns);
    __syncwarp();
    const T *o = row_at<const T>(p.o, row, head);
    float delta = 0.0f, lse = p.lse[head * p.lse_head + row], dq[COLUMNS] = {0};
    for (int e = lane; e < columns; e += 32) delta += gradients[warp][e] * widen(o[e]);
    delta = sum_lanes(delta);
    if (lane == 0) p.delta[head * p.rows_q + row] = delta;
    for (int first = keys.begin; first < keys.end; first += 32) {
        int key = first + lane, count = min(32, keys.end - first);
        float ds = 0.0f;
        if (lane < count) {
            scored s = score_of<CAPPED>(
                p, dot(queries[warp], row_at<const T>(p.k, keys.k0 + key, head / p.group), columns));
            float dp = dot(gradients[warp], row_at<const T>(p.v, keys.k0 + key, head / p.group), columns);
            ds = expf(s.score - lse) * (dp - delta);
            if (CAPPED) ds *= s.slope;
        }
        add_rows(dq, ds, row_at<const T>(p.k, keys.k0 + first, head / p.group), p.k.token, count, columns);
    }
    write_row(row_at<T>(p.gq, row, head), dq, p.scale, columns);
}

template <typename T, bool CAPPED, int COLUMNS>
static __global__ void __launch_bounds__(WARPS * 32) any_dkv(const __grid_constant__ tt_attention_problem p)
{
    __shared__ float keys[WARPS][32 * COLUMNS], values[WARPS][32 * COLUMNS];
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32, columns = p.head_dim;
    int64_t index = (int64_t)blockIdx.x * WARPS + warp;
    if (index >= p.rows_k * p.kv_heads) return;
    int row = (int)(index / p.kv_heads), kv_head = (int)(index % p.kv_heads);
    int b = find_sequence(p.cu_k, p.sequences, 1, 0, row), q0 = p.cu_q[b];
    if (row >= p.cu_k[b + 1]) return; /* past the last sequence */
    int length_q = p.cu_q[b + 1] - q0, length_k = p.cu_k[b + 1] - p.cu_k[b];
    /* the query at the same position as this key; may be negative */
    int own = row - p.cu_k[b] - (length_k - length_q);
    int end = p.window > 0 ? min(length_q, own + p.window) : length_q;
    read_row(keys[warp], row_at<const T>(p.k, row, kv_head), columns);
    read_row(values[warp], row_at<const T>(p.v, row, kv_head), columns);
    __syncwarp();
    float dk[COLUMNS] = {0}, dv[COLUMNS] = {0};
    for (int head = kv_head * p.group; head < (kv_head + 1) * p.group; head++) {
        for (int first = max(0, own); first < end; first += 32) {
            int query = q0 + first + lane, count = min(32, end - first);
            float weight = 0.0f, ds = 0.0f;
            if (lane < count) {
                scored s = score_of<CAPPED>(p, dot(keys[warp], row_at<const T>(p.q, query, head), columns));
                float dp = dot(values[warp], row_at<const T>(p.go, query, head), columns);
                weight = expf(s.score - p.lse[head * p.lse_head + query]);
                ds = weight * (dp - p.delta[head * p.rows_q + query]);
                if (CAPPED) ds *= s.slope;
            }
            add_rows(dv, weight, row_at<const T>(p.go, q0 + first, head), p.go.token, count, columns);
            add_rows(dk, ds, row_at<const T>(p.q, q0 + first, head), p.q.token, count, columns);
        }
    }
    write_row(row_at<T>(p.gk, row, kv_head), dk, p.scale, columns);
    write_row(row_at<T>(p.gv, row, kv_head), dv, 1.0f, columns);
}

static unsigned blocks_for(int64_t rows, int heads)
{
    return (unsigned)((rows * heads + WARPS - 1) / WARPS);
}

template <typename T, bool CAPPED, int COLUMNS>
static void launch_forward_columns(const tt_attention_problem *problem, cudaStream_t stream)
{
    unsigned blocks = blocks_for(problem->rows_q, problem->heads);
    any_forward<T, CAPPED, COLUMNS><<<blocks, WARPS * 32, 0, stream>>>(*problem);
}

template <typename T, bool CAPPED, int COLUMNS>
static void launch_backward_columns(const tt_attention_problem *problem, cudaStream_t stream)
{
    unsigned blocks_q = blocks_for(problem->rows_q, problem->heads),
             blocks_k = blocks_for(problem->rows_k, problem->kv_heads);
    if (blocks_q > 0) any_dq<T, CAPPED, COLUMNS><<<blocks_q, WARPS * 32, 0, stream>>>(*problem);
    if (blocks_k > 0) any_dkv<T, CAPPED, COLUMNS><<<blocks_k, WARPS * 32, 0, stream>>>(*problem);
}

template <typename T, bool CAPPED>
static void launch_forward(const tt_attention_problem *problem, cudaStream_t stream)
{
    if (problem->head_dim <= 256)
        launch_forward_columns<T, CAPPED, 8>(problem, stream);
    else
        launch_forward_columns<T, CAPPED, WIDE>(problem, stream);
}

template <typename T, bool CAPPED>
static void launch_backward(const tt_attention_problem *problem, cudaStream_t stream)
{
    if (problem->head_dim <= 256)
        launch_backward_columns<T, CAPPED, 8>(problem, stream);
    else
        launch_backward_columns<T, CAPPED, WIDE>(problem, stream);
}

/* A block has a head; a thread its tokens THREADS apart, and their sums are added in a fixed order. A sink's value is
 * 0, so the gradient of its score is p (0 - delta). */
enum { SINK_THREADS = 256 };
static __global__ void __launch_bounds__(SINK_THREADS)
    sink_gradients(const __grid_constant__ tt_attention_problem p, float *dsinks)
{
    __shared__ float sums[SINK_THREADS];
    int head = blockIdx.x;
    float sum = 0.0f, sink = p.sinks[head];
    for (int64_t t = threadIdx.x; t < p.rows_q; t += SINK_THREADS)
        sum -= expf(sink - p.lse[head * p.lse_head + t]) * p.delta[head * p.rows_q + t];
    sums[threadIdx.x] = sum;
    for (int half = SINK_THREADS / 2; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half) sums[threadIdx.x] += sums[threadIdx.x + half];
    }
    if (threadIdx.x == 0) dsinks[head] += sums[0];
}

void tt_attention_sink_gradients(const struct tt_attention_problem *problem, float *dsinks,
                                 cudaStream_t stream)
{
    sink_gradients<<<(unsigned)problem->heads, SINK_THREADS, 0, stream>>>(*problem, dsinks);
}

void tt_attention_any_forward(const struct tt_attention_problem *problem, bool bf16, cudaStream_t stream)
{
    bool capped = problem->cap > 0;
    if (bf16)
        (capped ? launch_forward<__nv_bfloat16, true> : launch_forward<__nv_bfloat16, false>)(problem,
                                                                                              stream);
    else
        (capped ? launch_forward<float, true> : launch_forward<float, false>)(problem, stream);
}

void tt_attention_any_backward(const struct tt_attention_problem *problem, bool bf16, cudaStream_t stream)
{
    bool capped = problem->cap > 0;
    if (bf16)
        (capped ? launch_backward<__nv_bfloat16, true> : launch_backward<__nv_bfloat16, false>)(problem,
                                                                                                stream);
    else
        (capped ? launch_backward<float, true> : launch_backward<float, false>)(problem, stream);
}
