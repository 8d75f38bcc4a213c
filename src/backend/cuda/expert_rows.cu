#include "backend/cuda/device_math.cuh"

/* Rows of tokens in order of their experts, and back. A thread block has an expert, and walks through the slots in
 * order; nothing is decided by which thread comes first. */

namespace
{

constexpr int THREADS = 256, WARPS = THREADS / 32;

struct rows {
    void *data; /* NULL: not given */
    int64_t stride;
};

struct rows rows_of(const tt_tensor &x)
{
    if (tt_tensor_is_empty(x)) return {};
    return {x.data, x.strides[0]};
}

template <typename T> __device__ __forceinline__ float at(const struct rows &x, int64_t row, int64_t col)
{
    return load_one(static_cast<const T *>(x.data) + row * x.stride + col);
}

/* border[e + 1] = the slots of expert e */
__global__ void __launch_bounds__(THREADS) count_slots(const int32_t *ids, int64_t count, int32_t *border)
{
    __shared__ int partial[32];
    int own = 0;
    for (int64_t i = threadIdx.x; i < count; i += THREADS) own += ids[i] == (int)blockIdx.x;
    own = block_sum(own, partial);
    if (threadIdx.x == 0) border[blockIdx.x + 1] = own;
}

__global__ void add_borders(int32_t *border, int64_t experts)
{
    int32_t sum = 0;
    border[0] = 0;
    for (int64_t e = 1; e <= experts; e++) border[e] = sum += border[e];
}

__global__ void __launch_bounds__(THREADS)
    place_slots(const int32_t *ids, int64_t count, const int32_t *border, int32_t *place, int32_t *slot)
{
    __shared__ int warp_counts[WARPS];
    unsigned warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    int32_t next = border[blockIdx.x];
    for (int64_t first = 0; first < count; first += THREADS) {
        int64_t i = first + threadIdx.x;
        bool mine = i < count && ids[i] == (int)blockIdx.x;
        unsigned among = __ballot_sync(0xffffffffu, mine);
        if (lane == 0) warp_counts[warp] = __popc(among);
        __syncthreads();
        int32_t before = next + __popc(among & ((1u << lane) - 1));
        for (unsigned w = 0; w < WARPS; w++) {
            if (w < warp) before += warp_counts[w];
            next += warp_counts[w];
        }
        if (mine) {
            place[i] = before;
            slot[before] = (int32_t)i;
        }
        __syncthreads();
    }
}

template <typename T>
__global__ void __launch_bounds__(THREADS)
    spread(struct rows x, const int32_t *slot, struct rows y, int64_t width, int64_t slots)
{
    int64_t m = blockIdx.x, from = slot[m] / slots;
    for (int64_t d = threadIdx.x; d < width; d += THREADS)
        store(static_cast<T *>(y.data) + m * y.stride + d,
              load<T, 1>(static_cast<const T *>(x.data) + from * x.stride + d));
}

template <typename T>
__global__ void __launch_bounds__(THREADS)
    combine(struct rows x, const float *weights, const int32_t *place, struct rows addend, struct rows y,
            int64_t width, int64_t slots)
{
    int64_t t = blockIdx.x;
    for (int64_t d = threadIdx.x; d < width; d += THREADS) {
        float sum = addend.data == nullptr ? 0 : at<T>(addend, t, d);
        for (int64_t i = t * slots; i < (t + 1) * slots; i++)
            sum = __fmaf_rn(at<T>(x, place == nullptr ? i : place[i], d), weights == nullptr ? 1 : weights[i],
                            sum);
        store_one(static_cast<T *>(y.data) + t * y.stride + d, sum);
    }
}

template <typename T>
__global__ void __launch_bounds__(THREADS) weigh(struct rows x, struct rows g, const float *weights,
                                                 const int32_t *slot, float *dweights, int64_t width)
{
    __shared__ float partial[32];
    int64_t m = blockIdx.x, of = slot == nullptr ? m : slot[m];
    float dot = 0, weight = weights[of];
    for (int64_t d = threadIdx.x; d < width; d += THREADS) {
        float value = at<T>(g, m, d);
        if (x.data != nullptr) dot = __fmaf_rn(value, at<T>(x, m, d), dot);
        store_one(static_cast<T *>(g.data) + m * g.stride + d, value * weight);
    }
    dot = block_sum(dot, partial);
    if (threadIdx.x == 0 && dweights != nullptr) dweights[of] = dot;
}

} // namespace

extern "C" tt_status tt_cuda_order_rows(struct tt_stream *stream, const struct tt_order_rows_args *args)
{
    int64_t count = args->slot_M.dims[0], experts = args->border_X1.dims[0] - 1;
    const int32_t *ids = static_cast<const int32_t *>(args->ids_TS.data);
    int32_t *border = static_cast<int32_t *>(args->border_X1.data);
    cudaStream_t on = tt_cuda_handle(stream);
    count_slots<<<(unsigned)experts, THREADS, 0, on>>>(ids, count, border);
    add_borders<<<1, 1, 0, on>>>(border, experts);
    place_slots<<<(unsigned)experts, THREADS, 0, on>>>(ids, count, border,
                                                       static_cast<int32_t *>(args->place_TS.data),
                                                       static_cast<int32_t *>(args->slot_M.data));
    return tt_cuda_launched(stream, "order_rows", &args->ids_TS);
}

extern "C" tt_status tt_cuda_spread_rows(struct tt_stream *stream, const struct tt_spread_rows_args *args)
{
    return with_type(args->x_TD.dtype, [&](auto t) {
        spread<decltype(t)><<<(unsigned)args->y_MD.dims[0], THREADS, 0, tt_cuda_handle(stream)>>>(
            rows_of(args->x_TD), static_cast<const int32_t *>(args->slot_M.data), rows_of(args->y_MD),
            args->x_TD.dims[1], args->y_MD.dims[0] / args->x_TD.dims[0]);
        return tt_cuda_launched(stream, "spread_rows", &args->y_MD);
    });
}

extern "C" tt_status tt_cuda_combine_rows(struct tt_stream *stream, const struct tt_combine_rows_args *args)
{
    int64_t tokens = args->y_TD.dims[0];
    if (tokens == 0) return TT_OK;
    return with_type(args->x_MD.dtype, [&](auto t) {
        combine<decltype(t)><<<(unsigned)tokens, THREADS, 0, tt_cuda_handle(stream)>>>(
            rows_of(args->x_MD), static_cast<const float *>(args->weights_TS.data),
            static_cast<const int32_t *>(args->place_TS.data), rows_of(args->addend_TD), rows_of(args->y_TD),
            args->x_MD.dims[1], args->x_MD.dims[0] / tokens);
        return tt_cuda_launched(stream, "combine_rows", &args->x_MD);
    });
}

extern "C" tt_status tt_cuda_weigh_rows(struct tt_stream *stream, const struct tt_weigh_rows_args *args)
{
    int64_t count = args->g_MD.dims[0];
    if (count == 0) return TT_OK;
    return with_type(args->g_MD.dtype, [&](auto t) {
        weigh<decltype(t)><<<(unsigned)count, THREADS, 0, tt_cuda_handle(stream)>>>(
            rows_of(args->x_MD), rows_of(args->g_MD), static_cast<const float *>(args->weights_TS.data),
            static_cast<const int32_t *>(args->slot_M.data), static_cast<float *>(args->dweights_TS.data),
            args->g_MD.dims[1]);
        return tt_cuda_launched(stream, "weigh_rows", &args->g_MD);
    });
}
