/* Grouped products of few rows, as in generation (grouped.h). A tile has 16 columns of an expert and up to 8 of its
 * rows, which only the device knows, so the tiles of all experts with rows are divided among all thread blocks. An
 * expert with more rows has further tiles, which find its matrix in the second-level cache. */
#include "backend/cuda/gemm/grouped.h"

#include "backend/cuda/device_math.cuh"
#include "backend/cuda/gemm/few_tiles.cuh"

namespace
{

constexpr int ROWS_ALL = 128; /* of a call: with more, the kernel of grouped.cu reads matrices faster */
constexpr int STAGES = 6;     /* 147 KB */

struct few_grouped {
    const __nv_bfloat16 *x, *w;
    const bf16 *h; /* NULL: no adapter */
    bf16 *y;
    const void *b, *bias; /* bias NULL: none */
    const int32_t *border;
    int64_t x_row, h_row, y_row;
    int experts, n, k, r;
    float alpha;
    bool b_is_bf16, bias_is_bf16;
};

/* Up to ROWS rows of an expert. */
struct few_part {
    int expert, row, rows;
};

/* Lists the parts of all experts in order; returns their number. */
__device__ int list_parts(const few_grouped &p, few_part *parts)
{
    __shared__ int sums[WARPS];
    int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32, all = 0;
    for (int first = 0; first < p.experts; first += THREADS) {
        int e = first + (int)threadIdx.x, begin = e < p.experts ? p.border[e] : 0,
            end = e < p.experts ? p.border[e + 1] : 0, own = (end - begin + ROWS - 1) / ROWS, sum = own;
#pragma unroll
        for (int step = 1; step < 32; step *= 2) {
            int other = __shfl_up_sync(0xffffffffu, sum, step);
            if (lane >= step) sum += other;
        }
        __syncthreads(); /* the sums of the turn before have been read */
        if (lane == 31) sums[warp] = sum;
        __syncthreads();
        int before = all + sum - own;
#pragma unroll
        for (int i = 0; i < WARPS; i++) {
            if (i < warp) before += sums[i];
            all += sums[i];
        }
        for (int i = 0; i < own; i++) {
            int row = begin + i * ROWS;
            parts[before + i] = {e, row, min(ROWS, end - row)};
        }
    }
    __syncthreads();
    return all;
}

__device__ __forceinline__ void put(const few_grouped &p, const few_part &part, int row, int column,
                                    float sum)
{
    int64_t m = part.row + row, n = (int64_t)part.expert * p.n + column;
    sum *= p.alpha;
    for (int i = 0; i < p.r; i++)
        sum = __fmaf_rn(load_one(p.h + m * p.h_row + i), load_either(p.b, n * p.r + i, p.b_is_bf16), sum);
    if (p.bias != nullptr) sum += load_either(p.bias, n, p.bias_is_bf16);
    store_one(p.y + m * p.y_row + column, sum);
}

__global__ void __launch_bounds__(THREADS) grouped_few(const __grid_constant__ few_grouped p)
{
    __shared__ few_part parts[ROWS_ALL];
    int strips = p.n / (2 * RUN), count = list_parts(p, parts);
    few_tiles<STAGES>(
        count * strips, p.k,
        [&](int tile, int g, int k) -> few_sources {
            few_part part = parts[tile / strips];
            const __nv_bfloat16 *w =
                p.w + ((int64_t)part.expert * p.n + tile % strips * 2 * RUN + g) * p.k + k;
            bool has_row = g < part.rows;
            return {w, w + (int64_t)RUN * p.k, p.x + (part.row + (has_row ? g : 0)) * p.x_row + k, has_row};
        },
        [&](int tile) { return parts[tile / strips].rows; },
        [&](int tile, int row, int c, float a, float b) {
            const few_part &part = parts[tile / strips];
            int column = tile % strips * 2 * RUN + c;
            put(p, part, row, column, a);
            put(p, part, row, column + RUN, b);
        });
}

bool takes(const struct tt_cuda_device *cuda, const struct tt_grouped_gemm_args *args)
{
    const tt_tensor &x = args->x_MK, &w = args->w_XNK;
    return (cuda->architecture == 80 || cuda->architecture >= 90) && !args->transposed &&
           x.dtype == TT_BF16 && w.dtype == TT_BF16 && x.dims[0] >= 1 && x.dims[0] <= ROWS_ALL &&
           x.dims[1] % DEPTH == 0 && x.dims[1] >= DEPTH && x.dims[1] <= INT32_MAX &&
           args->y_MN.dims[1] % (2 * RUN) == 0 && args->y_MN.dims[1] <= INT32_MAX / ROWS_ALL &&
           is_aligned(x, 8) && (uintptr_t)w.data % 16 == 0;
}

} // namespace

extern "C" tt_status tt_cuda_grouped_few(struct tt_stream *stream, const struct tt_grouped_gemm_args *args)
{
    const struct tt_cuda_device *cuda = tt_cuda_device_of(stream);
    if (!takes(cuda, args)) return TT_ERR_UNSUPPORTED;
    few_grouped p = {};
    p.x = static_cast<const __nv_bfloat16 *>(args->x_MK.data), p.x_row = args->x_MK.strides[0];
    p.w = static_cast<const __nv_bfloat16 *>(args->w_XNK.data);
    p.y = static_cast<bf16 *>(args->y_MN.data), p.y_row = args->y_MN.strides[0];
    p.border = static_cast<const int32_t *>(args->border_X1.data);
    p.experts = (int)(args->border_X1.dims[0] - 1);
    p.n = (int)args->y_MN.dims[1], p.k = (int)args->x_MK.dims[1];
    p.alpha = args->alpha == 0 ? 1 : args->alpha;
    p.bias = args->bias_XN.data, p.bias_is_bf16 = args->bias_XN.dtype == TT_BF16;
    if (!tt_tensor_is_empty(args->h_MR)) {
        p.h = static_cast<const bf16 *>(args->h_MR.data), p.h_row = args->h_MR.strides[0];
        p.b = args->b_XNR.data, p.b_is_bf16 = args->b_XNR.dtype == TT_BF16;
        p.r = (int)args->h_MR.dims[1];
    }
    constexpr int bytes = few_queue_bytes(STAGES);
    TT_TRY(
        tt_cuda_check(cudaFuncSetAttribute(grouped_few, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes),
                      stream, "grouped_gemm"));
    grouped_few<<<(unsigned)cuda->processors, THREADS, bytes, tt_cuda_handle(stream)>>>(p);
    return tt_cuda_launched(stream, "grouped_gemm", &args->x_MK);
}
