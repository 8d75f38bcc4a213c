#include "backend/cuda/device_math.cuh"
#include "backend/ops/ready_heads.h"

#include "backend/compose.h"

/* A warp has a head of a token: its row in shared memory, where the rotation finds both numbers of a pair. */

namespace
{

constexpr int WARPS = 4, COLUMNS_MAX = 256;

struct head_rows {
    void *data;
    int64_t token_stride, head_stride;
};

struct norm {
    const void *weight; /* NULL: zeros */
    bool is, weight_bf16;
    float offset, eps;
};

struct ready {
    struct head_rows q, k, v;
    struct norm q_norm, k_norm;
    const int32_t *positions, *rows;
    const float *cos, *sin; /* cos NULL: no rotation */
    void *k_cache, *v_cache;
    int64_t k_row, v_row, table_row;
    int tokens, heads, kv_heads, width, half;
    bool pairs;
};

template <typename T> __device__ __forceinline__ float rounded(float x)
{
    vec<T, 1> held;
    float one[1] = {x};
    narrow(held, one);
    widen(held, one);
    return one[0];
}

/* The same operations as in rmsnorm.cu. */
template <typename T> __device__ void norm_row(const struct norm &norm, float *row, int width, int lane)
{
    float squares = 0;
    for (int e = lane; e < width; e += 32) squares = __fmaf_rn(row[e], row[e], squares);
#pragma unroll
    for (int step = 16; step > 0; step /= 2) squares += __shfl_xor_sync(0xffffffffu, squares, step);
    float rstd = 1.0f / sqrtf(squares / (float)width + norm.eps);
    for (int e = lane; e < width; e += 32) {
        float weight = norm.weight != nullptr ? norm.offset + load_either(norm.weight, e, norm.weight_bf16)
                                              : norm.offset;
        row[e] = rounded<T>(__fmul_rn(__fmul_rn(row[e], rstd), weight));
    }
    __syncwarp();
}

/* The number of column e behind the rotation; as in rope.cu. */
__device__ __forceinline__ float rotated(const struct ready &p, const float *row, int64_t table, int e)
{
    if (p.cos == nullptr || e >= 2 * p.half) return row[e];
    int pair = p.pairs ? e / 2 : e % p.half, low = p.pairs ? 2 * pair : pair;
    int high = p.pairs ? low + 1 : low + p.half;
    float c = p.cos[table + pair], s = p.sin[table + pair];
    return e == low ? __fmaf_rn(row[low], c, -__fmul_rn(row[high], s))
                    : __fmaf_rn(row[high], c, __fmul_rn(row[low], s));
}

template <typename T> __global__ void __launch_bounds__(32 * WARPS) ready_rows(const struct ready p)
{
    __shared__ float rows[WARPS][COLUMNS_MAX];
    int all = p.heads + 2 * p.kv_heads, lane = threadIdx.x % 32;
    int64_t item = (int64_t)blockIdx.x * WARPS + threadIdx.x / 32, t = item / all;
    if (t >= p.tokens) return;
    float *row = rows[threadIdx.x / 32];
    int h = (int)(item - t * all);
    bool is_q = h < p.heads, is_k = !is_q && h < p.heads + p.kv_heads;
    int own = is_q ? h : is_k ? h - p.heads : h - p.heads - p.kv_heads;
    const struct head_rows &from = is_q ? p.q : is_k ? p.k : p.v;
    T *x = static_cast<T *>(from.data) + t * from.token_stride + own * from.head_stride;
    for (int e = lane; e < p.width; e += 32) row[e] = load_one(x + e);
    __syncwarp();
    const struct norm &norm = is_q ? p.q_norm : p.k_norm;
    if ((is_q || is_k) && norm.is) norm_row<T>(norm, row, p.width, lane);
    T *cache = nullptr;
    if (is_k) cache = static_cast<T *>(p.k_cache) + p.rows[t] * p.k_row + own * p.width;
    if (!is_q && !is_k) cache = static_cast<T *>(p.v_cache) + p.rows[t] * p.v_row + own * p.width;
    int64_t table = p.cos != nullptr ? p.positions[t] * p.table_row : 0;
    for (int e = lane; e < p.width; e += 32) {
        float value = is_q || is_k ? rotated(p, row, table, e) : row[e];
        if (is_q || is_k) store_one(x + e, value);
        if (cache != nullptr) store_one(cache + e, value);
    }
}

struct head_rows rows_of(const tt_tensor &x)
{
    return {x.data, x.strides[0], x.strides[1]};
}

struct norm norm_of(const struct tt_head_norm &norm)
{
    return {norm.weight_E.data, norm.is, norm.weight_E.dtype == TT_BF16, norm.offset, (float)norm.eps};
}

} // namespace

extern "C" tt_status tt_cuda_ready_heads(struct tt_stream *stream, const struct tt_ready_heads_args *args)
{
    const tt_tensor &q = args->q_THE;
    int64_t all = q.dims[0] * (q.dims[1] + 2 * args->k_TKE.dims[1]);
    if (q.dims[2] > COLUMNS_MAX || all > INT32_MAX / 32) return tt_compose_ready_heads(stream, args);
    struct ready p = {};
    p.q = rows_of(q), p.k = rows_of(args->k_TKE), p.v = rows_of(args->v_TKE);
    p.q_norm = norm_of(args->q_norm), p.k_norm = norm_of(args->k_norm);
    p.rows = static_cast<const int32_t *>(args->rows_T.data);
    if (!tt_tensor_is_empty(args->cos_PE)) {
        p.positions = static_cast<const int32_t *>(args->positions_T.data);
        p.cos = static_cast<const float *>(args->cos_PE.data);
        p.sin = static_cast<const float *>(args->sin_PE.data);
        p.half = (int)args->cos_PE.dims[1], p.table_row = args->cos_PE.dims[1];
    }
    p.pairs = args->pairs;
    p.k_cache = args->k_cache_RC.data, p.v_cache = args->v_cache_RC.data;
    p.k_row = args->k_cache_RC.strides[0], p.v_row = args->v_cache_RC.strides[0];
    p.tokens = (int)q.dims[0], p.heads = (int)q.dims[1], p.kv_heads = (int)args->k_TKE.dims[1];
    p.width = (int)q.dims[2];
    return with_type(q.dtype, [&](auto t) {
        ready_rows<decltype(t)>
            <<<(unsigned)((all + WARPS - 1) / WARPS), 32 * WARPS, 0, tt_cuda_handle(stream)>>>(p);
        return tt_cuda_launched(stream, "ready_heads", &q);
    });
}
