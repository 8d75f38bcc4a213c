#include "backend/cuda/scan/chunks.h"

#include "backend/cuda/scan/chunks.cuh"

namespace
{

constexpr int SUM_THREADS = 256;

struct scan_rows rows_of(const tt_tensor &x)
{
    if (tt_tensor_is_empty(x)) return {};
    return {static_cast<bf16 *>(x.data), x.strides[0], x.rank == 3 ? x.strides[1] : 1};
}

struct scan_problem problem_of(const struct tt_scan_forward_args *args,
                               const struct tt_cuda_scan_parts &parts, void *scratch)
{
    struct scan_problem p = {};
    unsigned char *memory = static_cast<unsigned char *>(scratch);
    p.q = rows_of(args->q_TKE), p.k = rows_of(args->k_TKE), p.v = rows_of(args->v_THW);
    p.o = rows_of(args->o_THW), p.a = rows_of(args->a_TH), p.b = rows_of(args->b_TH);
    p.a_log = args->a_log_H.data, p.a_log_bf16 = args->a_log_H.dtype == TT_BF16;
    p.dt_bias = args->dt_bias_H.data, p.dt_bias_bf16 = args->dt_bias_H.dtype == TT_BF16;
    p.skip = args->skip_H.data, p.skip_bf16 = args->skip_H.dtype == TT_BF16;
    p.cu = static_cast<const int32_t *>(args->sequences.device_cu.data);
    p.from = static_cast<const int32_t *>(args->states.from_B.data);
    p.to = static_cast<const int32_t *>(args->states.to_B.data);
    p.pool = static_cast<float *>(args->states.pool.data);
    p.pool_stride = tt_tensor_is_empty(args->states.pool) ? 0 : args->states.pool.strides[0];
    p.count = args->q_TKE.dims[0], p.sequences = (int)args->sequences.count;
    p.heads = (int)args->v_THW.dims[1], p.group = p.heads / (int)args->q_TKE.dims[1];
    p.value_width = (int)args->v_THW.dims[2], p.slots = parts.slots;
    p.scale = (float)args->scale, p.norm_eps = (float)args->norm_eps;
    p.dt_min = (float)args->dt_min, p.dt_max = (float)args->dt_max;
    p.m = memory + parts.m, p.p = memory + parts.p, p.p_rest = memory + parts.p_rest;
    p.factors = memory + parts.factors, p.states = memory + parts.states, p.next = memory + parts.next;
    p.fresh = memory + parts.fresh, p.dn = memory + parts.dn;
    p.rates = reinterpret_cast<float *>(memory + parts.rates);
    return p;
}

/* *to += the sum over rows; a thread block has one of the sums of a value head. */
__global__ void __launch_bounds__(SUM_THREADS)
    sum_rates(const struct scan_problem p, float *ddt_bias, float *da_log)
{
    __shared__ double partial[32];
    float *to = blockIdx.y == 0 ? ddt_bias : da_log;
    if (to == nullptr) return;
    const float *values = p.rates + (blockIdx.x * 2 + blockIdx.y) * p.count;
    double sum = 0;
    for (int64_t row = threadIdx.x; row < p.count; row += SUM_THREADS) sum += (double)values[row];
    sum = block_sum(sum, partial);
    if (threadIdx.x == 0) to[p.first + (int)blockIdx.x] += (float)sum;
}

/* *to += the sum of <dO, v> over rows; a thread block has a value head. */
__global__ void __launch_bounds__(SUM_THREADS) sum_skipped(const struct scan_problem p, float *to)
{
    __shared__ double partial[32];
    int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32, h = (int)blockIdx.x;
    double sum = 0;
    for (int64_t row = warp; row < p.count; row += SUM_THREADS / 32) {
        float product = 0;
        for (int w = lane; w < p.value_width; w += 32)
            product = __fmaf_rn(load_one(p.d_out.data + row * p.d_out.row + h * p.d_out.head + w),
                                load_one(p.v.data + row * p.v.row + h * p.v.head + w), product);
        sum += (double)product;
    }
    sum = block_sum(sum, partial);
    if (threadIdx.x == 0) to[h] += (float)sum;
}

} // namespace

extern "C" bool tt_cuda_scan_by_chunks(const struct tt_stream *stream,
                                       const struct tt_scan_forward_args *args,
                                       const struct tt_scan_backward_args *backward)
{
    bool aligned = is_aligned(args->q_TKE, 8) && is_aligned(args->k_TKE, 8) && is_aligned(args->v_THW, 8);
    if (backward == nullptr)
        aligned = aligned && is_aligned(args->o_THW, 8);
    else
        aligned = aligned && is_aligned(backward->do_THW, 8) && is_aligned(backward->dq_TKE, 8) &&
                  is_aligned(backward->dk_TKE, 8) && is_aligned(backward->dv_THW, 8);
    return aligned && tt_cuda_scan_has_chunks(args) && args->scale != 0 &&
           tt_cuda_device_of(stream)->architecture >= 90; /* shared memory of the kernels */
}

extern "C" tt_status tt_cuda_scan_chunks_forward(struct tt_stream *stream,
                                                 const struct tt_scan_forward_args *args)
{
    struct tt_cuda_scan_parts parts = tt_cuda_scan_parts_of(args, false);
    struct scan_problem p = problem_of(args, parts, args->scratch.data);
    bool delta = args->rule == TT_SCAN_DELTA;
    int processors = tt_cuda_device_of(stream)->processors;
    if (p.count == 0) return TT_OK;
    p.least = TT_SCAN_ROWS_MAX;
    for (p.first = 0; p.first < p.heads; p.first += p.pass) {
        p.pass = p.heads - p.first < parts.pass ? p.heads - p.first : (int)parts.pass;
        tt_scan_prepare(&p, delta, tt_cuda_handle(stream));
        tt_scan_sweep(&p, delta, false, processors, tt_cuda_handle(stream));
    }
    return tt_cuda_launched(stream, "scan_forward", &args->q_TKE);
}

extern "C" tt_status tt_cuda_scan_chunks_backward(struct tt_stream *stream,
                                                  const struct tt_scan_backward_args *args)
{
    struct tt_cuda_scan_parts parts = tt_cuda_scan_parts_of(&args->forward, true);
    struct scan_problem p = problem_of(&args->forward, parts, args->scratch.data);
    bool delta = args->forward.rule == TT_SCAN_DELTA;
    int processors = tt_cuda_device_of(stream)->processors;
    float *ddt_bias = static_cast<float *>(args->ddt_bias_H.data);
    float *da_log = static_cast<float *>(args->da_log_H.data),
          *dskip = static_cast<float *>(args->dskip_H.data);
    cudaStream_t on = tt_cuda_handle(stream);
    if (p.count == 0) return TT_OK;
    p.d_out = rows_of(args->do_THW), p.dq = rows_of(args->dq_TKE), p.dk = rows_of(args->dk_TKE);
    p.dv = rows_of(args->dv_THW), p.da = rows_of(args->da_TH), p.db = rows_of(args->db_TH);
    if (ddt_bias == nullptr && da_log == nullptr) p.rates = nullptr;
    for (p.first = 0; p.first < p.heads; p.first += p.pass) {
        p.pass = p.heads - p.first < parts.pass ? p.heads - p.first : (int)parts.pass;
        tt_scan_prepare(&p, delta, on);
        tt_scan_sweep(&p, delta, true, processors, on);
        tt_scan_sweep_back(&p, delta, processors, on);
        tt_scan_gradients(&p, delta, on);
        if (p.rates != nullptr)
            sum_rates<<<dim3((unsigned)p.pass, 2), SUM_THREADS, 0, on>>>(p, ddt_bias, da_log);
    }
    if (dskip != nullptr) sum_skipped<<<(unsigned)p.heads, SUM_THREADS, 0, on>>>(p, dskip);
    return tt_cuda_launched(stream, "scan_backward", &args->forward.q_TKE);
}
