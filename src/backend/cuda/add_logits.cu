#include "backend/cuda/device_math.cuh"

#include "backend/ops/add_logits.h"

namespace
{

constexpr int THREADS = 256;

__global__ void __launch_bounds__(THREADS)
    add_logits(float *logits, int64_t stride, const int32_t *rows, const int32_t *ids, const float *values,
               int64_t entries)
{
    int64_t e = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (e < entries) logits[rows[e] * stride + ids[e]] += values[e];
}

} // namespace

extern "C" tt_status tt_cuda_add_logits(struct tt_stream *stream, const struct tt_add_logits_args *args)
{
    int64_t entries = args->rows_E.dims[0];
    if (entries == 0) return TT_OK;
    unsigned blocks = (unsigned)((entries + THREADS - 1) / THREADS);
    add_logits<<<blocks, THREADS, 0, tt_cuda_handle(stream)>>>(
        static_cast<float *>(args->logits_NV.data), args->logits_NV.strides[0],
        static_cast<const int32_t *>(args->rows_E.data), static_cast<const int32_t *>(args->ids_E.data),
        static_cast<const float *>(args->values_E.data), entries);
    return tt_cuda_launched(stream, "add_logits", &args->logits_NV);
}
