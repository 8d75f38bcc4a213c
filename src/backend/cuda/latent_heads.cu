#include "backend/cuda/device_math.cuh"

/* A thread block has a token, whose heads it takes one after the other: a thread has columns of them, or pairs that
 * rotate together. The gradient of the shared columns is a sum in a thread's registers. */

namespace
{

constexpr int THREADS = 128;

template <typename T> struct heads {
    T *data;
    int64_t token_stride, head_stride;

    __device__ __forceinline__ T *at(int64_t token, int64_t head) const
    {
        return data + token * token_stride + head * head_stride;
    }
};

template <typename T> struct heads<T> heads_of(const tt_tensor &x) {
    return {static_cast<T *>(x.data), x.strides[0], x.strides[1]};
}

template <typename T>
struct heads<T> columns_of(const tt_tensor &x, int64_t each) {
    return {static_cast<T *>(x.data), x.strides[0], each};
}

template <typename T>
struct latent {
    struct heads<T> q, k, v, from_q, from_kv, shared;
    struct tt_latent_widths widths;
    int64_t width, table_stride, original;
    const int32_t *positions;
    const float *cos, *sin;
    float temperature;
    bool pairs;
};

struct pair {
    float a, b;
};

__device__ __forceinline__ struct pair turned(struct pair x, float c, float s)
{
    return {__fmaf_rn(x.a, c, -__fmul_rn(x.b, s)), __fmaf_rn(x.b, c, __fmul_rn(x.a, s))};
}

template <typename T> __device__ __forceinline__ void clear(T *to, int64_t first, int64_t end)
{
    for (int64_t d = first + threadIdx.x; d < end; d += THREADS) store_one(to + d, 0.0f);
}

template <typename T> __device__ __forceinline__ void move(T *to, const T *from, int64_t count, float factor)
{
    for (int64_t d = threadIdx.x; d < count; d += THREADS) store_one(to + d, load_one(from + d) * factor);
}

template <typename T>
__device__ __forceinline__ struct pair load_pair(const T *from, int64_t low, int64_t high)
{
    return {load_one(from + low), load_one(from + high)};
}

template <typename T>
__device__ __forceinline__ void store_pair(T *to, int64_t low, int64_t high, struct pair x, float factor)
{
    store_one(to + low, x.a * factor);
    store_one(to + high, x.b * factor);
}

template <typename T, bool BACKWARD> __global__ void __launch_bounds__(THREADS) lay(const struct latent<T> p)
{
    int64_t t = blockIdx.x, position = p.positions[t], half = p.widths.rotated / 2;
    int64_t plain = p.widths.plain, rotated = p.widths.rotated, value = p.widths.value;
    float factor = 1.0f;
    if (p.temperature != 0.0f)
        factor = __fmaf_rn(p.temperature, logf(1.0f + (float)(position / p.original)), 1.0f);
    for (int64_t h = 0; h < p.widths.heads; h++) {
        T *q = p.q.at(t, h), *k = p.k.at(t, h), *v = p.v.at(t, h);
        T *of_q = p.from_q.at(t, h), *of_kv = p.from_kv.at(t, h);
        if constexpr (BACKWARD) {
            move(of_q, q, plain, factor);
            move(of_kv, k, plain, 1.0f);
            move(of_kv + plain, v, value, 1.0f);
        } else {
            move(q, of_q, plain, factor);
            move(k, of_kv, plain, 1.0f);
            move(v, of_kv + plain, value, 1.0f);
            clear(q, plain + rotated, p.width);
            clear(k, plain + rotated, p.width);
            clear(v, value, p.width);
        }
    }
    T *shared = p.shared.at(t, 0);
    for (int64_t e = threadIdx.x; e < half; e += THREADS) {
        int64_t low = p.pairs ? 2 * e : e, high = p.pairs ? 2 * e + 1 : e + half;
        float c = p.cos[position * p.table_stride + e], s = p.sin[position * p.table_stride + e];
        struct pair of_keys = {0.0f, 0.0f};
        if constexpr (BACKWARD)
            s = -s;
        else
            of_keys = turned(load_pair(shared, low, high), c, s);
        for (int64_t h = 0; h < p.widths.heads; h++) {
            T *q = p.q.at(t, h) + plain, *k = p.k.at(t, h) + plain, *of_q = p.from_q.at(t, h) + plain;
            if constexpr (BACKWARD) {
                struct pair more = load_pair(k, low, high);
                store_pair(of_q, low, high, turned(load_pair(q, low, high), c, s), factor);
                of_keys.a += more.a;
                of_keys.b += more.b;
            } else {
                store_pair(q, low, high, turned(load_pair(of_q, low, high), c, s), factor);
                store_pair(k, low, high, of_keys, 1.0f);
            }
        }
        if constexpr (BACKWARD) store_pair(shared, low, high, turned(of_keys, c, s), 1.0f);
    }
}

template <typename T>
tt_status latent_typed(struct tt_stream *stream, const struct tt_latent_heads_args *args)
{
    struct latent<T> p = {
    };
    p.widths = tt_latent_widths_of(args);
    p.q = heads_of<T>(args->q_THW), p.k = heads_of<T>(args->k_THW), p.v = heads_of<T>(args->v_THW);
    p.from_q = columns_of<T>(args->q_TC, p.widths.plain + p.widths.rotated);
    p.from_kv = columns_of<T>(args->kv_TC, p.widths.plain + p.widths.value);
    p.shared = columns_of<T>(args->shared_TR, 0);
    p.width = args->q_THW.dims[2], p.table_stride = args->cos_PE.strides[0];
    p.original = args->original_positions > 0 ? args->original_positions : 1;
    p.positions = static_cast<const int32_t *>(args->positions_T.data);
    p.cos = static_cast<const float *>(args->cos_PE.data);
    p.sin = static_cast<const float *>(args->sin_PE.data);
    p.temperature = (float)args->temperature, p.pairs = args->pairs;
    unsigned tokens = (unsigned)args->q_THW.dims[0];
    if (tokens == 0) return TT_OK;
    if (args->backward)
        lay<T, true><<<tokens, THREADS, 0, tt_cuda_handle(stream)>>>(p);
    else
        lay<T, false><<<tokens, THREADS, 0, tt_cuda_handle(stream)>>>(p);
    return tt_cuda_launched(stream, "latent_heads", &args->q_THW);
}

} // namespace

extern "C" tt_status tt_cuda_latent_heads(struct tt_stream *stream, const struct tt_latent_heads_args *args)
{
    return with_type(args->q_THW.dtype, [&](auto t) { return latent_typed<decltype(t)>(stream, args); });
}
