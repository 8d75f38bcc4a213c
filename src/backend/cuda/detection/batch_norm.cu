/* Batch norm from sums of channels: statistics, and the factors of its gradient. */
#include <math.h>

#include "backend/cuda/sheet.cuh"

namespace
{

/* Batch norm of torch, in double as the sums are (ops/channels.h). */
__global__ void __launch_bounds__(256)
    statistics(const double *sums, const double *pixels, double momentum, float *mean, float *variance,
               float *running_mean, float *running_variance, int64_t count)
{
    int64_t c = (int64_t)blockIdx.x * 256 + threadIdx.x;
    if (c >= count) return;
    double n = *pixels, m = n > 0 ? sums[c] / n : 0.0, v = n > 0 ? sums[count + c] / n - m * m : 1.0;
    if (v < 0.0) v = 0.0;
    mean[c] = (float)m;
    variance[c] = (float)v;
    if (!(n > 0)) return;
    double unbiased = n > 1 ? v * n / (n - 1) : v;
    running_mean[c] = (float)((1 - momentum) * running_mean[c] + momentum * m);
    running_variance[c] = (float)((1 - momentum) * running_variance[c] + momentum * unbiased);
}

struct norm_vectors {
    const float *mean, *variance, *weight;
    float *a, *b, *c, *dweight, *dbias;
};

__global__ void __launch_bounds__(256)
    norm_gradient(const double *all, const double *own, const double *pixels, double eps, norm_vectors v,
                  int64_t count)
{
    int64_t i = (int64_t)blockIdx.x * 256 + threadIdx.x;
    if (i >= count) return;
    double r = 1.0 / sqrt((double)v.variance[i] + eps), n = *pixels > 0 ? *pixels : 1.0, mean = v.mean[i];
    double k = r * (all[count + i] - mean * all[i]) / n, scale = v.weight[i] * r;
    v.a[i] = (float)scale;
    v.b[i] = (float)(-scale * r * k);
    v.c[i] = (float)(scale * (r * k * mean - all[i] / n));
    v.dweight[i] += (float)(r * (own[count + i] - mean * own[i]));
    v.dbias[i] += (float)own[i];
}

float *floats_of(tt_tensor x)
{
    return static_cast<float *>(x.data);
}

} // namespace

extern "C" tt_status tt_cuda_batch_statistics(struct tt_stream *stream,
                                              const struct tt_batch_statistics_args *args)
{
    int64_t count = args->mean_C.dims[0];
    statistics<<<(unsigned)((count + 255) / 256), 256, 0, tt_cuda_handle(stream)>>>(
        static_cast<const double *>(args->sums_2C.data), static_cast<const double *>(args->count_1.data),
        args->momentum, floats_of(args->mean_C), floats_of(args->variance_C), floats_of(args->running_mean_C),
        floats_of(args->running_variance_C), count);
    return tt_cuda_launched(stream, "batch_statistics", &args->mean_C);
}

extern "C" tt_status tt_cuda_batch_norm_gradient(struct tt_stream *stream,
                                                 const struct tt_batch_norm_gradient_args *args)
{
    int64_t count = args->mean_C.dims[0];
    const norm_vectors vectors = {floats_of(args->mean_C),    floats_of(args->variance_C),
                                  floats_of(args->weight_C),  floats_of(args->a_C),
                                  floats_of(args->b_C),       floats_of(args->c_C),
                                  floats_of(args->dweight_C), floats_of(args->dbias_C)};
    norm_gradient<<<(unsigned)((count + 255) / 256), 256, 0, tt_cuda_handle(stream)>>>(
        static_cast<const double *>(args->all_2C.data), static_cast<const double *>(args->own_2C.data),
        static_cast<const double *>(args->count_1.data), args->eps, vectors, count);
    return tt_cuda_launched(stream, "batch_norm_gradient", &args->mean_C);
}
