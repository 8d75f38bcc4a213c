#include "backend/cuda/device_math.cuh"
#include "backend/cuda/scan.h"
#include "backend/cuda/scan/chunks.h"

/* Scans row by row, on no tensor cores: the recurrence of ops/scan.h as it is written, and its derivative.
 *
 * A state is divided into tiles of TILE x TILE. A warp has a tile, a thread a column of it, in registers. Forward: a
 * thread block has TILE columns of one value head of a sequence. Backward: a thread block has a whole state; it goes
 * through the sequence once and stores the state before each chunk but the first, then through the chunks in reverse:
 * once more forward, storing the decayed state before each row, then back. dq and dk of each value head are sums over
 * the columns by shuffles, then over tiles in order. */

namespace
{

constexpr int TILE = TT_CUDA_SCAN_TILE, WIDTH_MAX = TT_SCAN_WIDTH_MAX, TILES_MAX = WIDTH_MAX / TILE,
              WARPS_MAX = 32;
constexpr int SUM_THREADS = 256;

struct rows {
    void *data;
    int64_t row, head; /* strides */

    template <typename T> __device__ __forceinline__ float at(int64_t t, int64_t h, int64_t e) const
    {
        return load_one(static_cast<const T *>(data) + t * row + h * head + e);
    }

    template <typename T> __device__ __forceinline__ void put(int64_t t, int64_t h, int64_t e, float x) const
    {
        store_one(static_cast<T *>(data) + t * row + h * head + e, x);
    }
};

struct rows heads_of(const tt_tensor &x)
{
    if (tt_tensor_is_empty(x)) return {};
    return {x.data, x.strides[0], x.strides[1]};
}

/* [T, H] */
struct rows numbers_of(const tt_tensor &x)
{
    if (tt_tensor_is_empty(x)) return {};
    return {x.data, x.strides[0], 1};
}

struct scan {
    struct rows q, k, v, a, b;
    const void *a_log, *dt_bias, *skip; /* skip NULL: 0 */
    const int32_t *cu, *from, *to;
    float *pool; /* NULL: no states */
    int64_t pool_stride, count, sequences, heads, group;
    int width, value_width;
    float scale, norm_eps, dt_min, dt_max;
    bool delta, a_log_bf16, dt_bias_bf16, skip_bf16;
};

struct scan scan_of(const struct tt_scan_forward_args *args)
{
    struct scan s = {};
    s.q = heads_of(args->q_TKE), s.k = heads_of(args->k_TKE), s.v = heads_of(args->v_THW);
    s.a = numbers_of(args->a_TH), s.b = numbers_of(args->b_TH);
    s.a_log = args->a_log_H.data, s.a_log_bf16 = args->a_log_H.dtype == TT_BF16;
    s.dt_bias = args->dt_bias_H.data, s.dt_bias_bf16 = args->dt_bias_H.dtype == TT_BF16;
    s.skip = args->skip_H.data, s.skip_bf16 = args->skip_H.dtype == TT_BF16;
    s.cu = static_cast<const int32_t *>(args->sequences.device_cu.data);
    s.from = static_cast<const int32_t *>(args->states.from_B.data);
    s.to = static_cast<const int32_t *>(args->states.to_B.data);
    s.pool = static_cast<float *>(args->states.pool.data);
    s.pool_stride = tt_tensor_is_empty(args->states.pool) ? 0 : args->states.pool.strides[0];
    s.count = args->q_TKE.dims[0], s.sequences = args->sequences.count, s.heads = args->v_THW.dims[1];
    s.group = s.heads / args->q_TKE.dims[1];
    s.width = (int)args->q_TKE.dims[2], s.value_width = (int)args->v_THW.dims[2];
    s.scale = (float)args->scale, s.norm_eps = (float)args->norm_eps;
    s.dt_min = (float)args->dt_min, s.dt_max = (float)args->dt_max;
    s.delta = args->rule == TT_SCAN_DELTA;
    return s;
}

/* The constants of a value head. */
struct head {
    float rate, bias, skip;
};

__device__ __forceinline__ struct head head_at(const struct scan &s, int64_t h)
{
    return {expf(load_either(s.a_log, h, s.a_log_bf16)), load_either(s.dt_bias, h, s.dt_bias_bf16),
            s.skip == nullptr ? 0.0f : load_either(s.skip, h, s.skip_bf16)};
}

/* The numbers of a row and value head. */
struct rate {
    float x, dt, decay, share; /* x: before softplus; dt clamped */
    bool inside;               /* dt was not clamped */
};

template <typename T>
__device__ __forceinline__ struct rate rate_at(const struct scan &s, const struct head &head, int64_t row,
                                               int64_t h)
{
    struct rate r;
    r.x = s.a.at<T>(row, h, 0) + head.bias;
    float dt = r.x > 0 ? r.x + log1pf(expf(-r.x)) : log1pf(expf(r.x));
    r.dt = s.delta ? dt : fminf(fmaxf(dt, s.dt_min), s.dt_max);
    r.inside = r.dt == dt;
    r.decay = expf(-head.rate * r.dt);
    r.share = s.delta ? 1.0f / (1.0f + expf(-s.b.at<T>(row, h, 0))) : r.dt;
    return r;
}

/* One row of q and k in shared memory, with zeros behind the last column, and the factors that norm them. */
struct normed {
    float q[WIDTH_MAX], k[WIDTH_MAX], partial[2][32];
};

template <typename T>
__device__ __forceinline__ void load_row(const struct scan &s, struct normed &n, int64_t row,
                                         int64_t key_head, float &q_factor, float &k_factor)
{
    float of_q = 0, of_k = 0;
    for (int e = (int)threadIdx.x; e < WIDTH_MAX; e += (int)blockDim.x) {
        float q = e < s.width ? s.q.at<T>(row, key_head, e) : 0,
              k = e < s.width ? s.k.at<T>(row, key_head, e) : 0;
        n.q[e] = q, n.k[e] = k;
        of_q = __fmaf_rn(q, q, of_q), of_k = __fmaf_rn(k, k, of_k);
    }
    of_q = block_sum(of_q, n.partial[0]);
    of_k = block_sum(of_k, n.partial[1]);
    q_factor = s.norm_eps > 0 ? s.scale / sqrtf(of_q + s.norm_eps) : s.scale;
    k_factor = s.norm_eps > 0 ? 1.0f / sqrtf(of_k + s.norm_eps) : 1.0f;
}

/* tt_scan_state_at, on the device. */
__device__ __forceinline__ int64_t state_place(int64_t row)
{
    return row / TT_SCAN_CHUNK - 1;
}

/* A state's place in the pool. */
__device__ __forceinline__ int64_t pool_at(const struct scan &s, int64_t state, int64_t h, int e, int w)
{
    return state * s.pool_stride + (h * s.width + e) * s.value_width + w;
}

/* Sequences of at most `most` rows, and without `singles` not those of one. blockIdx: tile of columns, value head,
 * sequence; a warp for each TILE rows of the state. */
template <typename T>
__global__ void __launch_bounds__(TILES_MAX *TILE)
    forward_rows(const struct scan s, struct rows o, int32_t most, bool singles)
{
    __shared__ struct normed n;
    __shared__ float sums[2][TILES_MAX][TILE];
    int lane = (int)threadIdx.x % TILE, slice = (int)threadIdx.x / TILE, slices = (int)blockDim.x / TILE;
    int w = (int)blockIdx.x * TILE + lane;
    int32_t length = s.cu[blockIdx.z + 1] - s.cu[blockIdx.z];
    if (length > most || (length == 1 && !singles)) return;
    int64_t h = blockIdx.y, sequence = blockIdx.z, from = s.pool == nullptr ? -1 : s.from[sequence];
    struct head head = head_at(s, h);
    bool inside = w < s.value_width;
    float state[TILE];
#pragma unroll
    for (int i = 0; i < TILE; i++) {
        int e = slice * TILE + i;
        state[i] = from >= 0 && inside && e < s.width ? s.pool[pool_at(s, from, h, e, w)] : 0;
    }
    for (int64_t row = s.cu[sequence]; row < s.cu[sequence + 1]; row++) {
        float q_factor, k_factor, seen = 0, out = 0;
        __syncthreads(); /* the last row's shared memory has been read */
        load_row<T>(s, n, row, h / s.group, q_factor, k_factor);
        struct rate r = rate_at<T>(s, head, row, h);
        float value = inside ? s.v.at<T>(row, h, w) : 0;
        if (s.delta) {
#pragma unroll
            for (int i = 0; i < TILE; i++) seen = __fmaf_rn(state[i], n.k[slice * TILE + i], seen);
            sums[0][slice][lane] = seen;
            __syncthreads();
            seen = 0;
            for (int i = 0; i < slices; i++) seen += sums[0][i][lane];
        }
        float fresh = r.share * (value - seen * k_factor * r.decay) * k_factor;
#pragma unroll
        for (int i = 0; i < TILE; i++) {
            state[i] = __fmaf_rn(n.k[slice * TILE + i], fresh, state[i] * r.decay);
            out = __fmaf_rn(state[i], n.q[slice * TILE + i], out);
        }
        sums[1][slice][lane] = out;
        __syncthreads();
        if (slice > 0 || !inside) continue;
        out = 0;
        for (int i = 0; i < slices; i++) out += sums[1][i][lane];
        o.put<T>(row, h, w, __fmaf_rn(head.skip, value, out * q_factor));
    }
    int64_t to = s.pool == nullptr ? -1 : s.to[sequence];
    if (to < 0 || !inside) return;
#pragma unroll
    for (int i = 0; i < TILE; i++)
        if (slice * TILE + i < s.width) s.pool[pool_at(s, to, h, slice * TILE + i, w)] = state[i];
}

/* The step of a sequence of one row (generation), states of E x W of whole tiles and pairs of tiles: a lane has V
 * neighbouring columns, a warp the TILE rows of its slice. Each number is computed as by forward_rows, in the same
 * order. blockIdx: value head, sequence, pair of tiles of columns. */
template <typename T>
__global__ void __launch_bounds__(TILES_MAX *TILE) forward_row(const struct scan s, struct rows o)
{
    constexpr int V = 2;
    __shared__ struct normed n;
    __shared__ float sums[2][TILES_MAX][TILE * V];
    int lane = (int)threadIdx.x % TILE, slice = (int)threadIdx.x / TILE, slices = (int)blockDim.x / TILE,
        first = (int)blockIdx.z * TILE * V + lane * V;
    int64_t h = blockIdx.x, sequence = blockIdx.y, row = s.cu[sequence], from = s.from[sequence],
            to = s.to[sequence];
    if (s.cu[sequence + 1] - row != 1) return;
    vec<float, V> held[TILE];
#pragma unroll
    for (int i = 0; i < TILE; i++) {
        held[i] = {};
        if (from >= 0) held[i] = load<float, V>(s.pool + pool_at(s, from, h, slice * TILE + i, first));
    }
    struct head head = head_at(s, h);
    struct rate r = rate_at<T>(s, head, row, h);
    float q_factor, k_factor, value[V], seen[V] = {}, out[V] = {}, fresh[V];
    load_row<T>(s, n, row, h / s.group, q_factor, k_factor);
#pragma unroll
    for (int c = 0; c < V; c++) value[c] = s.v.at<T>(row, h, first + c);
    if (s.delta) {
#pragma unroll
        for (int i = 0; i < TILE; i++) {
            float state[V];
            widen(held[i], state);
#pragma unroll
            for (int c = 0; c < V; c++) seen[c] = __fmaf_rn(state[c], n.k[slice * TILE + i], seen[c]);
        }
#pragma unroll
        for (int c = 0; c < V; c++) sums[0][slice][lane * V + c] = seen[c], seen[c] = 0;
        __syncthreads();
        for (int i = 0; i < slices; i++)
#pragma unroll
            for (int c = 0; c < V; c++) seen[c] += sums[0][i][lane * V + c];
    }
#pragma unroll
    for (int c = 0; c < V; c++) fresh[c] = r.share * (value[c] - seen[c] * k_factor * r.decay) * k_factor;
#pragma unroll
    for (int i = 0; i < TILE; i++) {
        float state[V];
        widen(held[i], state);
#pragma unroll
        for (int c = 0; c < V; c++) {
            state[c] = __fmaf_rn(n.k[slice * TILE + i], fresh[c], state[c] * r.decay);
            out[c] = __fmaf_rn(state[c], n.q[slice * TILE + i], out[c]);
        }
        narrow(held[i], state);
        if (to >= 0) store(s.pool + pool_at(s, to, h, slice * TILE + i, first), held[i]);
    }
#pragma unroll
    for (int c = 0; c < V; c++) sums[1][slice][lane * V + c] = out[c];
    __syncthreads();
    if (slice > 0) return;
#pragma unroll
    for (int c = 0; c < V; c++) {
        out[c] = 0;
        for (int i = 0; i < slices; i++) out[c] += sums[1][i][lane * V + c];
        o.put<T>(row, h, first + c, __fmaf_rn(head.skip, value[c], out[c] * q_factor));
    }
}

struct gradients {
    struct rows d_out, dv, da, db;
    float *lanes, *carried, *blocks;
    int64_t lane, states, half; /* floats of a lane, of its states, of dq */
    int64_t first, end;         /* value heads of this call */
};

/* The shared memory of a thread block of the backward pass. */
struct shared {
    struct normed n;
    float sums[TILES_MAX][WIDTH_MAX];                         /* by tile of rows, of a column */
    float dq[TILES_MAX][WIDTH_MAX], dk[TILES_MAX][WIDTH_MAX]; /* by tile of columns, of a row */
    float partial[2][32];
};

/* A thread's column of a tile. */
struct place {
    int lane, slice, column_tile, slices, column_tiles, w;
    bool inside;
};

__device__ __forceinline__ struct place place_of(const struct scan &s)
{
    struct place p;
    int warp = (int)threadIdx.x / TILE;
    p.slices = (s.width + TILE - 1) / TILE, p.column_tiles = (s.value_width + TILE - 1) / TILE;
    p.lane = (int)threadIdx.x % TILE, p.slice = warp % p.slices, p.column_tile = warp / p.slices;
    p.w = p.column_tile * TILE + p.lane, p.inside = p.w < s.value_width;
    return p;
}

/* The sum over the tiles of rows; every thread of a column gets it. */
__device__ __forceinline__ float column_sum(struct shared &m, const struct place &p, float part)
{
    __syncthreads();
    m.sums[p.slice][p.w] = part;
    __syncthreads();
    float sum = 0;
    for (int i = 0; i < p.slices; i++) sum += m.sums[i][p.w];
    return sum;
}

/* One row forward. `decayed`, unless NULL, gets the state before the row, decayed, and `rest` v - k S. */
template <typename T>
__device__ __forceinline__ void step(const struct scan &s, const struct head &head, struct shared &m,
                                     const struct place &p, int64_t h, int64_t row, float (&state)[TILE],
                                     float *decayed, float *rest)
{
    float q_factor, k_factor, seen = 0;
    __syncthreads();
    load_row<T>(s, m.n, row, h / s.group, q_factor, k_factor);
    struct rate r = rate_at<T>(s, head, row, h);
#pragma unroll
    for (int i = 0; i < TILE; i++) {
        state[i] *= r.decay;
        if (decayed != nullptr) decayed[i * (int)blockDim.x + (int)threadIdx.x] = state[i];
        seen = __fmaf_rn(state[i], m.n.k[p.slice * TILE + i], seen);
    }
    seen = s.delta ? column_sum(m, p, seen) * k_factor : 0;
    float left = p.inside ? s.v.at<T>(row, h, p.w) - seen : 0, fresh = r.share * left * k_factor;
    if (rest != nullptr && p.slice == 0 && p.inside) rest[p.w] = left;
#pragma unroll
    for (int i = 0; i < TILE; i++) state[i] = __fmaf_rn(m.n.k[p.slice * TILE + i], fresh, state[i]);
}

/* One row back: ds is the gradient of the state after it, then of that before it. */
template <typename T>
__device__ __forceinline__ void step_back(const struct scan &s, const struct head &head, struct shared &m,
                                          const struct place &p, int64_t h, int64_t row, float (&ds)[TILE],
                                          const float *decayed, const float *rest, const struct gradients &g,
                                          float *dq, float *dk, float *values)
{
    float q_factor, k_factor, du = 0, along = 0;
    __syncthreads();
    load_row<T>(s, m.n, row, h / s.group, q_factor, k_factor);
    struct rate r = rate_at<T>(s, head, row, h);
    float d_out = p.inside ? g.d_out.at<T>(row, h, p.w) : 0, left = p.inside ? rest[p.w] : 0;
    float fresh = r.share * left, to_q = 0, to_k = 0;
#pragma unroll
    for (int i = 0; i < TILE; i++) {
        ds[i] = __fmaf_rn(m.n.q[p.slice * TILE + i] * q_factor, d_out, ds[i]);
        du = __fmaf_rn(ds[i], m.n.k[p.slice * TILE + i], du);
    }
    du = column_sum(m, p, du) * k_factor;
    float dvalue = r.share * du;
#pragma unroll
    for (int i = 0; i < TILE; i++) {
        float before = decayed[i * (int)blockDim.x + (int)threadIdx.x],
              key = m.n.k[p.slice * TILE + i] * k_factor;
        float of_q = lanes_sum(__fmaf_rn(key, fresh, before) * d_out, TILE);
        float of_k = lanes_sum(s.delta ? ds[i] * fresh - before * dvalue : ds[i] * fresh, TILE);
        if (p.lane == i) to_q = of_q, to_k = of_k;
        if (s.delta) ds[i] = __fmaf_rn(-key, dvalue, ds[i]);
        along = __fmaf_rn(ds[i], before, along);
        ds[i] *= r.decay;
    }
    m.dq[p.column_tile][p.slice * TILE + p.lane] = to_q;
    m.dk[p.column_tile][p.slice * TILE + p.lane] = to_k;
    bool first = p.slice == 0 && p.inside;
    float value = first ? s.v.at<T>(row, h, p.w) : 0;
    if (first) g.dv.put<T>(row, h, p.w, __fmaf_rn(head.skip, d_out, dvalue));
    float dg = block_sum(along, m.partial[0]), dshare = block_sum(first ? du * left : 0, m.partial[1]);
    __syncthreads();
    float skipped = block_sum(d_out * value, m.partial[0]);
    for (int e = (int)threadIdx.x; e < s.width; e += (int)blockDim.x) {
        float sum_q = 0, sum_k = 0;
        for (int i = 0; i < p.column_tiles; i++) sum_q += m.dq[i][e], sum_k += m.dk[i][e];
        dq[row * s.width + e] = sum_q;
        dk[row * s.width + e] = sum_k;
    }
    if (threadIdx.x > 0) return;
    float ddt = -head.rate * dg;
    if (s.delta) g.db.put<T>(row, h, 0, dshare * r.share * (1.0f - r.share));
    if (!s.delta) ddt = r.inside ? ddt + dshare : 0;
    float da = ddt / (1.0f + expf(-r.x));
    g.da.put<T>(row, h, 0, da);
    values[row] = da;
    values[s.count + row] = -dg * head.rate * r.dt;
    values[2 * s.count + row] = skipped;
}

template <typename T>
__device__ __forceinline__ void back_through(const struct scan &s, const struct gradients &g,
                                             struct shared &m, const struct place &p, int64_t h,
                                             int64_t begin, int64_t end)
{
    constexpr int64_t CHUNK = TT_SCAN_CHUNK;
    struct head head = head_at(s, h);
    float *lane = g.lanes + (h - g.first) * g.lane, *dq = lane + g.states, *dk = dq + g.half,
          *values = dk + g.half;
    int64_t size = (int64_t)blockDim.x * TILE;
    float *decayed = g.blocks + blockIdx.x * (CHUNK * (size + s.value_width)), *rest = decayed + CHUNK * size;
    float state[TILE] = {}, ds[TILE] = {};
    int64_t last = begin + (end - 1 - begin) / CHUNK * CHUNK;
    for (int64_t row = begin; row < last; row++) {
        step<T>(s, head, m, p, h, row, state, nullptr, nullptr);
        if ((row + 1 - begin) % CHUNK != 0) continue;
        float *kept = lane + state_place(row + 1) * size;
#pragma unroll
        for (int i = 0; i < TILE; i++) kept[i * (int)blockDim.x + (int)threadIdx.x] = state[i];
    }
    for (int64_t chunk = last; chunk >= begin; chunk -= CHUNK) {
        int64_t stop = chunk + CHUNK < end ? chunk + CHUNK : end;
#pragma unroll
        for (int i = 0; i < TILE; i++)
            state[i] =
                chunk == begin ? 0 : lane[state_place(chunk) * size + i * (int)blockDim.x + (int)threadIdx.x];
        for (int64_t row = chunk; row < stop; row++)
            step<T>(s, head, m, p, h, row, state, decayed + (row - chunk) * size,
                    rest + (row - chunk) * s.value_width);
        __syncthreads(); /* rest is written by other threads of the block */
        for (int64_t row = stop - 1; row >= chunk; row--)
            step_back<T>(s, head, m, p, h, row, ds, decayed + (row - chunk) * size,
                         rest + (row - chunk) * s.value_width, g, dq, dk, values);
        __syncthreads();
    }
}

/* Thread blocks take the sequences of the value heads first .. end in turn. */
template <typename T>
__global__ void __launch_bounds__(WARPS_MAX *TILE)
    backward_rows(const struct scan s, const struct gradients g)
{
    extern __shared__ float memory[];
    struct shared &m = *reinterpret_cast<struct shared *>(memory);
    struct place p = place_of(s);
    int64_t heads = g.end - g.first;
    for (int64_t task = blockIdx.x; task < heads * s.sequences; task += gridDim.x) {
        int64_t sequence = task / heads, begin = s.cu[sequence], end = s.cu[sequence + 1];
        if (begin < end) back_through<T>(s, g, m, p, g.first + task % heads, begin, end);
    }
}

/* The gradient of a row before its norm, of the sum over value heads, or the sum so far where more heads follow. A
 * thread block has a row and a key head. */
template <typename T>
__global__ void __launch_bounds__(SUM_THREADS)
    sum_heads(const struct scan s, const struct gradients g, struct rows dq, struct rows dk)
{
    __shared__ float partial[4][32];
    int64_t row = blockIdx.x, key_head = g.first / s.group + blockIdx.y, first = key_head * s.group, at;
    int64_t stop = first + s.group < g.end ? first + s.group : g.end;
    bool begins = first >= g.first, ends = stop == first + s.group;
    int e = (int)threadIdx.x;
    if (!begins) first = g.first;
    for (int i = 0; i < 2; i++) {
        const struct rows &x = i == 0 ? s.q : s.k, &to = i == 0 ? dq : dk;
        float *carried = g.carried + i * g.half + row * s.width, sum = 0, of_x = 0;
        if (e < s.width) {
            sum = begins ? 0 : carried[e];
            for (at = first; at < stop; at++)
                sum += g.lanes[(at - g.first) * g.lane + g.states + i * g.half + row * s.width + e];
            of_x = x.at<T>(row, key_head, e);
        }
        if (!ends) {
            if (e < s.width) carried[e] = sum;
            continue;
        }
        float squares = block_sum(of_x * of_x, partial[2 * i]),
              product = block_sum(of_x * sum, partial[2 * i + 1]);
        float root = s.norm_eps > 0 ? 1.0f / sqrtf(squares + s.norm_eps) : 1.0f,
              scale = i == 0 ? s.scale : 1.0f;
        float along = s.norm_eps > 0 ? product * root * root * root * scale : 0;
        if (e < s.width) to.put<T>(row, key_head, e, sum * root * scale - of_x * along);
    }
}

/* *to += the sum over rows; a thread block has one of the three sums of a value head. */
__global__ void __launch_bounds__(SUM_THREADS)
    sum_rows(const struct gradients g, int64_t count, float *ddt_bias, float *da_log, float *dskip)
{
    __shared__ double partial[32];
    float *to = blockIdx.y == 0 ? ddt_bias : blockIdx.y == 1 ? da_log : dskip;
    if (to == nullptr) return;
    const float *values = g.lanes + blockIdx.x * g.lane + g.states + 2 * g.half + blockIdx.y * count;
    double sum = 0;
    for (int64_t row = threadIdx.x; row < count; row += SUM_THREADS) sum += (double)values[row];
    sum = block_sum(sum, partial);
    if (threadIdx.x == 0) to[g.first + blockIdx.x] += (float)sum;
}

/* Whether forward_row supports the sizes, with loads of 8 bytes. */
bool takes_single_rows(const struct scan &s)
{
    return s.pool != nullptr && s.width % TILE == 0 && s.value_width % (2 * TILE) == 0 &&
           (uintptr_t)s.pool % 8 == 0 && s.pool_stride % 2 == 0;
}

template <typename T>
tt_status forward_typed(struct tt_stream *stream, const struct tt_scan_forward_args *args, int32_t most)
{
    struct scan s = scan_of(args);
    const struct tt_sequences &sequences = args->sequences;
    struct rows o = heads_of(args->o_THW);
    cudaStream_t on = tt_cuda_handle(stream);
    unsigned threads = (unsigned)((s.width + TILE - 1) / TILE) * TILE;
    bool single = false, others = false, takes = takes_single_rows(s);
    for (int64_t b = 0; b < sequences.count; b++) {
        int32_t length = sequences.cu[b + 1] - sequences.cu[b];
        (takes && length == 1 ? single : others) |= length <= most;
    }
    unsigned heads = (unsigned)s.heads, count = (unsigned)s.sequences;
    dim3 pairs(heads, count, (unsigned)(s.value_width / (2 * TILE)));
    if (single) forward_row<T><<<pairs, threads, 0, on>>>(s, o);
    dim3 tiles((unsigned)((s.value_width + TILE - 1) / TILE), heads, count);
    if (others) forward_rows<T><<<tiles, threads, 0, on>>>(s, o, most, !single);
    return tt_cuda_launched(stream, "scan_forward", &args->q_TKE);
}

template <typename T>
tt_status backward_typed(struct tt_stream *stream, const struct tt_scan_backward_args *args)
{
    struct scan s = scan_of(&args->forward);
    struct tt_scan_lanes sizes = tt_scan_lanes_of(&args->forward);
    struct gradients g = {};
    int64_t warps = tt_cuda_scan_state(s.width, s.value_width) / (TILE * TILE);
    cudaStream_t on = tt_cuda_handle(stream);
    if (warps > WARPS_MAX)
        return tt_fail(TT_ERR_UNSUPPORTED,
                       "scan_backward: a state of %d x %d has %lld tiles, GPUs have kernels for %d", s.width,
                       s.value_width, (long long)warps, WARPS_MAX);
    if (s.count == 0) return TT_OK;
    g.d_out = heads_of(args->do_THW), g.dv = heads_of(args->dv_THW);
    g.da = numbers_of(args->da_TH), g.db = numbers_of(args->db_TH);
    g.lanes = static_cast<float *>(args->scratch.data), g.lane = sizes.lane;
    g.carried = g.lanes + sizes.lanes * sizes.lane, g.blocks = g.carried + sizes.carried;
    g.states = sizes.states * sizes.state, g.half = sizes.gradients / 2;
    TT_TRY(tt_cuda_check(cudaFuncSetAttribute(backward_rows<T>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                              (int)sizeof(struct shared)),
                         stream, "scan_backward"));
    for (g.first = 0; g.first < s.heads; g.first = g.end) {
        g.end = g.first + sizes.lanes;
        int64_t stop = s.group > sizes.lanes ? (g.first / s.group + 1) * s.group : s.heads;
        if (g.end > stop) g.end = stop;
        unsigned heads = (unsigned)(g.end - g.first);
        unsigned key_heads = (unsigned)((g.end - 1) / s.group - g.first / s.group + 1);
        backward_rows<T><<<TT_CUDA_SCAN_BLOCKS, (unsigned)warps * TILE, sizeof(struct shared), on>>>(s, g);
        sum_heads<T><<<dim3((unsigned)s.count, key_heads), SUM_THREADS, 0, on>>>(s, g, heads_of(args->dq_TKE),
                                                                                 heads_of(args->dk_TKE));
        sum_rows<<<dim3(heads, 3), SUM_THREADS, 0, on>>>(
            g, s.count, static_cast<float *>(args->ddt_bias_H.data),
            static_cast<float *>(args->da_log_H.data), static_cast<float *>(args->dskip_H.data));
    }
    return tt_cuda_launched(stream, "scan_backward", &args->forward.q_TKE);
}

} // namespace

/* Sequences of some rows are processed by chunks where that is supported, others row by row. */
extern "C" tt_status tt_cuda_scan_forward(struct tt_stream *stream, const struct tt_scan_forward_args *args)
{
    bool chunks = tt_cuda_scan_by_chunks(stream, args, nullptr), rows = false, longer = false;
    const struct tt_sequences &sequences = args->sequences;
    int32_t most = chunks ? TT_SCAN_ROWS_MAX : INT32_MAX;
    for (int64_t b = 0; b < sequences.count; b++)
        (sequences.cu[b + 1] - sequences.cu[b] <= most ? rows : longer) = true;
    if (rows)
        TT_TRY(with_type(args->q_TKE.dtype,
                         [&](auto t) { return forward_typed<decltype(t)>(stream, args, most); }));
    return longer ? tt_cuda_scan_chunks_forward(stream, args) : TT_OK;
}

extern "C" tt_status tt_cuda_scan_backward(struct tt_stream *stream, const struct tt_scan_backward_args *args)
{
    if (tt_cuda_scan_by_chunks(stream, &args->forward, args))
        return tt_cuda_scan_chunks_backward(stream, args);
    return with_type(args->do_THW.dtype, [&](auto t) { return backward_typed<decltype(t)>(stream, args); });
}
