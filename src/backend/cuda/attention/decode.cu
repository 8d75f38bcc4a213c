/* Attention of single queries to the keys of a cache: the choice between tensor cores (decode_mma.cu) and the kernels
 * here, for fp32, odd shapes and query heads that share no keys. A thread block computes one part of the keys of one
 * row for up to G query heads that share a key/value head, so that these are read once; a second kernel adds the parts
 * up in order. Inside a block each group of L neighbouring lanes visits keys of its own with running sums of its own, N
 * vectors of 16 bytes of a row in each lane; the groups are added up at the end, lanes first, then warps. The borders
 * of all parts follow from the number of keys of the row alone. Bound by memory: what counts is how many loads are
 * under way. */
#include "backend/cuda/attention/decode.cuh"

enum { THREADS = 128, WARPS = THREADS / 32 };

static const struct decode_split plain_split = {TT_DECODE_PART, TT_DECODE_PART, TT_DECODE_PART};

static __device__ __forceinline__ void store(float *to, float x)
{
    *to = x;
}
static __device__ __forceinline__ void store(__nv_bfloat16 *to, float x)
{
    *to = __float2bfloat16_rn(x);
}

/* A lane's pieces of a row. Vectors: lane i of L has vectors i, i + L, ... of 16 bytes. */
template <typename T, int L, int N> struct vector_row {
    static constexpr int each = 16 / sizeof(T), size = N * each, columns = L * size;
    uint4 data[N];
    static __device__ __forceinline__ int column(int lane, int i)
    {
        return (i / each * L + lane) * each + i % each;
    }
    __device__ __forceinline__ void load(const T *row, int lane, int)
    {
#pragma unroll
        for (int n = 0; n < N; n++) data[n] = reinterpret_cast<const uint4 *>(row)[n * L + lane];
    }
    __device__ __forceinline__ float operator[](int i) const
    {
        const uint4 &part = data[i / each];
        if constexpr (sizeof(T) == 4) {
            uint32_t word = i % 4 == 0 ? part.x : i % 4 == 1 ? part.y : i % 4 == 2 ? part.z : part.w;
            return __uint_as_float(word);
        } else {
            int w = i % 8 / 2;
            uint32_t word = w == 0 ? part.x : w == 1 ? part.y : w == 2 ? part.z : part.w;
            return __uint_as_float(i % 2 == 0 ? word << 16 : word & 0xffff0000u);
        }
    }
};

/* Any number of columns up to MAX, any strides. */
template <typename T, int L, int MAX> struct scalar_row {
    static constexpr int size = MAX / L, columns = MAX;
    float data[size];
    static __device__ __forceinline__ int column(int lane, int i)
    {
        return i * L + lane;
    }
    __device__ __forceinline__ void load(const T *row, int lane, int columns)
    {
#pragma unroll
        for (int i = 0; i < size; i++)
            data[i] = column(lane, i) < columns ? (float)row[column(lane, i)] : 0.0f;
    }
    __device__ __forceinline__ float operator[](int i) const
    {
        return data[i];
    }
};

/* Running sums of G heads. */
template <int G, int SIZE> struct running {
    float max[G], sum[G], o[G][SIZE];
    __device__ __forceinline__ void clear()
    {
#pragma unroll
        for (int g = 0; g < G; g++) {
            max[g] = -INFINITY;
            sum[g] = 0.0f;
#pragma unroll
            for (int i = 0; i < SIZE; i++) o[g][i] = 0.0f;
        }
    }
};

/* The same numbers on both sides of each exchange, so both get the same sums. */
template <int G, int SIZE, int L> static __device__ void add_lanes(running<G, SIZE> &r)
{
#pragma unroll
    for (int offset = L; offset < 32; offset *= 2) {
#pragma unroll
        for (int g = 0; g < G; g++) {
            float other = __shfl_xor_sync(0xffffffffu, r.max[g], offset), max = fmaxf(r.max[g], other);
            float shrink = power(r.max[g], max), sum = r.sum[g] * shrink;
            r.max[g] = max;
            r.sum[g] = sum + __shfl_xor_sync(0xffffffffu, sum, offset);
#pragma unroll
            for (int i = 0; i < SIZE; i++) {
                float o = r.o[g][i] * shrink;
                r.o[g][i] = o + __shfl_xor_sync(0xffffffffu, o, offset);
            }
        }
    }
}

template <typename T, typename Row, int L, int G, int U>
static __global__ void __launch_bounds__(THREADS) decode_kernel(const __grid_constant__ decode_problem p)
{
    constexpr int SIZE = Row::size, GROUPS = THREADS / L, COLUMNS = Row::columns;
    __shared__ float sums[WARPS][G][COLUMNS], maxima[WARPS][G], weights[WARPS][G];
    int chunks = (p.group + G - 1) / G, kv_head = blockIdx.y / chunks, chunk = blockIdx.y % chunks;
    int row = blockIdx.z, head = kv_head * p.group + chunk * G, heads = min(G, p.group - chunk * G);
    int lane = threadIdx.x % L, warp = threadIdx.x / 32;
    key_part part = part_of(p, row, blockIdx.x);
    T *out = (T *)p.o + row * p.o_token + head * p.o_head;
    if ((int)blockIdx.x >= part.count) {
        if (part.count > 0 || blockIdx.x > 0) return;
        for (int i = threadIdx.x; i < heads * p.head_dim; i += THREADS)
            store(out + i / p.head_dim * p.o_head + i % p.head_dim, 0.0f);
        return;
    }
    const float log2e = 1.4426950408889634f;
    float scale = p.cap > 0 ? p.scale / p.cap : p.scale * log2e, cap = p.cap * log2e;
    float query[G][SIZE];
#pragma unroll
    for (int g = 0; g < G; g++) {
        Row q;
        q.load((const T *)p.q + row * p.q_token + (head + min(g, heads - 1)) * p.q_head, lane, p.head_dim);
#pragma unroll
        for (int i = 0; i < SIZE; i++) query[g][i] = q[i] * scale;
    }
    const T *keys = (const T *)p.k + (int64_t)p.first[row] * p.k_row + kv_head * p.k_head;
    const T *values = (const T *)p.v + (int64_t)p.first[row] * p.v_row + kv_head * p.v_head;
    running<G, SIZE> r;
    r.clear();
    for (int from = part.begin; from < part.end; from += GROUPS * U) {
        Row k[U], v[U];
        float score[U][G];
#pragma unroll
        for (int u = 0; u < U; u++) {
            int key = min(from + u * GROUPS + (int)threadIdx.x / L, part.end - 1);
            k[u].load(keys + key * p.k_row, lane, p.head_dim);
            v[u].load(values + key * p.v_row, lane, p.head_dim);
        }
#pragma unroll
        for (int u = 0; u < U; u++) {
            bool is = from + u * GROUPS + (int)threadIdx.x / L < part.end;
#pragma unroll
            for (int g = 0; g < G; g++) {
                float dot = 0.0f;
#pragma unroll
                for (int i = 0; i < SIZE; i++) dot += query[g][i] * k[u][i];
#pragma unroll
                for (int offset = L / 2; offset > 0; offset /= 2)
                    dot += __shfl_xor_sync(0xffffffffu, dot, offset);
                if (p.cap > 0) dot = cap * tanhf(dot);
                score[u][g] = is ? dot : -INFINITY;
            }
        }
#pragma unroll
        for (int g = 0; g < G; g++) {
            float max = r.max[g];
#pragma unroll
            for (int u = 0; u < U; u++) max = fmaxf(max, score[u][g]);
            float shrink = power(r.max[g], max);
            r.max[g] = max;
            r.sum[g] *= shrink;
#pragma unroll
            for (int i = 0; i < SIZE; i++) r.o[g][i] *= shrink;
#pragma unroll
            for (int u = 0; u < U; u++) {
                float weight = power(score[u][g], max);
                r.sum[g] += weight;
#pragma unroll
                for (int i = 0; i < SIZE; i++) r.o[g][i] += weight * v[u][i];
            }
        }
    }
    add_lanes<G, SIZE, L>(r);
    if (threadIdx.x % 32 < L) {
#pragma unroll
        for (int g = 0; g < G; g++) {
#pragma unroll
            for (int i = 0; i < SIZE; i++)
                if (Row::column(lane, i) < COLUMNS) sums[warp][g][Row::column(lane, i)] = r.o[g][i];
            maxima[warp][g] = r.max[g];
            weights[warp][g] = r.sum[g];
        }
    }
    __syncthreads();
    for (int i = threadIdx.x; i < heads * p.head_dim; i += THREADS) {
        int g = i / p.head_dim, e = i % p.head_dim;
        float max = maxima[0][g], o = 0.0f, sum = 0.0f;
        for (int w = 1; w < WARPS; w++) max = fmaxf(max, maxima[w][g]);
        for (int w = 0; w < WARPS; w++) {
            float shrink = power(maxima[w][g], max);
            o += sums[w][g][e] * shrink;
            sum += weights[w][g] * shrink;
        }
        if (part.count == 1) {
            store(out + g * p.o_head + e, o / with_sink(p, head + g, sum, max));
            continue;
        }
        float *to =
            p.parts + (((int64_t)row * p.heads + head + g) * p.part_count + blockIdx.x) * (p.head_dim + 2);
        to[e] = o;
        if (e == 0) {
            to[p.head_dim] = max;
            to[p.head_dim + 1] = sum;
        }
    }
}

template <typename T>
static __global__ void __launch_bounds__(THREADS) add_parts(const __grid_constant__ decode_problem p)
{
    __shared__ float maxima[TT_DECODE_PARTS_MAX], totals[TT_DECODE_PARTS_MAX];
    int head = blockIdx.x, row = blockIdx.y, stride = p.head_dim + 2, count = part_of(p, row, 0).count;
    if (count <= 1) return;
    const float *parts = p.parts + ((int64_t)row * p.heads + head) * p.part_count * stride;
    if ((int)threadIdx.x < count) {
        maxima[threadIdx.x] = parts[threadIdx.x * stride + p.head_dim];
        totals[threadIdx.x] = parts[threadIdx.x * stride + p.head_dim + 1];
    }
    __syncthreads();
    float max = -INFINITY, sum = 0.0f;
    for (int i = 0; i < count; i++) max = fmaxf(max, maxima[i]);
    for (int i = 0; i < count; i++) sum += totals[i] * power(maxima[i], max);
    sum = with_sink(p, head, sum, max);
    for (int e = threadIdx.x; e < p.head_dim; e += THREADS) {
        float o = 0.0f;
#pragma unroll 8
        for (int i = 0; i < count; i++) o += parts[i * stride + e] * power(maxima[i], max);
        store((T *)p.o + row * p.o_token + head * p.o_head + e, o / sum);
    }
}

template <typename T, typename Row, int L, int G, int U>
static void launch_heads(const decode_problem &p, int rows, cudaStream_t stream)
{
    dim3 grid((unsigned)p.part_count, (unsigned)(p.kv_heads * ((p.group + G - 1) / G)), (unsigned)rows);
    decode_kernel<T, Row, L, G, U><<<grid, THREADS, 0, stream>>>(p);
}

template <typename T, typename Row, int L, int G, int U>
static void launch(const decode_problem &p, int rows, cudaStream_t stream)
{
    if (p.group == 1)
        launch_heads<T, Row, L, 1, U>(p, rows, stream);
    else
        launch_heads<T, Row, L, G, U>(p, rows, stream);
}

template <typename T, int L, int N, int G, int U>
static void launch_vectors(const decode_problem &p, int rows, cudaStream_t stream)
{
    launch<T, vector_row<T, L, N>, L, G, U>(p, rows, stream);
}

template <typename T> static void launch_scalars(const decode_problem &p, int rows, cudaStream_t stream)
{
    constexpr int MAX = TT_ATTENTION_HEAD_DIM_MAX;
    if (p.head_dim <= 256)
        launch<T, scalar_row<T, 32, 256>, 32, 2, 2>(p, rows, stream);
    else
        launch<T, scalar_row<T, 32, MAX>, 32, 2, 2>(p, rows, stream);
}

static void launch_bf16(const decode_problem &p, int columns, int rows, cudaStream_t stream)
{
    typedef __nv_bfloat16 T;
    switch (columns) {
    case 32:
        return launch_vectors<T, 4, 1, 4, 4>(p, rows, stream);
    case 64:
        return launch_vectors<T, 8, 1, 4, 4>(p, rows, stream);
    case 96:
        return launch_vectors<T, 4, 3, 2, 2>(p, rows, stream);
    case 128:
        return launch_vectors<T, 8, 2, 4, 2>(p, rows, stream);
    case 256:
        return launch_vectors<T, 16, 2, 4, 2>(p, rows, stream);
    case 512:
        return launch_vectors<T, 32, 2, 4, 2>(p, rows, stream);
    default:
        return launch_scalars<T>(p, rows, stream);
    }
}

static void launch_fp32(const decode_problem &p, int columns, int rows, cudaStream_t stream)
{
    switch (columns) {
    case 32:
        return launch_vectors<float, 8, 1, 4, 4>(p, rows, stream);
    case 64:
        return launch_vectors<float, 8, 2, 4, 2>(p, rows, stream);
    case 96:
        return launch_vectors<float, 8, 3, 4, 2>(p, rows, stream);
    case 128:
        return launch_vectors<float, 16, 2, 4, 2>(p, rows, stream);
    case 256:
        return launch_vectors<float, 16, 4, 2, 2>(p, rows, stream);
    case 512:
        return launch_vectors<float, 32, 4, 2, 2>(p, rows, stream);
    default:
        return launch_scalars<float>(p, rows, stream);
    }
}

/* Vectors of 16 bytes need addresses and strides of such. */
static bool is_aligned(const tt_tensor *x)
{
    int64_t each = x->dtype == TT_F32 ? 4 : 8;
    return (uintptr_t)x->data % 16 == 0 && x->strides[0] % each == 0 && x->strides[1] % each == 0;
}

static decode_problem problem_of(const struct tt_attention_decode_args *args,
                                 const struct decode_split &split)
{
    const tt_tensor *q = &args->q_THE, *k = &args->k_RKE, *v = &args->v_RKE, *o = &args->o_THE;
    int most = (int)args->max_count; /* keys that a row sees */
    decode_problem p = {};
    p.q = q->data, p.k = k->data, p.v = v->data, p.o = o->data;
    p.q_token = q->strides[0], p.q_head = q->strides[1];
    p.k_row = k->strides[0], p.k_head = k->strides[1];
    p.v_row = v->strides[0], p.v_head = v->strides[1];
    p.o_token = o->strides[0], p.o_head = o->strides[1];
    p.first = (const int32_t *)args->first_T.data;
    p.count = (const int32_t *)args->count_T.data;
    p.heads = (int)q->dims[1];
    p.kv_heads = (int)k->dims[1];
    p.group = p.heads / p.kv_heads;
    p.head_dim = (int)q->dims[2];
    p.window = args->window < INT32_MAX ? (int)args->window : 0;
    p.split = split;
    if (p.window > 0) most = min(most, p.window);
    /* A row without keys needs a block that clears it. */
    p.part_count = max(decode_parts(split, most), 1);
    p.parts = p.part_count > 1 ? (float *)args->scratch.data : NULL;
    p.scale = (float)args->scale;
    p.cap = args->soft_cap;
    if (!tt_tensor_is_empty(args->sinks_H)) p.sinks = (const float *)args->sinks_H.data;
    return p;
}

/* Whether decode_mma.cu has a kernel. It assumes that the largest raw score is also the largest scaled one. A single
 * query head for a key/value head leaves 15 of 16 rows of its tiles empty and gains nothing. */
static tt_status find_mma(struct tt_stream *stream, const struct tt_attention_decode_args *args, bool vectors,
                          bool *is)
{
    const tt_tensor *q = &args->q_THE;
    const struct tt_cuda_device *device = tt_cuda_device_of(stream);
    int64_t group = q->dims[1] / args->k_RKE.dims[1];
    int shared = tt_attention_decode_mma_shared((int)q->dims[2]), most = 0;
    *is = false;
    if (q->dtype != TT_BF16 || device->architecture < 80 || !(args->scale > 0) || shared == 0) return TT_OK;
    if (!vectors || !is_aligned(&args->o_THE) || group < 2 || group > TT_DECODE_GROUP_MAX) return TT_OK;
    cudaError_t error = cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device->index);
    *is = most >= shared;
    return tt_cuda_check(error, stream, "attention_decode");
}

extern "C" tt_status tt_cuda_attention_decode(struct tt_stream *stream,
                                              const struct tt_attention_decode_args *args)
{
    int rows = (int)args->q_THE.dims[0];
    bool vectors = is_aligned(&args->q_THE) && is_aligned(&args->k_RKE) && is_aligned(&args->v_RKE), mma;
    cudaStream_t handle = tt_cuda_handle(stream);
    if (rows == 0) return TT_OK;
    TT_TRY(find_mma(stream, args, vectors, &mma));
    decode_problem p = problem_of(args, mma ? tt_decode_mma_split : plain_split);
    if (rows > 65535 || p.heads > 65535)
        return tt_fail(TT_ERR_UNSUPPORTED, "attention_decode of %d rows, %d heads", rows, p.heads);
    if (mma)
        tt_attention_decode_mma(&p, rows, handle);
    else if (args->q_THE.dtype == TT_F32)
        launch_fp32(p, vectors ? p.head_dim : 0, rows, handle);
    else
        launch_bf16(p, vectors ? p.head_dim : 0, rows, handle);
    if (p.part_count > 1) {
        dim3 grid((unsigned)p.heads, (unsigned)rows);
        if (args->q_THE.dtype == TT_F32)
            add_parts<float><<<grid, THREADS, 0, handle>>>(p);
        else
            add_parts<__nv_bfloat16><<<grid, THREADS, 0, handle>>>(p);
    }
    return tt_cuda_launched(stream, "attention_decode", &args->q_THE);
}
