#include "backend/cuda/quant/rows_e4m3.cuh"

namespace
{

/* A thread rotates the same W pairs in HEADS neighbouring heads of a token, so that it reads a piece of the
 * tables once for all of them. Threads along x share a head; threads along y have the next heads, then the next
 * tokens. PAIRS: neighbours rotate together, and lie in one run of 2 W columns. */
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

/* W pairs; the same operations in both kernels, so that they give the same bits. */
template <int W>
__device__ __forceinline__ void rotate(float (&a)[W], float (&b)[W], const float (&c)[W], const float (&s)[W],
                                     float direction)
{
#pragma unroll
    for (int j = 0; j < W; j++) {
        float sine = __fmul_rn(s[j], direction), rotated = __fmaf_rn(a[j], c[j], -__fmul_rn(b[j], sine));
        b[j] = __fmaf_rn(b[j], c[j], __fmul_rn(a[j], sine));
        a[j] = rotated;
    }
}

/* Two runs of W columns that lie one behind the other -> their even columns and their odd ones. */
template <int W> __device__ __forceinline__ void part(float (&a)[W], float (&b)[W])
{
    float both[2 * W];
#pragma unroll
    for (int j = 0; j < W; j++) both[j] = a[j], both[W + j] = b[j];
#pragma unroll
    for (int j = 0; j < W; j++) a[j] = both[2 * j], b[j] = both[2 * j + 1];
}

/* Undoes `part`. */
template <int W> __device__ __forceinline__ void join(float (&a)[W], float (&b)[W])
{
    float both[2 * W];
#pragma unroll
    for (int j = 0; j < W; j++) both[2 * j] = a[j], both[2 * j + 1] = b[j];
#pragma unroll
    for (int j = 0; j < W; j++) a[j] = both[j], b[j] = both[W + j];
}

template <typename T, int W, bool PAIRS>
__global__ void __launch_bounds__(THREADS) rotate(T *x, const struct rotation r)
{
    int64_t item = (int64_t)blockIdx.x * blockDim.y + threadIdx.y;
    int64_t t = item >> 31 == 0 ? (uint32_t)item / (uint32_t)r.head_groups : item / r.head_groups;
    if (t >= r.tokens) return;
    int64_t h = (item - t * r.head_groups) * HEADS, heads = r.heads - h;
    int64_t table_at = (int64_t)r.positions[t] * r.table_stride;
    T *token = x + t * r.token_stride + h * r.head_stride;
    int64_t apart = PAIRS ? W : r.half;
    for (int64_t e = (int64_t)threadIdx.x * W; e < r.half; e += (int64_t)blockDim.x * W) {
        vec<T, W> low[HEADS], high[HEADS];
        T *columns = token + (PAIRS ? 2 * e : e);
#pragma unroll
        for (int i = 0; i < HEADS; i++) {
            if (i >= heads) break;
            low[i] = load<T, W>(columns + i * r.head_stride);
            high[i] = load<T, W>(columns + i * r.head_stride + apart);
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
            if constexpr (PAIRS) part(a, b);
            rotate(a, b, c, s, r.direction);
            if constexpr (PAIRS) join(a, b);
            narrow(low[i], a);
            narrow(high[i], b);
            store(columns + i * r.head_stride, low[i]);
            store(columns + i * r.head_stride + apart, high[i]);
        }
    }
}

template <typename T, int W>
void launch(struct tt_stream *stream, T *x, const struct rotation &r, bool neighbours)
{
    int64_t pieces = r.half / W, items = r.tokens * r.head_groups;
    unsigned across = (unsigned)(pieces < THREADS ? pieces : THREADS);
    dim3 threads(across, (unsigned)THREADS / across);
    unsigned blocks = (unsigned)((items + threads.y - 1) / threads.y);
    if (neighbours)
        rotate<T, W, true><<<blocks, threads, 0, tt_cuda_handle(stream)>>>(x, r);
    else
        rotate<T, W, false><<<blocks, threads, 0, tt_cuda_handle(stream)>>>(x, r);
}

/* A thread block has a row: its first columns, whole heads, are rotated; then the row is in registers, rounded as it is
 * stored, when its largest size is known. A thread has CHUNKS pairs of vectors: those that rotate together, or two
 * neighbours of the columns behind. */
constexpr int ROW_VECTOR = 8, ROW_THREADS = 512;

struct row_rotation {
    bf16 *rows;
    struct coded_rows coded;
    int64_t row_stride, table_stride;
    const int32_t *positions;
    const float *cos, *sin;
    float direction;
    int cols, rotated_cols, half;
};

template <int CHUNKS> __global__ void __launch_bounds__(ROW_THREADS) rotate_rows(const struct row_rotation r)
{
    constexpr int W = ROW_VECTOR;
    __shared__ uint32_t sizes[ROW_WARP];
    int64_t t = blockIdx.x;
    bf16 *row = r.rows + t * r.row_stride;
    int pairs = r.cols / (2 * W), rotated_pairs = r.rotated_cols / (2 * W), in_head = r.half / W;
    int low_at[CHUNKS], high_at[CHUNKS];
    vec<bf16, W> low[CHUNKS], high[CHUNKS];
    uint32_t largest = 0;
#pragma unroll
    for (int k = 0; k < CHUNKS; k++) {
        int pair = (int)threadIdx.x + k * (int)blockDim.x;
        if (pair >= pairs) break;
        bool rotates = pair < rotated_pairs;
        low_at[k] = rotates ? pair / in_head * 2 * r.half + pair % in_head * W : pair * 2 * W;
        high_at[k] = low_at[k] + (rotates ? r.half : W);
        low[k] = load<bf16, W>(row + low_at[k]);
        high[k] = load<bf16, W>(row + high_at[k]);
    }
    int64_t table_at = (int64_t)r.positions[t] * r.table_stride;
#pragma unroll
    for (int k = 0; k < CHUNKS; k++) {
        int pair = (int)threadIdx.x + k * (int)blockDim.x;
        if (pair >= pairs) break;
        float a[W], b[W];
        widen(low[k], a);
        widen(high[k], b);
        if (pair < rotated_pairs) {
            float c[W], s[W];
            load_table(r.cos + table_at + pair % in_head * W, c);
            load_table(r.sin + table_at + pair % in_head * W, s);
            rotate(a, b, c, s, r.direction);
            narrow(low[k], a);
            narrow(high[k], b);
            store(row + low_at[k], low[k]);
            store(row + high_at[k], high[k]);
            widen(low[k], a);
            widen(high[k], b);
        }
        largest = largest_of(largest_of(largest, a), b);
    }
    float scale = row_scale(block_largest(largest, sizes));
    struct row_divisor by = divisor_of(scale);
    if (threadIdx.x == 0) r.coded.scale[t] = scale;
    uint8_t *codes = r.coded.codes + t * r.cols;
#pragma unroll
    for (int k = 0; k < CHUNKS; k++) {
        if ((int)threadIdx.x + k * (int)blockDim.x >= pairs) break;
        float x[W];
        widen(low[k], x);
        store_codes(codes + low_at[k], x, by);
        widen(high[k], x);
        store_codes(codes + high_at[k], x, by);
    }
}

/* Whether rotate_rows takes these rows. */
bool rows_fit(const struct tt_rope_args *args)
{
    const tt_tensor &rows = args->rows_TC;
    int64_t most = (int64_t)4 * ROW_THREADS * 2 * ROW_VECTOR;
    return !args->pairs && rows.dtype == TT_BF16 && args->x_THE.dims[2] % (2 * ROW_VECTOR) == 0 &&
           args->x_THE.dims[1] > 0 && args->x_THE.dims[2] > 0 && rows.dims[1] % (2 * ROW_VECTOR) == 0 &&
           rows.dims[1] <= most && is_aligned(rows, ROW_VECTOR) && is_aligned(args->cos_PE, 4) &&
           is_aligned(args->sin_PE, 4) && (uintptr_t)args->codes_TC.data % 8 == 0;
}

tt_status rope_rows(struct tt_stream *stream, const struct tt_rope_args *args)
{
    const tt_tensor &rows = args->rows_TC, &x = args->x_THE;
    struct row_rotation r = {static_cast<bf16 *>(rows.data),
                             coded_of(args->codes_TC, args->scale_T),
                             rows.strides[0],
                             args->cos_PE.strides[0],
                             static_cast<const int32_t *>(args->positions_T.data),
                             static_cast<const float *>(args->cos_PE.data),
                             static_cast<const float *>(args->sin_PE.data),
                             args->inverse ? -1.0f : 1.0f,
                             (int)rows.dims[1],
                             (int)(x.dims[1] * x.dims[2]),
                             (int)(x.dims[2] / 2)};
    cudaStream_t on = tt_cuda_handle(stream);
    int pairs = r.cols / (2 * ROW_VECTOR), chunks = pairs <= ROW_THREADS       ? 1
                                                    : pairs <= 2 * ROW_THREADS ? 2
                                                                               : 4;
    unsigned blocks = (unsigned)rows.dims[0],
             threads = (unsigned)((pairs + chunks - 1) / chunks + ROW_WARP - 1) / ROW_WARP * ROW_WARP;
    if (chunks == 1)
        rotate_rows<1><<<blocks, threads, 0, on>>>(r);
    else if (chunks == 2)
        rotate_rows<2><<<blocks, threads, 0, on>>>(r);
    else
        rotate_rows<4><<<blocks, threads, 0, on>>>(r);
    return tt_cuda_launched(stream, "rope", &rows);
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
        launch<T, W>(stream, static_cast<T *>(x.data), r, args->pairs);
    else
        launch<T, 1>(stream, static_cast<T *>(x.data), r, args->pairs);
    return tt_cuda_launched(stream, "rope", &x);
}

} // namespace

extern "C" tt_status tt_cuda_rope(struct tt_stream *stream, const struct tt_rope_args *args)
{
    bool coded = !tt_tensor_is_empty(args->codes_TC) && args->codes_TC.dims[0] > 0;
    if (coded && rows_fit(args)) return rope_rows(stream, args);
    TT_TRY(with_type(args->x_THE.dtype, [&](auto t) { return rope_typed<decltype(t)>(stream, args); }));
    struct tt_quantize_rows_args rows = {args->rows_TC, args->codes_TC, args->scale_T};
    return coded ? tt_cuda_quantize_rows(stream, &rows) : TT_OK;
}
