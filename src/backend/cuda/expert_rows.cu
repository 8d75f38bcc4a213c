#include "backend/cuda/device_math.cuh"

#include <type_traits>

#include "backend/ops/route.h"

/* Rows of tokens in order of their experts, and back. Slots are divided into slices of successive ones, and those into
 * parts of warps; each part's slots of an expert are counted, and the sums of the counts before it give its places. So
 * nothing is decided by which thread comes first. */

namespace
{

constexpr int THREADS = 256, WARPS = THREADS / 32, EXPERTS_MAX = TT_ROUTE_EXPERTS_MAX;
constexpr int64_t LEAST_SLICE = 4 * THREADS; /* slots; always a multiple of THREADS */
constexpr int64_t FEW_SLOTS = 4096;          /* one block orders them sooner than three kernels start */
constexpr int64_t SEGMENTS = 128;
constexpr unsigned ALL = 0xffffffffu;

struct slots {
    const int32_t *ids;
    int64_t count, slice;
    int experts;
    bool some; /* other ids than these have no row */
    int first;
    int32_t *lines; /* [slices, experts]: slots of each, then those before */
};

/* Calls use(slot, expert, peers): of 32 slots of the warp's part of a slice in order, `peers`: the lanes with the same
 * expert; slot -1: none. */
template <typename Use> __device__ __forceinline__ void walk(const struct slots &s, Use use)
{
    int64_t part = s.slice / WARPS, first = blockIdx.x * s.slice + threadIdx.x / 32 * part;
    for (int64_t at = first + threadIdx.x % 32; at < first + part; at += 32) {
        int expert = at < s.count ? s.ids[at] - s.first : -1;
        bool is_slot = at < s.count && (!s.some || (expert >= 0 && expert < s.experts));
        if (!is_slot) expert = -1;
        use(is_slot ? at : -1, expert, __match_any_sync(ALL, expert));
        __syncwarp();
    }
}

__device__ __forceinline__ int first_of(unsigned lanes)
{
    return __ffs((int)lanes) - 1;
}

/* counts[warp][expert] += the slots of the warp's part. */
__device__ void count_parts(const struct slots &s, int32_t *counts)
{
    int32_t *own = counts + threadIdx.x / 32 * (unsigned)s.experts;
    for (int i = threadIdx.x; i < WARPS * s.experts; i += THREADS) counts[i] = 0;
    __syncthreads();
    walk(s, [&](int64_t slot, int expert, unsigned peers) {
        if (slot >= 0 && first_of(peers) == (int)threadIdx.x % 32) own[expert] += __popc(peers);
    });
    __syncthreads();
}

__global__ void __launch_bounds__(THREADS) count_slots(struct slots s)
{
    extern __shared__ int32_t counts[];
    count_parts(s, counts);
    for (int e = threadIdx.x; e < s.experts; e += THREADS) {
        int32_t sum = 0;
        for (int w = 0; w < WARPS; w++) sum += counts[w * s.experts + e];
        s.lines[(int64_t)blockIdx.x * s.experts + e] = sum;
    }
}

/* One block with a thread for each expert: border, and lines become the slots before. */
__global__ void __launch_bounds__(EXPERTS_MAX) add_counts(struct slots s, int slices, int32_t *border)
{
    __shared__ int32_t sums[EXPERTS_MAX];
    int e = (int)threadIdx.x;
    int32_t own = 0;
#pragma unroll 8
    for (int i = 0; i < slices && e < s.experts; i++) own += s.lines[(int64_t)i * s.experts + e];
    sums[e] = own;
    __syncthreads();
    for (int step = 1; step < (int)blockDim.x; step *= 2) {
        int32_t other = e >= step ? sums[e - step] : 0;
        __syncthreads();
        sums[e] += other;
        __syncthreads();
    }
    if (e >= s.experts) return;
    if (e == 0) border[0] = 0;
    border[e + 1] = sums[e];
    int32_t before = sums[e] - own;
#pragma unroll 8
    for (int i = 0; i < slices; i++) {
        int32_t *at = s.lines + (int64_t)i * s.experts + e, count = *at;
        *at = before;
        before += count;
    }
}

/* Places of the slots of a slice, `counts` and `before` by expert: of its parts, and the slots before the slice. */
__device__ void place_parts(const struct slots &s, int32_t *counts, const int32_t *slots_before,
                            int32_t *place, int32_t *slot_of)
{
    int32_t *own = counts + threadIdx.x / 32 * (unsigned)s.experts;
    for (int e = threadIdx.x; e < s.experts; e += THREADS) {
        int32_t before = slots_before[e];
        for (int w = 0; w < WARPS; w++) {
            int32_t count = counts[w * s.experts + e];
            counts[w * s.experts + e] = before;
            before += count;
        }
    }
    __syncthreads();
    walk(s, [&](int64_t slot, int expert, unsigned peers) {
        unsigned lane = threadIdx.x % 32;
        int32_t row = slot >= 0 ? own[expert] + __popc(peers & ((1u << lane) - 1)) : 0;
        __syncwarp();
        if (slot < 0) return;
        if (first_of(peers) == (int)lane) own[expert] += __popc(peers);
        place[slot] = row;
        slot_of[row] = (int32_t)slot;
    });
}

__global__ void __launch_bounds__(THREADS) place_slots(struct slots s, int32_t *place, int32_t *slot_of)
{
    extern __shared__ int32_t counts[];
    count_parts(s, counts);
    place_parts(s, counts, s.lines + (int64_t)blockIdx.x * s.experts, place, slot_of);
}

/* All of it by one block, for the slots of one slice. */
__global__ void __launch_bounds__(THREADS)
    order_slice(struct slots s, int32_t *border, int32_t *place, int32_t *slot_of)
{
    extern __shared__ int32_t counts[];
    int32_t *before = counts + WARPS * s.experts, all = 0;
    count_parts(s, counts);
    for (int e = threadIdx.x; e < s.experts; e += THREADS) {
        int32_t sum = 0;
        for (int w = 0; w < WARPS; w++) sum += counts[w * s.experts + e];
        before[e] = sum;
    }
    __syncthreads();
    for (int first = 0; first < s.experts && threadIdx.x < 32; first += 32) {
        int e = first + (int)threadIdx.x;
        int32_t own = e < s.experts ? before[e] : 0, sum = own;
#pragma unroll
        for (int step = 1; step < 32; step *= 2) {
            int32_t other = __shfl_up_sync(ALL, sum, step);
            if ((int)threadIdx.x >= step) sum += other;
        }
        if (e < s.experts) before[e] = all + sum - own, border[e] = all + sum - own;
        all += __shfl_sync(ALL, sum, 31);
    }
    if (threadIdx.x == 0) border[s.experts] = all;
    __syncthreads();
    place_parts(s, counts, before, place, slot_of);
}

struct rows {
    void *data; /* NULL: not given */
    int64_t stride;
};

struct rows rows_of(const tt_tensor &x)
{
    if (tt_tensor_is_empty(x)) return {};
    return {x.data, x.strides[0]};
}

template <typename T> __device__ __forceinline__ T *row_at(const struct rows &x, int64_t row)
{
    return static_cast<T *>(x.data) + row * x.stride;
}

/* A warp has a row. Warps that run at the same time have rows from all SEGMENTS of the rows: with about as many experts
 * these are the rows of about the same tokens, which the second-level cache then holds. */
template <typename T, int W>
__global__ void __launch_bounds__(THREADS)
    spread(struct rows x, const int32_t *slot, struct rows y, int64_t count, int64_t width, int slots,
           const float *scale, float *y_scale)
{
    constexpr int AHEAD = 8;
    int64_t segment = (count + SEGMENTS - 1) / SEGMENTS,
            turn = (int64_t)blockIdx.x * WARPS + threadIdx.x / 32;
    int64_t m = turn % SEGMENTS * segment + turn / SEGMENTS;
    if (turn / SEGMENTS >= segment || m >= count || slot[m] < 0) return;
    const T *from = row_at<T>(x, slot[m] / slots);
    T *to = row_at<T>(y, m);
    if (scale != nullptr && threadIdx.x % 32 == 0) y_scale[m] = scale[slot[m] / slots];
    for (int64_t d = threadIdx.x % 32 * W; d < width; d += AHEAD * 32 * W) {
        vec<T, W> v[AHEAD];
#pragma unroll
        for (int i = 0; i < AHEAD; i++)
            if (d + i * 32 * W < width) v[i] = load<T, W>(from + d + i * 32 * W);
#pragma unroll
        for (int i = 0; i < AHEAD; i++)
            if (d + i * 32 * W < width) store(to + d + i * 32 * W, v[i]);
    }
}

struct combined {
    const float *weights;
    const int32_t *place;
    struct rows x, addend, y;
    int64_t width;
    int slots;
};

/* Stores the sums in accesses of up to 16 bytes. */
template <typename Y, int W> __device__ __forceinline__ void store_sum(Y *to, const float (&sum)[W])
{
    constexpr int EACH = W * (int)sizeof(Y) > 16 ? 16 / (int)sizeof(Y) : W;
#pragma unroll
    for (int i = 0; i < W; i += EACH) {
        float part[EACH];
        vec<Y, EACH> out;
#pragma unroll
        for (int j = 0; j < EACH; j++) part[j] = sum[i + j];
        narrow(out, part);
        store(to + i, out);
    }
}

/* A block has a token. y is of type Y. */
template <typename T, typename Y, int W> __global__ void __launch_bounds__(THREADS) combine(struct combined c)
{
    constexpr int AHEAD = 8;
    int64_t t = blockIdx.x, first = t * c.slots;
    for (int64_t d = threadIdx.x * W; d < c.width; d += THREADS * W) {
        float sum[W], value[W];
        if (c.addend.data != nullptr) {
            widen(load<T, W>(row_at<T>(c.addend, t) + d), sum);
        } else {
#pragma unroll
            for (int i = 0; i < W; i++) sum[i] = 0;
        }
        for (int s = 0; s < c.slots; s += AHEAD) {
            vec<T, W> v[AHEAD];
            float weight[AHEAD];
            bool there[AHEAD];
#pragma unroll
            for (int i = 0; i < AHEAD; i++) {
                if (s + i >= c.slots) continue;
                int64_t slot = first + s + i, row = c.place == nullptr ? slot : c.place[slot];
                there[i] = row >= 0;
                weight[i] = c.weights == nullptr ? 1 : c.weights[slot];
                if (there[i]) v[i] = load<T, W>(row_at<T>(c.x, row) + d);
            }
#pragma unroll
            for (int i = 0; i < AHEAD; i++) {
                if (s + i >= c.slots || !there[i]) continue;
                widen(v[i], value);
#pragma unroll
                for (int j = 0; j < W; j++) sum[j] = __fmaf_rn(value[j], weight[i], sum[j]);
            }
        }
        store_sum<Y, W>(row_at<Y>(c.y, t) + d, sum);
    }
}

struct weighed {
    struct rows x, g;
    const float *weights;
    const int32_t *slot;
    float *dweights;
    int64_t count, width;
};

/* A warp has a row. */
template <typename T, int W> __global__ void __launch_bounds__(THREADS) weigh(struct weighed a)
{
    constexpr int AHEAD = 4;
    int64_t m = (int64_t)blockIdx.x * WARPS + threadIdx.x / 32;
    if (m >= a.count) return;
    int64_t of = a.slot == nullptr ? m : a.slot[m];
    if (of < 0) return;
    const T *x = a.x.data == nullptr ? nullptr : row_at<T>(a.x, m);
    T *g = row_at<T>(a.g, m);
    float dot = 0, weight = a.weights[of];
    for (int64_t first = threadIdx.x % 32 * W; first < a.width; first += AHEAD * 32 * W) {
        vec<T, W> gs[AHEAD], xs[AHEAD];
#pragma unroll
        for (int i = 0; i < AHEAD; i++) {
            int64_t d = first + i * 32 * W;
            if (d >= a.width) continue;
            gs[i] = load<T, W>(g + d);
            if (x != nullptr) xs[i] = load<T, W>(x + d);
        }
#pragma unroll
        for (int i = 0; i < AHEAD; i++) {
            int64_t d = first + i * 32 * W;
            if (d >= a.width) continue;
            float value[W], other[W];
            widen(gs[i], value);
            if (x != nullptr) {
                widen(xs[i], other);
#pragma unroll
                for (int j = 0; j < W; j++) dot = __fmaf_rn(value[j], other[j], dot);
            }
#pragma unroll
            for (int j = 0; j < W; j++) value[j] *= weight;
            vec<T, W> out;
            narrow(out, value);
            store(g + d, out);
        }
    }
    dot = lanes_sum(dot, 32);
    if (threadIdx.x % 32 == 0 && a.dweights != nullptr) a.dweights[of] = dot;
}

unsigned blocks_of_warps(int64_t rows)
{
    return (unsigned)((rows + WARPS - 1) / WARPS);
}

bool is_wide(const tt_tensor &x, int64_t width, int W)
{
    return tt_tensor_is_empty(x) || (is_aligned(x, W) && width % W == 0);
}

/* Calls run(T, W) with vectors of 16 bytes where all tensors allow them, else with single elements. */
template <typename Run>
tt_status with_vectors(tt_dtype dtype, int64_t width, const tt_tensor &x, const tt_tensor &y,
                       const tt_tensor &z, Run run)
{
    return with_type(dtype, [&](auto t) {
        constexpr int W = wide<decltype(t)>();
        if (is_wide(x, width, W) && is_wide(y, width, W) && is_wide(z, width, W))
            return run(t, std::integral_constant<int, W>{});
        return run(t, std::integral_constant<int, 1>{});
    });
}

} // namespace

extern "C" tt_status tt_cuda_order_rows(struct tt_stream *stream, const struct tt_order_rows_args *args)
{
    struct slots s = {};
    s.ids = static_cast<const int32_t *>(args->ids_TS.data);
    s.count = args->slot_M.dims[0], s.experts = (int)(args->border_X1.dims[0] - 1);
    s.some = args->some, s.first = (int)args->first;
    s.lines = static_cast<int32_t *>(tt_cuda_scratch(stream));
    int32_t *border = static_cast<int32_t *>(args->border_X1.data),
            *place = static_cast<int32_t *>(args->place_TS.data),
            *slot_of = static_cast<int32_t *>(args->slot_M.data);
    int64_t most = TT_CUDA_SCRATCH_BYTES / (int64_t)sizeof(int32_t) / s.experts;
    for (s.slice = LEAST_SLICE; (s.count + s.slice - 1) / s.slice > most;) s.slice *= 2;
    int slices = (int)((s.count + s.slice - 1) / s.slice);
    size_t bytes = sizeof(int32_t) * WARPS * (size_t)s.experts;
    unsigned threads = (unsigned)(s.experts + 31) / 32 * 32;
    cudaStream_t on = tt_cuda_handle(stream);
    if (s.some) { /* all bits of -1 are ones */
        size_t all = sizeof(int32_t) * (size_t)s.count;
        cudaError_t error = cudaMemsetAsync(place, 0xff, all, on);
        if (error == cudaSuccess) error = cudaMemsetAsync(slot_of, 0xff, all, on);
        if (error != cudaSuccess) return tt_cuda_launched(stream, "order_rows", &args->ids_TS);
    }
    if (s.count <= FEW_SLOTS) {
        s.slice = (s.count + THREADS - 1) / THREADS * THREADS;
        order_slice<<<1, THREADS, bytes + sizeof(int32_t) * (size_t)s.experts, on>>>(s, border, place,
                                                                                     slot_of);
        return tt_cuda_launched(stream, "order_rows", &args->ids_TS);
    }
    count_slots<<<(unsigned)slices, THREADS, bytes, on>>>(s);
    add_counts<<<1, threads, 0, on>>>(s, slices, border);
    place_slots<<<(unsigned)slices, THREADS, bytes, on>>>(s, place, slot_of);
    return tt_cuda_launched(stream, "order_rows", &args->ids_TS);
}

/* Codes move two at a time, as bits of a bf16. */
static tt_tensor in_pairs(tt_tensor rows)
{
    return rows.dtype == TT_F8_E4M3 ? tt_tensor_2d(rows.data, TT_BF16, rows.dims[0], rows.dims[1] / 2) : rows;
}

extern "C" tt_status tt_cuda_spread_rows(struct tt_stream *stream, const struct tt_spread_rows_args *args)
{
    tt_tensor x = in_pairs(args->x_TD), y = in_pairs(args->y_MD);
    int64_t count = y.dims[0], width = x.dims[1];
    return with_vectors(x.dtype, width, x, y, {}, [&](auto t, auto w) {
        int64_t turns = (count + SEGMENTS - 1) / SEGMENTS * SEGMENTS;
        spread<decltype(t), decltype(w)::value>
            <<<blocks_of_warps(turns), THREADS, 0, tt_cuda_handle(stream)>>>(
                rows_of(x), static_cast<const int32_t *>(args->slot_M.data), rows_of(y), count, width,
                (int)(count / x.dims[0]), static_cast<const float *>(args->scale_T.data),
                static_cast<float *>(args->y_scale_M.data));
        return tt_cuda_launched(stream, "spread_rows", &args->y_MD);
    });
}

extern "C" tt_status tt_cuda_combine_rows(struct tt_stream *stream, const struct tt_combine_rows_args *args)
{
    int64_t tokens = args->y_TD.dims[0];
    if (tokens == 0) return TT_OK;
    struct combined c = {};
    c.weights = static_cast<const float *>(args->weights_TS.data);
    c.place = static_cast<const int32_t *>(args->place_TS.data);
    c.x = rows_of(args->x_MD), c.addend = rows_of(args->addend_TD), c.y = rows_of(args->y_TD);
    c.width = args->x_MD.dims[1];
    c.slots = (int)(args->place_TS.data != nullptr ? args->place_TS : args->weights_TS).dims[1];
    bool wide = args->y_TD.dtype != args->x_MD.dtype;
    return with_vectors(args->x_MD.dtype, c.width, args->x_MD, args->addend_TD, args->y_TD,
                        [&](auto t, auto w) {
                            using T = decltype(t);
                            constexpr int W = decltype(w)::value;
                            cudaStream_t on = tt_cuda_handle(stream);
                            if (wide)
                                combine<T, float, W><<<(unsigned)tokens, THREADS, 0, on>>>(c);
                            else
                                combine<T, T, W><<<(unsigned)tokens, THREADS, 0, on>>>(c);
                            return tt_cuda_launched(stream, "combine_rows", &args->x_MD);
                        });
}

extern "C" tt_status tt_cuda_weigh_rows(struct tt_stream *stream, const struct tt_weigh_rows_args *args)
{
    struct weighed a = {};
    a.x = rows_of(args->x_MD), a.g = rows_of(args->g_MD);
    a.weights = static_cast<const float *>(args->weights_TS.data);
    a.slot = static_cast<const int32_t *>(args->slot_M.data);
    a.dweights = static_cast<float *>(args->dweights_TS.data);
    a.count = args->g_MD.dims[0], a.width = args->g_MD.dims[1];
    if (a.count == 0) return TT_OK;
    return with_vectors(args->g_MD.dtype, a.width, args->x_MD, args->g_MD, {}, [&](auto t, auto w) {
        weigh<decltype(t), decltype(w)::value>
            <<<blocks_of_warps(a.count), THREADS, 0, tt_cuda_handle(stream)>>>(a);
        return tt_cuda_launched(stream, "weigh_rows", &args->g_MD);
    });
}
