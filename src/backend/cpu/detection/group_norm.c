/* Norms of groups of channels. The sums of a group in an image are one thread's, over its pixels in order. */
#include <math.h>

#include "backend/cpu/parallel.h"
#include "backend/ops/group_norm.h"

/* The pixels of one image: rows of `channels` values. */
struct plane {
    char *data;
    int64_t row_bytes, pixels;
    bool bf16;
};

static struct plane plane_of(const tt_tensor *x, int64_t images, int64_t image)
{
    int64_t width = (int64_t)tt_dtype_bytes(x->dtype), pixels = x->dims[0] / images,
            row = x->strides[0] * width;
    return (struct plane){(char *)x->data + image * pixels * row, row, pixels, x->dtype == TT_BF16};
}

static inline float value_at(const struct plane *plane, int64_t pixel, int64_t channel)
{
    const char *row = plane->data + pixel * plane->row_bytes;
    return plane->bf16 ? tt_bf16_to_f32(((const uint16_t *)row)[channel]) : ((const float *)row)[channel];
}

static inline void set_at(const struct plane *plane, int64_t pixel, int64_t channel, float value)
{
    char *row = plane->data + pixel * plane->row_bytes;
    if (plane->bf16)
        ((uint16_t *)row)[channel] = tt_f32_to_bf16(value);
    else
        ((float *)row)[channel] = value;
}

static void find_statistics(const struct tt_group_norm_args *args, int64_t image, int64_t group)
{
    const struct plane x = plane_of(&args->x_PC, args->images, image);
    int64_t each = args->x_PC.dims[1] / args->groups, first = group * each, at = image * args->groups + group;
    double sum = 0, squares = 0, count = (double)(x.pixels * each);
    for (int64_t p = 0; p < x.pixels; p++)
        for (int64_t c = first; c < first + each; c++) {
            double value = value_at(&x, p, c);
            sum += value;
            squares += value * value;
        }
    double mean = sum / count, variance = squares / count - mean * mean;
    ((float *)args->mean_NG.data)[at] = (float)mean;
    ((float *)args->scale_NG.data)[at] = (float)(1.0 / sqrt((variance > 0 ? variance : 0) + args->eps));
}

static void normalize(const struct tt_group_norm_args *args, int64_t image, int64_t group)
{
    const struct plane x = plane_of(&args->x_PC, args->images, image),
                       y = plane_of(&args->y_PC, args->images, image);
    const float *weight = args->weight_C.data, *bias = args->bias_C.data;
    int64_t each = args->x_PC.dims[1] / args->groups, first = group * each, at = image * args->groups + group;
    float mean = ((const float *)args->mean_NG.data)[at], scale = ((const float *)args->scale_NG.data)[at];
    for (int64_t p = 0; p < x.pixels; p++)
        for (int64_t c = first; c < first + each; c++) {
            float value = (value_at(&x, p, c) - mean) * scale * weight[c] + bias[c];
            if (args->relu && value < 0.0f) value = 0.0f; /* NaN stays */
            set_at(&y, p, c, value);
        }
}

tt_status tt_cpu_group_norm(struct tt_stream *stream, const struct tt_group_norm_args *args)
{
    int threads = tt_cpu_threads(stream, 2 * tt_tensor_count(args->x_PC));
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t i = 0; i < args->images * args->groups; i++) {
        find_statistics(args, i / args->groups, i % args->groups);
        normalize(args, i / args->groups, i % args->groups);
    }
    return TT_OK;
}

/* dx = g a + x b + c, with one a a channel and one b and c a group; and the parts of dweight and dbias. */
static void find_factors(const struct tt_group_norm_backward_args *args, int64_t image, int64_t group)
{
    const struct plane x = plane_of(&args->x_PC, args->images, image),
                       dy = plane_of(&args->dy_PC, args->images, image);
    bool relu = !tt_tensor_is_empty(args->y_PC);
    const struct plane y = relu ? plane_of(&args->y_PC, args->images, image) : dy;
    int64_t channels = args->x_PC.dims[1], each = channels / args->groups, first = group * each;
    int64_t at = image * args->groups + group;
    double mean = ((const float *)args->mean_NG.data)[at], scale = ((const float *)args->scale_NG.data)[at];
    double *dweight = (double *)args->parts_NC.data + 2 * image * channels, *dbias = dweight + channels;
    float *a = (float *)args->factors_NC.data + 3 * image * channels, *b = a + channels,
          *constant = b + channels;
    const float *weight = args->weight_C.data;
    double gradient = 0, slope = 0, count = (double)(x.pixels * each);
    for (int64_t c = first; c < first + each; c++) dweight[c] = dbias[c] = 0;
    for (int64_t p = 0; p < x.pixels; p++)
        for (int64_t c = first; c < first + each; c++) {
            if (relu && !(value_at(&y, p, c) > 0.0f)) continue;
            double g = value_at(&dy, p, c);
            dbias[c] += g;
            dweight[c] += g * (double)value_at(&x, p, c);
        }
    for (int64_t c = first; c < first + each; c++) {
        dweight[c] = scale * (dweight[c] - mean * dbias[c]);
        gradient += weight[c] * dbias[c];
        slope += weight[c] * dweight[c];
    }
    for (int64_t c = first; c < first + each; c++) {
        a[c] = (float)(scale * weight[c]);
        b[c] = (float)(-scale * scale * slope / count);
        constant[c] = (float)(scale * (scale * mean * slope - gradient) / count);
    }
}

static void write_gradient(const struct tt_group_norm_backward_args *args, int64_t image, int64_t group)
{
    const struct plane x = plane_of(&args->x_PC, args->images, image),
                       dy = plane_of(&args->dy_PC, args->images, image),
                       dx = plane_of(&args->dx_PC, args->images, image);
    bool relu = !tt_tensor_is_empty(args->y_PC);
    const struct plane y = relu ? plane_of(&args->y_PC, args->images, image) : dy;
    int64_t channels = args->x_PC.dims[1], each = channels / args->groups, first = group * each;
    const float *a = (const float *)args->factors_NC.data + 3 * image * channels, *b = a + channels,
                *constant = b + channels;
    for (int64_t p = 0; p < x.pixels; p++)
        for (int64_t c = first; c < first + each; c++) {
            float g = relu && !(value_at(&y, p, c) > 0.0f) ? 0.0f : value_at(&dy, p, c);
            set_at(&dx, p, c, g * a[c] + value_at(&x, p, c) * b[c] + constant[c]);
        }
}

tt_status tt_cpu_group_norm_backward(struct tt_stream *stream, const struct tt_group_norm_backward_args *args)
{
    int64_t channels = args->x_PC.dims[1];
    int threads = tt_cpu_threads(stream, 4 * tt_tensor_count(args->x_PC));
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t i = 0; i < args->images * args->groups; i++) {
        find_factors(args, i / args->groups, i % args->groups);
        write_gradient(args, i / args->groups, i % args->groups);
    }
    if (tt_tensor_is_empty(args->dweight_C)) return TT_OK;
    for (int64_t c = 0; c < channels; c++) {
        const double *parts = args->parts_NC.data;
        double dweight = 0, dbias = 0;
        for (int64_t image = 0; image < args->images; image++) {
            dweight += parts[2 * image * channels + c];
            dbias += parts[(2 * image + 1) * channels + c];
        }
        ((float *)args->dweight_C.data)[c] += (float)dweight;
        ((float *)args->dbias_C.data)[c] += (float)dbias;
    }
    return TT_OK;
}
