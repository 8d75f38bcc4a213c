/* The ops of a network on images besides products. Threads share out pixels. */
#ifndef TT_VECTOR_LANES

#include <string.h>

#include "backend/ops/conv.h"

/* The address of pixel `row`; NULL for a missing tensor. */
static inline void *pixel_of(const tt_tensor *x, int64_t row)
{
    if (tt_tensor_is_empty(*x)) return NULL;
    return (char *)x->data + row * x->strides[0] * (int64_t)tt_dtype_bytes(x->dtype);
}

#define TT_VECTOR_SOURCE "backend/cpu/detection/image.c"
#include "backend/cpu/vector_math_passes.h"

tt_status tt_cpu_conv2d_backward_output(struct tt_stream *stream,
                                        const struct tt_conv2d_backward_output_args *args)
{
    void (*backward)(const struct tt_conv2d_backward_output_args *, int64_t) =
        TT_BEST(stream, backward_output);
    int64_t rows = args->dy_QO.dims[0];
    int threads = tt_cpu_threads(stream, rows * args->dy_QO.dims[1]);
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t row = 0; row < rows; row++) backward(args, row);
    if (tt_tensor_is_empty(args->dbias_O)) return TT_OK;
    return tt_cpu_bias_backward(
        stream, &(struct tt_bias_backward_args){.dy_TN = args->dz_QO, .dbias_N = args->dbias_O});
}

tt_status tt_cpu_maxpool2d_forward(struct tt_stream *stream, const struct tt_maxpool2d_forward_args *args)
{
    void (*forward)(const struct tt_maxpool2d_forward_args *, int64_t) = TT_BEST(stream, pool);
    int64_t rows = args->y_QC.dims[0], window = args->geometry.kernel * args->geometry.kernel;
    int threads = tt_cpu_threads(stream, rows * args->y_QC.dims[1] * window);
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t row = 0; row < rows; row++) forward(args, row);
    return TT_OK;
}

static void add_at(const tt_tensor *dx, const tt_tensor *dy, int64_t row, int64_t pixel, int64_t channel)
{
    if (dx->dtype == TT_F32) {
        ((float *)pixel_of(dx, pixel))[channel] += ((const float *)pixel_of(dy, row))[channel];
        return;
    }
    uint16_t *to = (uint16_t *)pixel_of(dx, pixel) + channel;
    *to =
        tt_f32_to_bf16(tt_bf16_to_f32(*to) + tt_bf16_to_f32(((const uint16_t *)pixel_of(dy, row))[channel]));
}

/* Windows overlap within an image, so an image belongs to one thread, which adds in order of the places of y. */
tt_status tt_cpu_maxpool2d_backward(struct tt_stream *stream, const struct tt_maxpool2d_backward_args *args)
{
    const tt_tensor *dx = &args->dx_PC, *dy = &args->dy_QC, *which = &args->which_QC;
    int64_t images = args->geometry.images, channels = dx->dims[1];
    int64_t in = args->geometry.height * args->geometry.width, out = images > 0 ? dy->dims[0] / images : 0;
    int threads = tt_cpu_threads(stream, (dx->dims[0] + dy->dims[0]) * channels);
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t image = 0; image < images; image++) {
        for (int64_t p = image * in; p < (image + 1) * in; p++)
            memset(pixel_of(dx, p), 0, (size_t)channels * tt_dtype_bytes(dx->dtype));
        for (int64_t row = image * out; row < (image + 1) * out; row++) {
            const int32_t *from = pixel_of(which, row);
            for (int64_t c = 0; c < channels; c++) add_at(dx, dy, row, from[c], c);
        }
    }
    return TT_OK;
}

tt_status tt_cpu_upsample_add(struct tt_stream *stream, const struct tt_upsample_add_args *args)
{
    void (*add)(const struct tt_upsample_add_args *, int64_t) = TT_BEST(stream, enlarge);
    int threads = tt_cpu_threads(stream, args->y_QC.dims[0] * args->y_QC.dims[1]);
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t row = 0; row < args->x_PC.dims[0]; row++) add(args, row);
    return TT_OK;
}

tt_status tt_cpu_upsample_backward(struct tt_stream *stream, const struct tt_upsample_backward_args *args)
{
    void (*backward)(const struct tt_upsample_backward_args *, int64_t) = TT_BEST(stream, shrink);
    int threads = tt_cpu_threads(stream, args->dy_QC.dims[0] * args->dy_QC.dims[1]);
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t row = 0; row < args->dx_PC.dims[0]; row++) backward(args, row);
    return TT_OK;
}

#else

static void TT_PASS(backward_output)(const struct tt_conv2d_backward_output_args *args, int64_t row)
{
    const void *y = pixel_of(&args->y_QO, row), *dy = pixel_of(&args->dy_QO, row);
    void *dz = pixel_of(&args->dz_QO, row), *dresidual = pixel_of(&args->dresidual_QO, row);
    const float *scale = args->scale_O.data;
    int64_t channels = args->dy_QO.dims[1];
    bool bf16 = args->dy_QO.dtype == TT_BF16;
    for (int64_t c = 0; c < channels; c += TT_VECTOR_LANES) {
        int64_t left = channels - c;
        vf g = vload_part(dy, c, bf16, left);
        if (y != NULL) g = vselect(vload_part(y, c, bf16, left) > vsplat(0.0f), g, vsplat(0.0f));
        if (dresidual != NULL) {
            vf sum = g;
            if (args->accumulate) sum += vload_part(dresidual, c, bf16, left);
            vstore_part(dresidual, c, bf16, sum, left);
        }
        if (scale != NULL) g *= vload_part(scale, c, false, left);
        vstore_part(dz, c, bf16, g, left);
    }
}

/* The pixels of a window that are in the image: rows top .. bottom, columns left .. right. */
struct TT_PASS(window) {
    int64_t image, top, bottom, left, right;
};

TT_INLINE struct TT_PASS(window) TT_PASS(window_of)(const struct tt_conv_geometry *geometry, int64_t row)
{
    int64_t out_h = tt_conv_side(geometry, geometry->height), out_w = tt_conv_side(geometry, geometry->width);
    int64_t top = row / out_w % out_h * geometry->stride - geometry->padding;
    int64_t left = row % out_w * geometry->stride - geometry->padding;
    int64_t bottom = top + geometry->kernel, right = left + geometry->kernel;
    return (struct TT_PASS(window)){.image = row / out_w / out_h,
                                    .top = top < 0 ? 0 : top,
                                    .left = left < 0 ? 0 : left,
                                    .bottom = bottom > geometry->height ? geometry->height : bottom,
                                    .right = right > geometry->width ? geometry->width : right};
}

static void TT_PASS(pool)(const struct tt_maxpool2d_forward_args *args, int64_t row)
{
    const struct tt_conv_geometry *geometry = &args->geometry;
    struct TT_PASS(window) window = TT_PASS(window_of)(geometry, row);
    int64_t channels = args->x_PC.dims[1];
    int64_t first = (window.image * geometry->height + window.top) * geometry->width + window.left;
    bool bf16 = args->x_PC.dtype == TT_BF16;
    void *y = pixel_of(&args->y_QC, row);
    int32_t *which = pixel_of(&args->which_QC, row);
    for (int64_t c = 0; c < channels; c += TT_VECTOR_LANES) {
        int64_t left = channels - c;
        vf best = vload_part(pixel_of(&args->x_PC, first), c, bf16, left);
        vi at = vsplat_int((int32_t)first);
        for (int64_t h = window.top; h < window.bottom; h++) {
            int64_t pixel = (window.image * geometry->height + h) * geometry->width + window.left;
            for (int64_t w = window.left; w < window.right; w++, pixel++) {
                vf x = vload_part(pixel_of(&args->x_PC, pixel), c, bf16, left);
                vi larger = (x > best) | (x != x);
                best = vselect(larger, x, best);
                at = (larger & vsplat_int((int32_t)pixel)) | (~larger & at);
            }
        }
        vstore_part(y, c, bf16, best, left);
        for (int64_t i = 0; which != NULL && i < TT_VECTOR_LANES && i < left; i++) which[c + i] = at[i];
    }
}

static void TT_PASS(enlarge)(const struct tt_upsample_add_args *args, int64_t row)
{
    int64_t channels = args->x_PC.dims[1], large = 2 * args->width;
    int64_t pixel = row / args->width * 2 * large + row % args->width * 2;
    const int64_t steps[4] = {0, 1, large, large + 1};
    bool bf16 = args->x_PC.dtype == TT_BF16;
    for (int64_t c = 0; c < channels; c += TT_VECTOR_LANES) {
        vf x = vload_part(pixel_of(&args->x_PC, row), c, bf16, channels - c);
        for (int i = 0; i < 4; i++) {
            void *y = pixel_of(&args->y_QC, pixel + steps[i]);
            vstore_part(y, c, bf16, vload_part(y, c, bf16, channels - c) + x, channels - c);
        }
    }
}

static void TT_PASS(shrink)(const struct tt_upsample_backward_args *args, int64_t row)
{
    int64_t channels = args->dx_PC.dims[1], large = 2 * args->width;
    int64_t pixel = row / args->width * 2 * large + row % args->width * 2;
    const int64_t steps[4] = {0, 1, large, large + 1};
    bool bf16 = args->dx_PC.dtype == TT_BF16;
    for (int64_t c = 0; c < channels; c += TT_VECTOR_LANES) {
        void *dx = pixel_of(&args->dx_PC, row);
        vf sum = vsplat(0.0f);
        for (int i = 0; i < 4; i++)
            sum += vload_part(pixel_of(&args->dy_QC, pixel + steps[i]), c, bf16, channels - c);
        vstore_part(dx, c, bf16, vload_part(dx, c, bf16, channels - c) + sum, channels - c);
    }
}

#endif
