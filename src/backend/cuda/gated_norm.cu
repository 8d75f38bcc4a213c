#include <type_traits>

#include "backend/cuda/device_math.cuh"

/* A warp has a group of columns of a row, which it reads twice; gated_norm_wide.cuh has kernels for whole vectors.
 * Rows in FP8 that those kernels cannot make are made of y.
 *
 * The gradient of the weight is another kernel: a thread has a column of the weight and the rows of a run, in a
 * line of the scratch; the lines are added in order. */

namespace
{

constexpr int THREADS = 256, WARPS = THREADS / 32;
constexpr int64_t RUN_ROWS = 32, LINES_MAX = 256;

template <typename T> struct rows {
    T *data;
    int64_t stride;

    __device__ __forceinline__ T *at(int64_t row, int64_t col) const
    {
        return data + row * stride + col;
    }
};

template <typename T> struct rows<T> rows_of(const tt_tensor &x) {
    return {static_cast<T *>(x.data), x.rank >= 1 ? x.strides[0] : 0};
}

template <typename T>
struct gated {
    struct rows<T> x, z;
    const void *weight;
    int64_t count, groups, width;
    bool weight_bf16, shared, sigmoid, gate_first;

    __device__ __forceinline__ float weight_at(int64_t group, int64_t d) const
    {
        return load_either(weight, (shared ? 0 : group * width) + d, weight_bf16);
    }
};

template <typename T, typename A> struct gated<T> gated_of(const A *args) {
    struct gated<T> pass = {
    };
    pass.x = rows_of<T>(args->x_TN), pass.z = rows_of<T>(args->z_TN);
    pass.weight = args->weight_N.data, pass.weight_bf16 = args->weight_N.dtype == TT_BF16;
    pass.count = args->x_TN.dims[0], pass.groups = args->groups,
    pass.width = args->x_TN.dims[1] / args->groups;
    pass.shared = args->weight_N.dims[0] == pass.width;
    pass.sigmoid = args->gate == TT_GATE_SIGMOID, pass.gate_first = args->gate_first;
    return pass;
}

struct gate {
    float act, slope;
};

__device__ __forceinline__ struct gate gate_at(float z, bool sigmoid)
{
    float share = 1.0f / (1.0f + __expf(-z)), slope = share * (1.0f - share);
    if (sigmoid) return {share, slope};
    return {z * share, __fmaf_rn(z, slope, share)};
}

template <typename T>
__global__ void __launch_bounds__(THREADS)
    forward(const struct gated<T> p, struct rows<T> y, float *rstds, float eps)
{
    int64_t item = (int64_t)blockIdx.x * WARPS + threadIdx.x / 32, row = item / p.groups,
            group = item % p.groups;
    int64_t lane = threadIdx.x % 32, first = group * p.width;
    if (row >= p.count) return;
    float squares = 0;
    for (int64_t d = lane; d < p.width; d += 32) {
        float u = load_one(p.x.at(row, first + d));
        if (p.gate_first) u *= gate_at(load_one(p.z.at(row, first + d)), p.sigmoid).act;
        squares = __fmaf_rn(u, u, squares);
    }
    float rstd = 1.0f / sqrtf(lanes_sum(squares, 32) / (float)p.width + eps);
    for (int64_t d = lane; d < p.width; d += 32) {
        float u = load_one(p.x.at(row, first + d)),
              act = gate_at(load_one(p.z.at(row, first + d)), p.sigmoid).act;
        store_one(y.at(row, first + d), u * act * rstd * p.weight_at(group, d));
    }
    if (lane == 0 && rstds != nullptr) rstds[item] = rstd;
}

template <typename T>
__global__ void __launch_bounds__(THREADS) backward(const struct gated<T> p, struct rows<T> dy,
                                                    struct rows<T> dx, struct rows<T> dz, const float *rstds)
{
    int64_t item = (int64_t)blockIdx.x * WARPS + threadIdx.x / 32, row = item / p.groups,
            group = item % p.groups;
    int64_t lane = threadIdx.x % 32, first = group * p.width;
    if (row >= p.count) return;
    float rstd = rstds[item], sum = 0;
    for (int64_t d = lane; d < p.width; d += 32) {
        struct gate gate = gate_at(load_one(p.z.at(row, first + d)), p.sigmoid);
        /* dy weight act x rstd, whichever of x and dy the gate is applied to */
        sum += load_one(dy.at(row, first + d)) * p.weight_at(group, d) * gate.act *
               (load_one(p.x.at(row, first + d)) * rstd);
    }
    float mean = lanes_sum(sum, 32) / (float)p.width;
    for (int64_t d = lane; d < p.width; d += 32) {
        struct gate gate = gate_at(load_one(p.z.at(row, first + d)), p.sigmoid);
        float x = load_one(p.x.at(row, first + d)),
              g = load_one(dy.at(row, first + d)) * p.weight_at(group, d);
        float hat = x * rstd, du, to_z;
        if (p.gate_first) {
            du = (g - hat * gate.act * mean) * rstd;
            to_z = du * x * gate.slope;
            du *= gate.act;
        } else {
            du = (g * gate.act - hat * mean) * rstd;
            to_z = g * hat * gate.slope;
        }
        store_one(dx.at(row, first + d), du);
        store_one(dz.at(row, first + d), to_z);
    }
}

/* lines[run][column of the weight] */
template <typename T>
__global__ void __launch_bounds__(THREADS)
    weight_sums(const struct gated<T> p, struct rows<T> dy, const float *rstds, float *lines, int64_t run)
{
    int64_t columns = p.shared ? p.width : p.groups * p.width,
            n = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    int64_t begin = blockIdx.y * run, end = begin + run < p.count ? begin + run : p.count;
    if (n >= columns) return;
    float sum = 0;
    for (int64_t row = begin; row < end; row++)
        for (int64_t group = p.shared ? 0 : n / p.width; group < p.groups; group++) {
            int64_t col = p.shared ? group * p.width + n : n;
            float act = gate_at(load_one(p.z.at(row, col)), p.sigmoid).act;
            sum += load_one(dy.at(row, col)) * act *
                   (load_one(p.x.at(row, col)) * rstds[row * p.groups + group]);
            if (!p.shared) break;
        }
    lines[blockIdx.y * columns + n] = sum;
}

} // namespace

#include "backend/cuda/gated_norm_wide.cuh"

namespace
{

bool is_wide(const tt_tensor &x)
{
    return is_aligned(x, x.dtype == TT_BF16 ? wide<bf16>() : wide<float>());
}

/* Whether the weight can be read in vectors of 16 bytes. */
bool has_wide_weight(const tt_tensor &weight)
{
    return (uintptr_t)weight.data % 16 == 0;
}

inline unsigned blocks_of(int64_t items, int lanes)
{
    return (unsigned)((items * lanes + THREADS - 1) / THREADS);
}

/* Rows in FP8 by the kernel that makes the values; false: it takes no such rows. */
template <typename T>
bool launch_coded(cudaStream_t on, const struct tt_gated_norm_forward_args *args, const struct gated<T> &pass)
{
    struct coded_rows coded = coded_of(args->codes_TN, args->scale_T);
    bool fits = false;
    if ((uintptr_t)coded.codes % 8 != 0) return false;
    (void)with_lanes<T>(pass.width, [&](auto lanes, auto vectors) {
        int64_t threads = (pass.groups * lanes.value + 31) / 32 * 32;
        if (threads > coded_threads<vectors.value>) return;
        fits = true;
        forward_coded<T, lanes.value, vectors.value><<<(unsigned)pass.count, (unsigned)threads, 0, on>>>(
            pass, rows_of<T>(args->y_TN), static_cast<float *>(args->rstd_TG.data), (float)args->eps, coded);
    });
    return fits;
}

template <typename T>
tt_status forward_typed(struct tt_stream *stream, const struct tt_gated_norm_forward_args *args)
{
    struct gated<T> pass = gated_of<T>(args);
    int64_t items = pass.count * pass.groups;
    if (items == 0 || pass.width == 0) return TT_OK;
    struct rows<T> y = rows_of<T>(args->y_TN);
    float *rstds = static_cast<float *>(args->rstd_TG.data), eps = (float)args->eps;
    cudaStream_t on = tt_cuda_handle(stream);
    bool wide =
        is_wide(args->x_TN) && is_wide(args->z_TN) && is_wide(args->y_TN) && has_wide_weight(args->weight_N);
    if (wide && !tt_tensor_is_empty(args->codes_TN) && launch_coded(on, args, pass))
        return tt_cuda_launched(stream, "gated_norm_forward", &args->x_TN);
    if (!wide || !with_lanes<T>(pass.width, [&](auto lanes, auto vectors) {
            forward_wide<T, lanes.value, vectors.value>
                <<<blocks_of(items, lanes.value), THREADS, 0, on>>>(pass, y, rstds, eps);
        }))
        forward<T><<<blocks_of(items, 32), THREADS, 0, on>>>(pass, y, rstds, eps);
    TT_TRY(tt_cuda_launched(stream, "gated_norm_forward", &args->x_TN));
    if (tt_tensor_is_empty(args->codes_TN)) return TT_OK;
    struct tt_quantize_rows_args rows = {args->y_TN, args->codes_TN, args->scale_T};
    return tt_cuda_quantize_rows(stream, &rows);
}

/* The weight's sums come first: dx may be dy or x, and dz may be z. */
template <typename T>
tt_status backward_typed(struct tt_stream *stream, const struct tt_gated_norm_backward_args *args)
{
    struct gated<T> pass = gated_of<T>(args);
    int64_t items = pass.count * pass.groups, columns = args->weight_N.dims[0];
    const float *rstds = static_cast<const float *>(args->rstd_TG.data);
    cudaStream_t on = tt_cuda_handle(stream);
    if (items == 0 || pass.width == 0) return TT_OK;
    if (!tt_tensor_is_empty(args->dweight_N)) {
        float *lines = static_cast<float *>(tt_cuda_scratch(stream));
        int64_t most = TT_CUDA_SCRATCH_BYTES / (int64_t)sizeof(float) / columns, run = RUN_ROWS;
        if (most < 1)
            return tt_fail(TT_ERR_UNSUPPORTED,
                           "gated_norm_backward: a weight of %lld, the limit of a GPU is %lld",
                           (long long)columns, (long long)(TT_CUDA_SCRATCH_BYTES / (int64_t)sizeof(float)));
        if (most > LINES_MAX) most = LINES_MAX;
        if ((pass.count + run - 1) / run > most) run = (pass.count + most - 1) / most;
        int64_t runs = (pass.count + run - 1) / run;
        dim3 blocks((unsigned)((columns + THREADS - 1) / THREADS), (unsigned)runs);
        weight_sums<T><<<blocks, THREADS, 0, on>>>(pass, rows_of<T>(args->dy_TN), rstds, lines, run);
        launch_add_lines(stream, static_cast<float *>(args->dweight_N.data), lines, (int)runs, columns);
    }
    struct rows<T> dy = rows_of<T>(args->dy_TN), dx = rows_of<T>(args->dx_TN), dz = rows_of<T>(args->dz_TN);
    bool wide = is_wide(args->x_TN) && is_wide(args->z_TN) && is_wide(args->dy_TN) && is_wide(args->dx_TN) &&
                is_wide(args->dz_TN) && has_wide_weight(args->weight_N);
    if (!wide || !with_lanes<T>(pass.width, [&](auto lanes, auto vectors) {
            backward_wide<T, lanes.value, vectors.value>
                <<<blocks_of(items, lanes.value), THREADS, 0, on>>>(pass, dy, dx, dz, rstds);
        }))
        backward<T><<<blocks_of(items, 32), THREADS, 0, on>>>(pass, dy, dx, dz, rstds);
    return tt_cuda_launched(stream, "gated_norm_backward", &args->x_TN);
}

} // namespace

extern "C" tt_status tt_cuda_gated_norm_forward(struct tt_stream *stream,
                                                const struct tt_gated_norm_forward_args *args)
{
    return with_type(args->x_TN.dtype, [&](auto t) { return forward_typed<decltype(t)>(stream, args); });
}

extern "C" tt_status tt_cuda_gated_norm_backward(struct tt_stream *stream,
                                                 const struct tt_gated_norm_backward_args *args)
{
    return with_type(args->x_TN.dtype, [&](auto t) { return backward_typed<decltype(t)>(stream, args); });
}
