/* Convolutions as products of packed panels (gemm/gather.h):
 *   forward          rows: places of y; k: taps and channels of x
 *   gradient of x    rows: places of x, one product for each of stride x stride phases, whose taps of the kernel are
 *                    every stride-th; k: taps and channels of dz
 *   gradient of w    rows: channels of dz; k: places of y */
#include <string.h>

#include "backend/cpu/gemm/variants.h"
#include "backend/cpu/gemm/gather.h"
#include "backend/cpu/conv/winograd.h"

/* The variant with panels for every shape: how sums are split must not depend on the number of images. */
static tt_status multiply(struct tt_stream *stream, const struct tt_gemm_problem *problem)
{
    const char *declined = NULL;
    if (problem->m == 0) return TT_OK;
    return tt_gemm_panels(stream, problem, &declined);
}

static struct tt_gemm_source image_source(tt_tensor x, const struct tt_gemm_gather *image, int64_t rows)
{
    return (struct tt_gemm_source){
        .data = x.data, .dtype = x.dtype, .k_contiguous = true, .across = rows, .gather = image};
}

static struct tt_gemm_gather patches(const struct tt_conv_geometry *geometry, tt_tensor x)
{
    return (struct tt_gemm_gather){.is_image = true,
                                   .channels = x.dims[1],
                                   .taps_h = geometry->kernel,
                                   .taps_w = geometry->kernel,
                                   .grid_h = tt_conv_side(geometry, geometry->height),
                                   .grid_w = tt_conv_side(geometry, geometry->width),
                                   .height = geometry->height,
                                   .width = geometry->width,
                                   .pixel = x.strides[0],
                                   .step = geometry->stride,
                                   .tap_step = 1,
                                   .first_h = -geometry->padding,
                                   .first_w = -geometry->padding};
}

static bool is_plain(const struct tt_conv_geometry *geometry)
{
    return geometry->kernel == 1 && geometry->stride == 1;
}

tt_status tt_cpu_conv2d_forward(struct tt_stream *stream, const struct tt_conv2d_forward_args *args)
{
    const struct tt_conv_geometry *geometry = &args->geometry;
    int64_t channels = args->x_PC.dims[1], taps = geometry->kernel * geometry->kernel;
    struct tt_gemm_gather image = patches(geometry, args->x_PC);
    struct tt_gemm_gather weights = {.channels = channels,
                                     .taps_h = geometry->kernel,
                                     .taps_w = geometry->kernel,
                                     .row = channels * taps,
                                     .tap_h = geometry->kernel,
                                     .tap_w = 1,
                                     .channel = taps};
    struct tt_gemm_epilogue epilogue = {
        .scale = args->scale_O.data,
        .bias = args->bias_O.data,
        .residual = args->residual_QO.data,
        .residual_stride = args->residual_QO.strides[0],
        .relu = args->relu,
    };
    if (tt_winograd_takes(stream, geometry, args->x_PC.dtype, channels, args->y_QO.dims[1])) {
        const struct tt_winograd winograd = {.images = geometry->images,
                                             .height = geometry->height,
                                             .width = geometry->width,
                                             .x_PC = args->x_PC,
                                             .y_QO = args->y_QO,
                                             .w = args->w_OK.data,
                                             .w_out = channels * taps,
                                             .w_in = taps,
                                             .epilogue = epilogue};
        tt_winograd_run(stream, &winograd);
        return TT_OK;
    }
    bool plain = epilogue.scale == NULL && epilogue.bias == NULL && epilogue.residual == NULL && !args->relu;
    struct tt_gemm_problem problem = {
        .m = args->y_QO.dims[0],
        .n = args->y_QO.dims[1],
        .k = channels * taps,
        .a = image_source(args->x_PC, &image, args->y_QO.dims[0]),
        .b = tt_gemm_source_of(args->w_OK, true),
        .c = {.data = args->y_QO.data, .dtype = args->y_QO.dtype, .stride = args->y_QO.strides[0]},
        .alpha = 1.0f,
        .epilogue = plain ? NULL : &epilogue,
    };
    if (is_plain(geometry)) problem.a = tt_gemm_source_of(args->x_PC, true);
    if (taps > 1) problem.b.gather = &weights;
    return multiply(stream, &problem);
}

static void fill_zero(const struct tt_stream *stream, tt_tensor x)
{
    size_t bytes = (size_t)x.dims[1] * tt_dtype_bytes(x.dtype);
    int threads = tt_cpu_threads(stream, x.dims[0] * x.dims[1]);
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t row = 0; row < x.dims[0]; row++)
        memset((char *)x.data + (size_t)(row * x.strides[0]) * tt_dtype_bytes(x.dtype), 0, bytes);
}

/* One direction of a phase: the pixels first, first + stride, ... of x, which the taps tap, tap + stride, ... reach.
 * Pixel first + i * stride at tap + t * stride is multiplied by the place i + start - t of dz. */
struct phase {
    int64_t first, count, tap, taps, start;
};

static struct phase phase_of(const struct tt_conv_geometry *geometry, int64_t side, int64_t first)
{
    int64_t stride = geometry->stride, tap = (first + geometry->padding) % stride;
    return (struct phase){.first = first,
                          .count = first < side ? (side - first + stride - 1) / stride : 0,
                          .tap = tap,
                          .taps = tap < geometry->kernel ? (geometry->kernel - tap + stride - 1) / stride : 0,
                          .start = (first + geometry->padding - tap) / stride};
}

static tt_status run_phase(struct tt_stream *stream, const struct tt_conv2d_backward_input_args *args,
                           const struct phase *rows, const struct phase *columns)
{
    const struct tt_conv_geometry *geometry = &args->geometry;
    tt_tensor dz = args->dz_QO, dx = args->dx_PC;
    int64_t out = dz.dims[1], in = dx.dims[1], kernel = geometry->kernel, stride = geometry->stride;
    struct tt_gemm_gather image = {.is_image = true,
                                   .channels = out,
                                   .taps_h = rows->taps,
                                   .taps_w = columns->taps,
                                   .grid_h = rows->count,
                                   .grid_w = columns->count,
                                   .height = tt_conv_side(geometry, geometry->height),
                                   .width = tt_conv_side(geometry, geometry->width),
                                   .pixel = dz.strides[0],
                                   .step = 1,
                                   .tap_step = -1,
                                   .first_h = rows->start,
                                   .first_w = columns->start};
    struct tt_gemm_gather weights = {.channels = out,
                                     .taps_h = rows->taps,
                                     .taps_w = columns->taps,
                                     .first = rows->tap * kernel + columns->tap,
                                     .row = kernel * kernel,
                                     .tap_h = stride * kernel,
                                     .tap_w = stride,
                                     .channel = in * kernel * kernel};
    int64_t first = rows->first * geometry->width + columns->first;
    struct tt_gemm_target target = {.data = (char *)dx.data +
                                            (size_t)(first * dx.strides[0]) * tt_dtype_bytes(dx.dtype),
                                    .dtype = dx.dtype,
                                    .stride = stride * dx.strides[0]};
    if (stride > 1) {
        target.run = columns->count;
        target.runs = rows->count;
        target.run_stride = stride * geometry->width * dx.strides[0];
        target.group_stride = geometry->height * geometry->width * dx.strides[0];
    }
    struct tt_gemm_problem problem = {
        .m = geometry->images * rows->count * columns->count,
        .n = in,
        .k = out * rows->taps * columns->taps,
        .a = image_source(dz, &image, geometry->images * rows->count * columns->count),
        .b = {.data = args->w_OK.data,
              .dtype = args->w_OK.dtype,
              .k_contiguous = true,
              .across = in,
              .gather = &weights},
        .c = target,
        .alpha = 1.0f,
        .beta = args->accumulate ? 1.0f : 0.0f,
    };
    if (is_plain(geometry)) {
        problem.a = tt_gemm_source_of(dz, true);
        problem.b = tt_gemm_source_of(args->w_OK, false);
    }
    return multiply(stream, &problem);
}

tt_status tt_cpu_conv2d_backward_input(struct tt_stream *stream,
                                       const struct tt_conv2d_backward_input_args *args)
{
    const struct tt_conv_geometry *geometry = &args->geometry;
    int64_t in = args->dx_PC.dims[1], out = args->dz_QO.dims[1], taps = geometry->kernel * geometry->kernel;
    if (tt_winograd_takes(stream, geometry, args->dz_QO.dtype, out, in)) {
        const struct tt_winograd winograd = {
            .images = geometry->images,
            .height = geometry->height,
            .width = geometry->width,
            .x_PC = args->dz_QO,
            .y_QO = args->dx_PC,
            .w = args->w_OK.data,
            .w_out = taps,
            .w_in = in * taps,
            .flipped = true,
            .epilogue = {.residual = args->accumulate ? args->dx_PC.data : NULL,
                         .residual_stride = args->dx_PC.strides[0]},
        };
        tt_winograd_run(stream, &winograd);
        return TT_OK;
    }
    /* Pixels that no tap reaches get no gradient. */
    if (!args->accumulate && geometry->stride > 1) fill_zero(stream, args->dx_PC);
    for (int64_t h = 0; h < geometry->stride; h++)
        for (int64_t w = 0; w < geometry->stride; w++) {
            struct phase rows = phase_of(geometry, geometry->height, h);
            struct phase columns = phase_of(geometry, geometry->width, w);
            if (rows.count * columns.count == 0 || rows.taps * columns.taps == 0) continue;
            TT_TRY(run_phase(stream, args, &rows, &columns));
        }
    return TT_OK;
}

/* dw[o, c, tap] += sums[o, tap, c] */
static void add_in_torch_order(const struct tt_stream *stream, tt_tensor dw, const float *sums, int64_t taps)
{
    int64_t channels = dw.dims[1] / taps;
    int threads = tt_cpu_threads(stream, dw.dims[0] * dw.dims[1]);
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t o = 0; o < dw.dims[0]; o++) {
        float *to = (float *)dw.data + o * dw.dims[1];
        const float *from = sums + o * dw.dims[1];
        for (int64_t c = 0; c < channels; c++)
            for (int64_t tap = 0; tap < taps; tap++) to[c * taps + tap] += from[tap * channels + c];
    }
}

tt_status tt_cpu_conv2d_backward_weight(struct tt_stream *stream,
                                        const struct tt_conv2d_backward_weight_args *args)
{
    const struct tt_conv_geometry *geometry = &args->geometry;
    int64_t taps = geometry->kernel * geometry->kernel;
    if (tt_winograd_takes_weight(stream, geometry, args->x_PC.dtype, args->x_PC.dims[1],
                                 args->dz_QO.dims[1])) {
        tt_winograd_run_weight(stream, args);
        return TT_OK;
    }
    tt_tensor to = taps > 1 ? args->scratch_OK : args->dw_OK;
    struct tt_gemm_gather image = patches(geometry, args->x_PC);
    struct tt_gemm_problem problem = {
        .m = to.dims[0],
        .n = to.dims[1],
        .k = args->dz_QO.dims[0],
        .a = tt_gemm_source_of(args->dz_QO, false),
        .b = image_source(args->x_PC, &image, to.dims[1]),
        .c = {.data = to.data, .dtype = TT_F32, .stride = to.strides[0]},
        .alpha = 1.0f,
        .beta = taps > 1 ? 0.0f : 1.0f,
    };
    problem.b.k_contiguous = false;
    if (is_plain(geometry)) problem.b = tt_gemm_source_of(args->x_PC, false);
    if (problem.k == 0) return TT_OK;
    TT_TRY(multiply(stream, &problem));
    if (taps > 1) add_in_torch_order(stream, args->dw_OK, args->scratch_OK.data, taps);
    return TT_OK;
}
