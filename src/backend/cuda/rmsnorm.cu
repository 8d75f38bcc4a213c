#include "backend/cuda/quant/rows_e4m3.cuh"

/* Two kernels per direction. The first holds rows in registers: `lanes` threads share a row, each with CHUNKS
 * vectors of 16 bytes; a short row uses a part of a warp, with several rows in a thread block, a long row a
 * whole thread block. The second supports rows of any width and alignment: a thread block per row, which it
 * reads twice.
 *
 * With CODED also the result's rows in FP8: the first kind of kernel has the row in registers when its largest size is
 * known; the second reads it again. A short row then has a warp of its own.
 *
 * For a weight gradient the rows are divided into groups whose borders depend on the shape alone. A thread block
 * sums its group into a line of the scratch, and the lines are added in order. */

namespace
{

constexpr int BLOCK_THREADS = 512, GENERAL_THREADS = 256, SHORT_THREADS = 256, SHORT_ROWS = 2;
constexpr int64_t GROUP_ROWS_MIN = 4;

/* Row n of all dimensions but the last. All tensors of an op have one shape, so the indices are computed once. */
struct place {
    int64_t outer, inner;
};

__device__ __forceinline__ struct place place_of(int64_t n, int64_t inner)
{
    if (inner == 1) return {n, 0};
    int64_t outer = n >> 31 == 0 ? (uint32_t)n / (uint32_t)inner : n / inner;
    return {outer, n - outer * inner};
}

struct rows {
    void *data; /* NULL: not given */
    int64_t outer_stride, inner_stride;

    template <typename T> __device__ __forceinline__ T *at(const struct place &row) const
    {
        return static_cast<T *>(data) + row.outer * outer_stride + row.inner * inner_stride;
    }
};

struct rows rows_of(const tt_tensor &x)
{
    if (tt_tensor_is_empty(x)) return {};
    return {x.data, x.strides[0], x.rank == 2 ? 0 : x.strides[1]};
}

int64_t row_count(const tt_tensor &x)
{
    return x.rank == 2 ? x.dims[0] : x.dims[0] * x.dims[1];
}

struct forward {
    struct rows x, residual, sum, y; /* y: may be missing with coded */
    const void *weight;              /* NULL: zeros */
    float *rstd;
    struct coded_rows coded;
    int64_t count, inner, width;
    float eps, offset;
    bool weight_bf16;
};

struct backward {
    struct rows dy, x, dres, dx;
    struct coded_rows coded;
    const void *weight;
    const float *rstd;
    float *lines; /* a line of the scratch per group; NULL: no weight gradient */
    int64_t count, inner, width, group_rows;
    float offset;
    bool weight_bf16;
};

/* offset + weight */
template <typename P> __device__ __forceinline__ float scale_at(const P &p, int64_t d)
{
    return p.weight != nullptr ? p.offset + load_either(p.weight, d, p.weight_bf16) : p.offset;
}

template <typename P, int W>
__device__ __forceinline__ void scales_at(const P &p, int64_t d, float (&scale)[W])
{
    if (p.weight != nullptr) load_either(p.weight, d, p.weight_bf16, scale);
#pragma unroll
    for (int i = 0; i < W; i++) scale[i] = p.weight != nullptr ? scale[i] + p.offset : p.offset;
}

/* The same operations in every kernel, so that each gives the same bits. */
__device__ __forceinline__ float normed(float x, float rstd, float weight)
{
    return __fmul_rn(__fmul_rn(x, rstd), weight);
}

/* r + (dy weight - xhat mean) rstd */
__device__ __forceinline__ float gradient(float dy, float weight, float xhat, float mean, float rstd, float r)
{
    return __fmaf_rn(__fmaf_rn(-xhat, mean, __fmul_rn(dy, weight)), rstd, r);
}

template <typename T> __device__ __forceinline__ float rounded_to(float x)
{
    vec<T, 1> held;
    float one[1] = {x};
    narrow(held, one);
    widen(held, one);
    return one[0];
}

/* One over the root of the mean of squares. */
__device__ __forceinline__ float rstd_of(float squares, const struct forward &f)
{
    return 1.0f / sqrtf(squares / (float)f.width + f.eps);
}

template <typename T, int CHUNKS, bool CODED>
__global__ void __launch_bounds__(BLOCK_THREADS) forward_held(const struct forward f)
{
    constexpr int W = wide<T>();
    __shared__ float partial[32];
    int64_t n = blockIdx.x;
    struct place place = place_of(n, f.inner);
    int first = (int)threadIdx.x * W, step = (int)blockDim.x * W, width = (int)f.width;
    vec<T, W> held[CHUNKS], added[CHUNKS];
    const T *x = f.x.at<const T>(place);
#pragma unroll
    for (int k = 0; k < CHUNKS; k++)
        if (first + k * step < width) held[k] = load<T, W>(x + first + k * step);
    if (f.residual.data != nullptr) {
        const T *residual = f.residual.at<const T>(place);
        T *sum = f.sum.at<T>(place);
#pragma unroll
        for (int k = 0; k < CHUNKS; k++)
            if (first + k * step < width) added[k] = load<T, W>(residual + first + k * step);
#pragma unroll
        for (int k = 0; k < CHUNKS; k++) {
            if (first + k * step >= width) break;
            float p[W], q[W];
            widen(held[k], p);
            widen(added[k], q);
#pragma unroll
            for (int i = 0; i < W; i++) p[i] += q[i];
            narrow(held[k], p);
            store(sum + first + k * step, held[k]);
        }
    }
    float squares = 0;
    float weight[CHUNKS][W];
#pragma unroll
    for (int k = 0; k < CHUNKS; k++) {
        if (first + k * step >= width) break;
        float p[W];
        widen(held[k], p);
#pragma unroll
        for (int i = 0; i < W; i++) squares += p[i] * p[i];
        scales_at(f, first + k * step, weight[k]);
    }
    float rstd = rstd_of(block_sum(squares, partial), f);
    if (threadIdx.x == 0 && f.rstd != nullptr) f.rstd[n] = rstd;
    T *y = f.y.at<T>(place);
    uint32_t largest = 0;
#pragma unroll
    for (int k = 0; k < CHUNKS; k++) {
        if (first + k * step >= width) break;
        float p[W];
        widen(held[k], p);
#pragma unroll
        for (int i = 0; i < W; i++) p[i] = normed(p[i], rstd, weight[k][i]);
        narrow(held[k], p);
        if (!CODED || f.y.data != nullptr) store(y + first + k * step, held[k]);
        if constexpr (CODED) {
            widen(held[k], p);
            largest = largest_of(largest, p);
        }
    }
    if constexpr (CODED) store_held_codes(f.coded, n, width, held, largest);
}

/* A thread has the same vector of ROWS rows, blockDim.y rows apart. */
template <typename T, int ROWS>
__global__ void __launch_bounds__(SHORT_THREADS) forward_short(const struct forward f)
{
    constexpr int W = wide<T>();
    int64_t first = (int64_t)blockIdx.x * blockDim.y * ROWS + threadIdx.y;
    int d = (int)threadIdx.x * W;
    bool inside = d < f.width;
    vec<T, W> held[ROWS], added[ROWS];
    struct place places[ROWS];
#pragma unroll
    for (int k = 0; k < ROWS; k++) {
        int64_t n = first + k * (int)blockDim.y;
        held[k] = {}, added[k] = {};
        struct place place = places[k] = place_of(n, f.inner);
        if (!inside || n >= f.count) continue;
        held[k] = load<T, W>(f.x.at<const T>(place) + d);
        if (f.residual.data != nullptr) added[k] = load<T, W>(f.residual.at<const T>(place) + d);
    }
    float weight[W] = {};
    if (inside) scales_at(f, d, weight);
#pragma unroll
    for (int k = 0; k < ROWS; k++) {
        int64_t n = first + k * (int)blockDim.y;
        struct place place = places[k];
        bool stores = inside && n < f.count;
        float p[W], squares = 0;
        if (f.residual.data != nullptr) {
            float q[W];
            widen(held[k], p);
            widen(added[k], q);
#pragma unroll
            for (int i = 0; i < W; i++) p[i] += q[i];
            narrow(held[k], p);
            if (stores) store(f.sum.at<T>(place) + d, held[k]);
        }
        widen(held[k], p);
#pragma unroll
        for (int i = 0; i < W; i++) squares += p[i] * p[i];
        float rstd = rstd_of(lanes_sum(squares, (int)blockDim.x), f);
        if (!stores) continue;
        if (d == 0 && f.rstd != nullptr) f.rstd[n] = rstd;
#pragma unroll
        for (int i = 0; i < W; i++) p[i] = normed(p[i], rstd, weight[i]);
        narrow(held[k], p);
        store(f.y.at<T>(place) + d, held[k]);
    }
}

template <typename T> __global__ void __launch_bounds__(GENERAL_THREADS) forward_any(const struct forward f)
{
    __shared__ float partial[32];
    int64_t n = blockIdx.x;
    struct place place = place_of(n, f.inner);
    const T *x = f.x.at<const T>(place);
    float squares = 0;
    for (int64_t d = threadIdx.x; d < f.width; d += GENERAL_THREADS) {
        float value = load_one(x + d);
        if (f.residual.data != nullptr) {
            vec<T, 1> rounded;
            float sum[1] = {value + load_one(f.residual.at<const T>(place) + d)};
            narrow(rounded, sum);
            store(f.sum.at<T>(place) + d, rounded);
            widen(rounded, sum);
            value = sum[0];
        }
        squares += value * value;
    }
    float rstd = rstd_of(block_sum(squares, partial), f);
    if (threadIdx.x == 0 && f.rstd != nullptr) f.rstd[n] = rstd;
    if (f.residual.data != nullptr) x = f.sum.at<const T>(place);
    if (f.y.data != nullptr)
        for (int64_t d = threadIdx.x; d < f.width; d += GENERAL_THREADS)
            store_one(f.y.at<T>(place) + d, normed(load_one(x + d), rstd, scale_at(f, d)));
    if (f.coded.codes == nullptr) return;
    /* y may be x where there is no residual: each thread reads back what it has stored. */
    const T *y = f.y.data != nullptr ? f.y.at<const T>(place) : nullptr;
    auto value = [&](int64_t d) {
        return y != nullptr ? load_one(y + d) : rounded_to<T>(normed(load_one(x + d), rstd, scale_at(f, d)));
    };
    store_codes_any(f.coded, n, f.width, value);
}

/* The most threads of a block, and how many blocks share a multiprocessor at least: with two chunks a row of 4,096 has
 * 256 threads (shape_of), and codes would take registers that leave room for two blocks instead of four. */
template <int CHUNKS, bool WEIGHT> constexpr int most_threads = CHUNKS == 2 && !WEIGHT ? 256 : BLOCK_THREADS;
template <int CHUNKS, bool WEIGHT> constexpr int least_blocks = CHUNKS == 2 && !WEIGHT ? 4 : 0;

/* A thread block processes the rows from blockIdx.x * group_rows on. */
template <typename T, int CHUNKS, bool WEIGHT, bool CODED>
__global__ void __launch_bounds__(most_threads<CHUNKS, WEIGHT>, least_blocks<CHUNKS, WEIGHT>)
    backward_held(const struct backward b)
{
    constexpr int W = wide<T>();
    __shared__ float partial[2][32];
    int first = (int)threadIdx.x * W, step = (int)blockDim.x * W, width = (int)b.width;
    int64_t begin = blockIdx.x * b.group_rows,
            end = begin + b.group_rows < b.count ? begin + b.group_rows : b.count;
    float line[WEIGHT ? CHUNKS : 1][W] = {};
    int turn = 0;
    for (int64_t n = begin; n < end; n++) {
        struct place place = place_of(n, b.inner);
        vec<T, W> dy_held[CHUNKS], x_held[CHUNKS], dres_held[CHUNKS];
        const T *dy = b.dy.at<const T>(place), *x = b.x.at<const T>(place);
#pragma unroll
        for (int k = 0; k < CHUNKS; k++) {
            if (first + k * step >= width) break;
            dy_held[k] = load<T, W>(dy + first + k * step);
            x_held[k] = load<T, W>(x + first + k * step);
        }
        if (b.dres.data != nullptr) {
            const T *dres = b.dres.at<const T>(place);
#pragma unroll
            for (int k = 0; k < CHUNKS; k++)
                if (first + k * step < width) dres_held[k] = load<T, W>(dres + first + k * step);
        }
        float rstd = b.rstd[n], sum = 0;
        float weight[CHUNKS][W];
#pragma unroll
        for (int k = 0; k < CHUNKS; k++) {
            if (first + k * step >= width) break;
            float p[W], q[W];
            scales_at(b, first + k * step, weight[k]);
            widen(dy_held[k], p);
            widen(x_held[k], q);
#pragma unroll
            for (int i = 0; i < W; i++) sum += p[i] * weight[k][i] * q[i];
        }
        sum = block_sum(sum, partial[turn]);
        turn ^= 1;
        float mean = sum * rstd / (float)b.width; /* mean of g * xhat */
        T *dx = b.dx.at<T>(place);
        uint32_t largest = 0;
#pragma unroll
        for (int k = 0; k < CHUNKS; k++) {
            if (first + k * step >= width) break;
            float p[W], q[W], r[W] = {};
            widen(dy_held[k], p);
            widen(x_held[k], q);
            if (b.dres.data != nullptr) widen(dres_held[k], r);
#pragma unroll
            for (int i = 0; i < W; i++) {
                float xhat = q[i] * rstd;
                if (WEIGHT) line[k][i] += p[i] * xhat;
                r[i] = gradient(p[i], weight[k][i], xhat, mean, rstd, r[i]);
            }
            narrow(dy_held[k], r);
            store(dx + first + k * step, dy_held[k]);
            if constexpr (CODED) {
                widen(dy_held[k], r);
                largest = largest_of(largest, r);
            }
        }
        if constexpr (CODED) store_held_codes(b.coded, n, width, dy_held, largest);
    }
    if constexpr (WEIGHT) {
#pragma unroll
        for (int k = 0; k < CHUNKS; k++) {
            if (first + k * step >= width) break;
#pragma unroll
            for (int i = 0; i < W; i++) b.lines[blockIdx.x * b.width + first + k * step + i] = line[k][i];
        }
    }
}

/* The same as backward_held; a thread has the same vector of ROWS rows at a time, blockDim.y rows apart. */
template <typename T, int ROWS, bool WEIGHT>
__global__ void __launch_bounds__(SHORT_THREADS) backward_short(const struct backward b)
{
    constexpr int W = wide<T>();
    __shared__ float sums[WEIGHT ? SHORT_THREADS * W : 1];
    int d = (int)threadIdx.x * W;
    bool inside = d < b.width;
    int64_t begin = blockIdx.x * b.group_rows,
            end = begin + b.group_rows < b.count ? begin + b.group_rows : b.count;
    float line[W] = {}, weight[W] = {};
    if (inside) scales_at(b, d, weight);
    for (int64_t row = begin; row < end; row += blockDim.y * ROWS) {
        vec<T, W> dy_held[ROWS], x_held[ROWS], dres_held[ROWS];
        float rstd[ROWS];
        struct place places[ROWS];
#pragma unroll
        for (int k = 0; k < ROWS; k++) {
            int64_t n = row + k * (int)blockDim.y + threadIdx.y;
            dy_held[k] = {}, x_held[k] = {}, dres_held[k] = {}, rstd[k] = 0;
            struct place place = places[k] = place_of(n, b.inner);
            if (!inside || n >= end) continue;
            dy_held[k] = load<T, W>(b.dy.at<const T>(place) + d);
            x_held[k] = load<T, W>(b.x.at<const T>(place) + d);
            if (b.dres.data != nullptr) dres_held[k] = load<T, W>(b.dres.at<const T>(place) + d);
            rstd[k] = b.rstd[n];
        }
#pragma unroll
        for (int k = 0; k < ROWS; k++) {
            int64_t n = row + k * (int)blockDim.y + threadIdx.y;
            float p[W], q[W], r[W], sum = 0;
            widen(dy_held[k], p);
            widen(x_held[k], q);
            widen(dres_held[k], r);
#pragma unroll
            for (int i = 0; i < W; i++) sum += p[i] * weight[i] * q[i];
            float mean = lanes_sum(sum, (int)blockDim.x) * rstd[k] / (float)b.width; /* mean of g * xhat */
#pragma unroll
            for (int i = 0; i < W; i++) {
                float xhat = q[i] * rstd[k];
                if (WEIGHT) line[i] += p[i] * xhat;
                r[i] = gradient(p[i], weight[i], xhat, mean, rstd[k], r[i]);
            }
            narrow(dy_held[k], r);
            if (inside && n < end) store(b.dx.at<T>(places[k]) + d, dy_held[k]);
        }
    }
    if constexpr (WEIGHT) {
#pragma unroll
        for (int i = 0; i < W; i++) sums[(threadIdx.y * blockDim.x + threadIdx.x) * W + i] = line[i];
        __syncthreads();
        if (threadIdx.y > 0 || !inside) return;
        for (unsigned y = 1; y < blockDim.y; y++)
#pragma unroll
            for (int i = 0; i < W; i++) line[i] += sums[(y * blockDim.x + threadIdx.x) * W + i];
#pragma unroll
        for (int i = 0; i < W; i++) b.lines[blockIdx.x * b.width + d + i] = line[i];
    }
}

template <typename T> __global__ void __launch_bounds__(GENERAL_THREADS) backward_any(const struct backward b)
{
    __shared__ float partial[2][32];
    int64_t begin = blockIdx.x * b.group_rows,
            end = begin + b.group_rows < b.count ? begin + b.group_rows : b.count;
    float *line = b.lines != nullptr ? b.lines + blockIdx.x * b.width : nullptr;
    for (int64_t n = begin; n < end; n++) {
        struct place place = place_of(n, b.inner);
        const T *dy = b.dy.at<const T>(place), *x = b.x.at<const T>(place);
        float sum = 0, rstd = b.rstd[n];
        for (int64_t d = threadIdx.x; d < b.width; d += GENERAL_THREADS)
            sum += load_one(dy + d) * scale_at(b, d) * load_one(x + d);
        float mean = block_sum(sum, partial[(n - begin) % 2]) * rstd / (float)b.width;
        for (int64_t d = threadIdx.x; d < b.width; d += GENERAL_THREADS) {
            float grad = load_one(dy + d), xhat = load_one(x + d) * rstd;
            float out = b.dres.data != nullptr ? load_one(b.dres.at<const T>(place) + d) : 0.0f;
            out = gradient(grad, scale_at(b, d), xhat, mean, rstd, out);
            if (line != nullptr) line[d] = (n > begin ? line[d] : 0.0f) + grad * xhat;
            store_one(b.dx.at<T>(place) + d, out);
        }
        if (b.coded.codes == nullptr) continue;
        const T *dx = b.dx.at<const T>(place); /* each thread reads back what it has stored */
        store_codes_any(b.coded, n, b.width, [&](int64_t d) { return load_one(dx + d); });
    }
}

/* The distribution of rows of `vectors` vectors over threads; CHUNKS 0 when registers cannot hold them. */
struct shape {
    int chunks;
    bool is_short;
    dim3 threads;
};

/* Few threads with several vectors each: more rows are in flight, and fewer threads wait at the end of a row. */
struct shape shape_of(int64_t vectors, bool weight)
{
    if (vectors <= 32) {
        unsigned lanes = 1;
        while (lanes < vectors) lanes *= 2;
        return {1, true, dim3(lanes, (unsigned)SHORT_THREADS / lanes)};
    }
    int chunks = vectors <= 128 ? 1 : vectors <= 512 && !weight ? 2 : 4;
    if (vectors > 4 * BLOCK_THREADS) return {0, false, dim3(GENERAL_THREADS)};
    return {chunks, false, dim3((unsigned)((vectors + 32 * chunks - 1) / (32 * chunks) * 32))};
}

/* The number of groups of rows for the weight's gradient: as many as the thread blocks that an H200 runs at a
 * time (128 registers per thread when chunks are 4, below 80 otherwise), so that no second round is needed. On
 * other GPUs only the speed differs. */
int64_t groups_max(const struct shape &s)
{
    int64_t threads = (int64_t)s.threads.x * s.threads.y,
            on_processor = (s.chunks == 4 ? 512 : 768) / threads;
    return 128 * (on_processor < 8 ? on_processor : 8);
}

template <typename T, bool CODED>
void launch_forward(cudaStream_t handle, const struct forward &f, const struct shape &s, unsigned blocks)
{
    if (s.chunks == 0)
        forward_any<T><<<(unsigned)f.count, GENERAL_THREADS, 0, handle>>>(f);
    else if (s.is_short)
        forward_short<T, SHORT_ROWS><<<blocks, s.threads, 0, handle>>>(f);
    else if (s.chunks == 1)
        forward_held<T, 1, CODED><<<blocks, s.threads, 0, handle>>>(f);
    else if (s.chunks == 2)
        forward_held<T, 2, CODED><<<blocks, s.threads, 0, handle>>>(f);
    else
        forward_held<T, 4, CODED><<<blocks, s.threads, 0, handle>>>(f);
}

template <typename T>
tt_status forward_typed(struct tt_stream *stream, const struct tt_rmsnorm_forward_args *args)
{
    constexpr int W = wide<T>();
    struct forward f = {};
    f.x = rows_of(args->x_ND), f.residual = rows_of(args->residual_ND);
    f.sum = rows_of(args->sum_ND), f.y = rows_of(args->y_ND);
    f.weight = args->weight_D.data, f.weight_bf16 = args->weight_D.dtype == TT_BF16;
    f.rstd = static_cast<float *>(tt_tensor_is_empty(args->rstd_N) ? nullptr : args->rstd_N.data);
    f.coded = coded_of(args->codes_ND, args->scale_N);
    f.count = row_count(args->x_ND), f.inner = args->x_ND.rank == 2 ? 1 : args->x_ND.dims[1],
    f.width = args->x_ND.dims[args->x_ND.rank - 1], f.eps = (float)args->eps, f.offset = args->offset;
    if (f.count == 0) return TT_OK;
    bool held = f.width > 0 && f.width % W == 0 && is_aligned(args->x_ND, W) &&
                (f.y.data == nullptr || is_aligned(args->y_ND, W)) && (uintptr_t)f.weight % 16 == 0 &&
                (uintptr_t)f.coded.codes % 8 == 0;
    if (f.residual.data != nullptr)
        held = held && is_aligned(args->residual_ND, W) && is_aligned(args->sum_ND, W);
    struct shape s = shape_of(f.width / W, false);
    bool coded = f.coded.codes != nullptr;
    if (!held) s = {0, false, dim3(GENERAL_THREADS)};
    if (coded && s.is_short) s = {1, false, dim3(ROW_WARP)}; /* the same sums */
    int64_t block_rows = SHORT_ROWS * (int64_t)s.threads.y;
    unsigned blocks = (unsigned)(s.is_short ? (f.count + block_rows - 1) / block_rows : f.count);
    if (coded)
        launch_forward<T, true>(tt_cuda_handle(stream), f, s, blocks);
    else
        launch_forward<T, false>(tt_cuda_handle(stream), f, s, blocks);
    return tt_cuda_launched(stream, "rmsnorm_forward", &args->x_ND);
}

template <typename T, bool WEIGHT, bool CODED>
void launch_backward(cudaStream_t handle, const struct backward &b, const struct shape &s, unsigned blocks)
{
    if (s.chunks == 0)
        backward_any<T><<<blocks, GENERAL_THREADS, 0, handle>>>(b);
    else if (s.is_short)
        backward_short<T, SHORT_ROWS, WEIGHT><<<blocks, s.threads, 0, handle>>>(b);
    else if (s.chunks == 1)
        backward_held<T, 1, WEIGHT, CODED><<<blocks, s.threads, 0, handle>>>(b);
    else if (s.chunks == 2)
        backward_held<T, 2, WEIGHT, CODED><<<blocks, s.threads, 0, handle>>>(b);
    else
        backward_held<T, 4, WEIGHT, CODED><<<blocks, s.threads, 0, handle>>>(b);
}

template <typename T>
tt_status backward_typed(struct tt_stream *stream, const struct tt_rmsnorm_backward_args *args)
{
    constexpr int W = wide<T>();
    struct backward b = {};
    b.dy = rows_of(args->dy_ND), b.x = rows_of(args->x_ND);
    b.dres = rows_of(args->dres_ND), b.dx = rows_of(args->dx_ND);
    b.weight = args->weight_D.data, b.weight_bf16 = args->weight_D.dtype == TT_BF16;
    b.offset = args->offset;
    b.coded = coded_of(args->codes_ND, args->scale_N);
    b.rstd = static_cast<const float *>(args->rstd_N.data);
    b.count = row_count(args->x_ND), b.inner = args->x_ND.rank == 2 ? 1 : args->x_ND.dims[1],
    b.width = args->x_ND.dims[args->x_ND.rank - 1];
    if (b.count == 0 || b.width == 0) return TT_OK;
    bool held = b.width % W == 0 && is_aligned(args->dy_ND, W) && is_aligned(args->x_ND, W) &&
                is_aligned(args->dx_ND, W) && (b.dres.data == nullptr || is_aligned(args->dres_ND, W)) &&
                (uintptr_t)b.weight % 16 == 0 && (uintptr_t)b.coded.codes % 8 == 0;
    bool coded = b.coded.codes != nullptr;
    struct shape s = shape_of(b.width / W, !tt_tensor_is_empty(args->dweight_D));
    if (!held) s = {0, false, dim3(GENERAL_THREADS)};
    if (coded && s.is_short) s = {1, false, dim3(ROW_WARP)}; /* the same sums */
    if (tt_tensor_is_empty(args->dweight_D)) {
        b.group_rows = s.is_short ? (int64_t)s.threads.y * SHORT_ROWS : 1;
        unsigned blocks = (unsigned)((b.count + b.group_rows - 1) / b.group_rows);
        if (coded)
            launch_backward<T, false, true>(tt_cuda_handle(stream), b, s, blocks);
        else
            launch_backward<T, false, false>(tt_cuda_handle(stream), b, s, blocks);
        return tt_cuda_launched(stream, "rmsnorm_backward", &args->x_ND);
    }
    int64_t fits = TT_CUDA_SCRATCH_BYTES / (int64_t)sizeof(float);
    if (b.width > fits)
        return tt_fail(TT_ERR_UNSUPPORTED, "rmsnorm_backward: rows of %lld, the gpu's limit is %lld",
                       (long long)b.width, (long long)fits);
    int64_t groups = (b.count + GROUP_ROWS_MIN - 1) / GROUP_ROWS_MIN, most = groups_max(s);
    if (groups > most) groups = most;
    if (groups > fits / b.width) groups = fits / b.width;
    b.group_rows = (b.count + groups - 1) / groups;
    groups = (b.count + b.group_rows - 1) / b.group_rows;
    b.lines = static_cast<float *>(tt_cuda_scratch(stream));
    if (coded)
        launch_backward<T, true, true>(tt_cuda_handle(stream), b, s, (unsigned)groups);
    else
        launch_backward<T, true, false>(tt_cuda_handle(stream), b, s, (unsigned)groups);
    launch_add_lines(stream, static_cast<float *>(args->dweight_D.data), b.lines, (int)groups, b.width);
    return tt_cuda_launched(stream, "rmsnorm_backward", &args->x_ND);
}

} // namespace

extern "C" tt_status tt_cuda_rmsnorm_forward(struct tt_stream *stream,
                                             const struct tt_rmsnorm_forward_args *args)
{
    return with_type(args->x_ND.dtype, [&](auto t) { return forward_typed<decltype(t)>(stream, args); });
}

extern "C" tt_status tt_cuda_rmsnorm_backward(struct tt_stream *stream,
                                              const struct tt_rmsnorm_backward_args *args)
{
    return with_type(args->x_ND.dtype, [&](auto t) { return backward_typed<decltype(t)>(stream, args); });
}
