#include "backend/cuda/device_math.cuh"

namespace
{

/* A thread rotates the same W pairs in HEADS neighbouring heads of a token, so that it reads a piece of the
 * tables once for all of them. Threads along x share a head; threads along y have the next heads, then the next
 * tokens. */
constexpr int64_t THREADS = 256;
constexpr int HEADS = 4;

struct rotation {
    int64_t token_stride, head_stride, table_stride;
    int64_t tokens, heads, half;
    int64_t head_groups;
    const int32_t *positions;
    const float *cos, *sin;
    float direction;
};

template <int W> __device__ __forceinline__ void load_table(const float *from, float (&x)[W])
{
    constexpr int each = W < 4 ? W : 4;
#pragma unroll
    for (int i = 0; i < W; i += each) {
        float part[each];
        widen(load<float, each>(from + i), part);
#pragma unroll
        for (int j = 0; j < each; j++) x[i + j] = part[j];
    }
}

template <typename T, int W> __global__ void __launch_bounds__(THREADS) rotate(T *x, const struct rotation r)
{
    int64_t item = (int64_t)blockIdx.x * blockDim.y + threadIdx.y;
    int64_t t = item >> 31 == 0 ? (uint32_t)item / (uint32_t)r.head_groups : item / r.head_groups;
    if (t >= r.tokens) return;
    int64_t h = (item - t * r.head_groups) * HEADS, heads = r.heads - h;
    int64_t table_at = (int64_t)r.positions[t] * r.table_stride;
    T *token = x + t * r.token_stride + h * r.head_stride;
    for (int64_t e = (int64_t)threadIdx.x * W; e < r.half; e += (int64_t)blockDim.x * W) {
        vec<T, W> low[HEADS], high[HEADS];
#pragma unroll
        for (int i = 0; i < HEADS; i++) {
            if (i >= heads) break;
            low[i] = load<T, W>(token + i * r.head_stride + e);
            high[i] = load<T, W>(token + i * r.head_stride + r.half + e);
        }
        float c[W], s[W];
        load_table(r.cos + table_at + e, c);
        load_table(r.sin + table_at + e, s);
#pragma unroll
        for (int i = 0; i < HEADS; i++) {
            if (i >= heads) break;
            float a[W], b[W];
            widen(low[i], a);
            widen(high[i], b);
#pragma unroll
            for (int j = 0; j < W; j++) {
                float turned = a[j] * c[j] - b[j] * (s[j] * r.direction);
                b[j] = b[j] * c[j] + a[j] * (s[j] * r.direction);
                a[j] = turned;
            }
            narrow(low[i], a);
            narrow(high[i], b);
            store(token + i * r.head_stride + e, low[i]);
            store(token + i * r.head_stride + r.half + e, high[i]);
        }
    }
}

template <typename T, int W> void launch(struct tt_stream *stream, T *x, const struct rotation &r)
{
    int64_t pieces = r.half / W, items = r.tokens * r.head_groups;
    unsigned across = (unsigned)(pieces < THREADS ? pieces : THREADS);
    dim3 threads(across, (unsigned)THREADS / across);
    unsigned blocks = (unsigned)((items + threads.y - 1) / threads.y);
    rotate<T, W><<<blocks, threads, 0, tt_cuda_handle(stream)>>>(x, r);
}

template <typename T> tt_status rope_typed(struct tt_stream *stream, const struct tt_rope_args *args)
{
    constexpr int W = wide<T>();
    const tt_tensor &x = args->x_THE;
    struct rotation r = {};
    r.tokens = x.dims[0], r.heads = x.dims[1], r.half = x.dims[2] / 2;
    if (r.tokens == 0 || r.heads == 0 || r.half == 0) return TT_OK;
    r.head_groups = (r.heads + HEADS - 1) / HEADS;
    r.token_stride = x.strides[0], r.head_stride = x.strides[1];
    r.table_stride = args->cos_PE.strides[0];
    r.positions = static_cast<const int32_t *>(args->positions_T.data);
    r.cos = static_cast<const float *>(args->cos_PE.data);
    r.sin = static_cast<const float *>(args->sin_PE.data);
    r.direction = args->inverse ? -1.0f : 1.0f;
    bool aligned =
        r.half % W == 0 && is_aligned(x, W) && is_aligned(args->cos_PE, 4) && is_aligned(args->sin_PE, 4);
    if (aligned)
        launch<T, W>(stream, static_cast<T *>(x.data), r);
    else
        launch<T, 1>(stream, static_cast<T *>(x.data), r);
    return tt_cuda_launched(stream, "rope", &x);
}

} // namespace

extern "C" tt_status tt_cuda_rope(struct tt_stream *stream, const struct tt_rope_args *args)
{
    return with_type(args->x_THE.dtype, [&](auto t) { return rope_typed<decltype(t)>(stream, args); });
}
