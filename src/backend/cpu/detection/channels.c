/* Sums, scales and statistics of the channels of images, for batch norm and frozen norms. */
#ifndef TT_VECTOR_LANES

#include <math.h>
#include <string.h>

#include "backend/cpu/parallel.h"
#include "backend/ops/channels.h"

enum { GROUP_ROWS = 256, DOUBLES_MAX = TT_CPU_SCRATCH_BYTES / (int)sizeof(double) };

static inline void *pixel_of(const tt_tensor *x, int64_t row)
{
    if (tt_tensor_is_empty(*x)) return NULL;
    return (char *)x->data + row * x->strides[0] * (int64_t)tt_dtype_bytes(x->dtype);
}

#define TT_VECTOR_SOURCE "backend/cpu/detection/channels.c"
#include "backend/cpu/vector_math_passes.h"

/* Groups of rows have lines of their own, which are added in order: as many at a time as scratch holds. */
tt_status tt_cpu_channel_sums(struct tt_stream *stream, const struct tt_channel_sums_args *args)
{
    void (*add)(const struct tt_channel_sums_args *, int64_t, int64_t, double *) = TT_BEST(stream, add_rows);
    int64_t rows = args->x_PC.dims[0], width = 2 * args->x_PC.dims[1];
    int64_t groups = (rows + GROUP_ROWS - 1) / GROUP_ROWS, together = width > 0 ? DOUBLES_MAX / width : 1;
    if (together < 1)
        return tt_fail(TT_ERR_UNSUPPORTED, "channel_sums: %lld channels, the cpu's limit is %d",
                       (long long)(width / 2), DOUBLES_MAX / 2);
    double *lines = tt_cpu_scratch(stream, 0), *sums = args->sums_2C.data; /* the whole team uses the lines */
    int threads = tt_cpu_threads(stream, rows * width);
    for (int64_t done = 0; done < groups; done += together) {
        int64_t now = groups - done < together ? groups - done : together;
#pragma omp parallel for num_threads(threads) schedule(static)
        for (int64_t g = 0; g < now; g++) {
            int64_t first = (done + g) * GROUP_ROWS,
                    end = first + GROUP_ROWS < rows ? first + GROUP_ROWS : rows;
            memset(lines + g * width, 0, (size_t)width * sizeof *lines);
            add(args, first, end, lines + g * width);
        }
        for (int64_t g = 0; g < now; g++)
            for (int64_t c = 0; c < width; c++) sums[c] += lines[g * width + c];
    }
    return TT_OK;
}

tt_status tt_cpu_channel_affine(struct tt_stream *stream, const struct tt_channel_affine_args *args)
{
    void (*affine)(const struct tt_channel_affine_args *, int64_t) = TT_BEST(stream, affine);
    int64_t rows = args->x_PC.dims[0];
    int threads = tt_cpu_threads(stream, rows * args->x_PC.dims[1]);
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t row = 0; row < rows; row++) affine(args, row);
    return TT_OK;
}

tt_status tt_cpu_norm_fold(struct tt_stream *stream, const struct tt_norm_fold_args *args)
{
    (void)stream;
    const float *weight = args->weight_C.data, *bias = args->bias_C.data;
    const float *mean = args->mean_C.data, *variance = args->variance_C.data;
    float *scale = args->scale_C.data, *shift = args->shift_C.data;
    for (int64_t c = 0; c < args->scale_C.dims[0]; c++) {
        scale[c] = weight[c] * (1.0f / sqrtf(variance[c] + (float)args->eps));
        shift[c] = bias[c] - mean[c] * scale[c];
    }
    return TT_OK;
}

tt_status tt_cpu_batch_statistics(struct tt_stream *stream, const struct tt_batch_statistics_args *args)
{
    (void)stream;
    int64_t channels = args->mean_C.dims[0];
    const double *sums = args->sums_2C.data, count = *(const double *)args->count_1.data;
    float *mean = args->mean_C.data, *variance = args->variance_C.data;
    float *running_mean = args->running_mean_C.data, *running_variance = args->running_variance_C.data;
    for (int64_t c = 0; c < channels; c++) {
        double m = count > 0 ? sums[c] / count : 0.0;
        double v = count > 0 ? sums[channels + c] / count - m * m : 1.0;
        if (v < 0.0) v = 0.0; /* by rounding */
        mean[c] = (float)m;
        variance[c] = (float)v;
        if (!(count > 0)) continue;
        double unbiased = count > 1 ? v * count / (count - 1) : v;
        running_mean[c] = (float)((1 - args->momentum) * running_mean[c] + args->momentum * m);
        running_variance[c] = (float)((1 - args->momentum) * running_variance[c] + args->momentum * unbiased);
    }
    return TT_OK;
}

tt_status tt_cpu_batch_norm_gradient(struct tt_stream *stream, const struct tt_batch_norm_gradient_args *args)
{
    (void)stream;
    int64_t channels = args->mean_C.dims[0];
    const double *all = args->all_2C.data, *own = args->own_2C.data,
                 count = *(const double *)args->count_1.data;
    const float *mean = args->mean_C.data, *variance = args->variance_C.data, *weight = args->weight_C.data;
    float *a = args->a_C.data, *b = args->b_C.data, *c = args->c_C.data;
    float *dweight = args->dweight_C.data, *dbias = args->dbias_C.data;
    for (int64_t i = 0; i < channels; i++) {
        double r = 1.0 / sqrt((double)variance[i] + args->eps), n = count > 0 ? count : 1.0;
        double k = r * (all[channels + i] - mean[i] * all[i]) / n, scale = weight[i] * r;
        a[i] = (float)scale;
        b[i] = (float)(-scale * r * k);
        c[i] = (float)(scale * (r * k * mean[i] - all[i] / n));
        dweight[i] += (float)(r * (own[channels + i] - mean[i] * own[i]));
        dbias[i] += (float)own[i];
    }
    return TT_OK;
}

tt_status tt_cpu_channel_mix(struct tt_stream *stream, const struct tt_channel_mix_args *args)
{
    void (*mix)(const struct tt_channel_mix_args *, int64_t) = TT_BEST(stream, mix);
    int64_t rows = args->g_PC.dims[0];
    int threads = tt_cpu_threads(stream, rows * args->g_PC.dims[1]);
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t row = 0; row < rows; row++) mix(args, row);
    return TT_OK;
}

#else
static void TT_PASS(add_rows)(const struct tt_channel_sums_args *args, int64_t first, int64_t end,
                              double *sums)
{
    int64_t channels = args->x_PC.dims[1];
    bool bf16 = args->x_PC.dtype == TT_BF16;
    for (int64_t row = first; row < end; row++) {
        const void *x = pixel_of(&args->x_PC, row), *g = pixel_of(&args->g_PC, row);
        for (int64_t c = 0; c < channels; c += TT_VECTOR_LANES) {
            int64_t left = channels - c < TT_VECTOR_LANES ? channels - c : TT_VECTOR_LANES;
            vf value = vload_part(x, c, bf16, left), other = g != NULL ? vload_part(g, c, bf16, left) : value;
            for (int64_t i = 0; i < left; i++) {
                sums[c + i] += (double)other[i];
                sums[channels + c + i] += (double)other[i] * (double)value[i];
            }
        }
    }
}

static void TT_PASS(affine)(const struct tt_channel_affine_args *args, int64_t row)
{
    const void *x = pixel_of(&args->x_PC, row), *residual = pixel_of(&args->residual_PC, row);
    void *y = pixel_of(&args->y_PC, row);
    int64_t channels = args->x_PC.dims[1];
    bool bf16 = args->x_PC.dtype == TT_BF16;
    for (int64_t c = 0; c < channels; c += TT_VECTOR_LANES) {
        int64_t left = channels - c;
        vf value = vload_part(x, c, bf16, left);
        if (args->scale_C.data != NULL) value *= vload_part(args->scale_C.data, c, false, left);
        if (args->shift_C.data != NULL) value += vload_part(args->shift_C.data, c, false, left);
        if (residual != NULL) value += vload_part(residual, c, bf16, left);
        if (args->relu) value = vselect(value < vsplat(0.0f), vsplat(0.0f), value); /* NaN stays */
        vstore_part(y, c, bf16, value, left);
    }
}

static void TT_PASS(mix)(const struct tt_channel_mix_args *args, int64_t row)
{
    const void *g = pixel_of(&args->g_PC, row), *x = pixel_of(&args->x_PC, row);
    void *dx = pixel_of(&args->dx_PC, row);
    int64_t channels = args->g_PC.dims[1];
    bool bf16 = args->g_PC.dtype == TT_BF16;
    for (int64_t c = 0; c < channels; c += TT_VECTOR_LANES) {
        int64_t left = channels - c;
        vf value = vload_part(g, c, bf16, left) * vload_part(args->a_C.data, c, false, left) +
                   vload_part(x, c, bf16, left) * vload_part(args->b_C.data, c, false, left) +
                   vload_part(args->c_C.data, c, false, left);
        vstore_part(dx, c, bf16, value, left);
    }
}

#endif
