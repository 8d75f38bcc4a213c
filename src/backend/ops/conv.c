#include "backend/ops/conv.h"

#include "backend/device_impl.h"
#include "backend/ops/check.h"
#include "base/alloc.h"

static void check_geometry(struct tt_check *check, const struct tt_conv_geometry *geometry)
{
    tt_check_that(check,
                  geometry->images >= 0 && geometry->height >= 1 && geometry->width >= 1 &&
                      geometry->kernel >= 1 && geometry->stride >= 1 && geometry->padding >= 0 &&
                      geometry->padding < geometry->kernel,
                  "%lld images of %lld x %lld, kernel %lld, stride %lld, padding %lld",
                  (long long)geometry->images, (long long)geometry->height, (long long)geometry->width,
                  (long long)geometry->kernel, (long long)geometry->stride, (long long)geometry->padding);
    tt_check_that(
        check, tt_conv_side(geometry, geometry->height) >= 1 && tt_conv_side(geometry, geometry->width) >= 1,
        "an image of %lld x %lld is smaller than a kernel of %lld", (long long)geometry->height,
        (long long)geometry->width, (long long)geometry->kernel);
}

static int64_t pixels_in(const struct tt_conv_geometry *geometry)
{
    return geometry->images * geometry->height * geometry->width;
}

/* Returns the number of channels of x. */
static int64_t check_x(struct tt_check *check, const char *name, tt_tensor x,
                       const struct tt_conv_geometry *geometry)
{
    check_geometry(check, geometry);
    tt_check_tensor(check, name, x, TT_TYPES_REAL, 2, 2);
    if (check->status != TT_OK) return 0;
    tt_check_shape(check, name, x, TT_TYPES_REAL, 2, TT_DIMS(pixels_in(geometry), x.dims[1]));
    return x.dims[1];
}

/* Checks y or its gradient, and returns the number of its channels. */
static int64_t check_y(struct tt_check *check, const char *name, tt_tensor y, tt_dtype dtype,
                       const struct tt_conv_geometry *geometry)
{
    tt_check_tensor(check, name, y, TT_TYPES_REAL, 2, 2);
    if (check->status != TT_OK) return 0;
    tt_check_type(check, name, y, dtype);
    tt_check_shape(check, name, y, TT_TYPES_REAL, 2, TT_DIMS(tt_conv_pixels(geometry), y.dims[1]));
    return y.dims[1];
}

static void check_weight(struct tt_check *check, const char *name, tt_tensor w, unsigned types, int64_t out,
                         int64_t in, int64_t kernel)
{
    if (check->status != TT_OK) return;
    tt_check_shape(check, name, w, types, 2, TT_DIMS(out, in * kernel * kernel));
    tt_check_contiguous(check, name, w);
}

static void check_padded(struct tt_check *check, const char *name, tt_tensor y, bool padded)
{
    if (check->status != TT_OK || !padded) return;
    tt_check_that(check, y.strides[0] >= tt_conv_grouped(y.dims[1]),
                  "rows of %s have no room for %lld channels", name, (long long)tt_conv_grouped(y.dims[1]));
}

static void check_channels(struct tt_check *check, const char *name, tt_tensor x, int64_t channels)
{
    if (check->status != TT_OK || tt_tensor_is_empty(x)) return;
    tt_check_shape(check, name, x, TT_TYPES_F32, 1, TT_DIMS(channels));
    tt_check_contiguous(check, name, x);
}

tt_status tt_conv2d_forward(struct tt_stream *stream, const struct tt_conv2d_forward_args *args)
{
    struct tt_check check = {.op = "conv2d_forward"};
    tt_tensor x = args->x_PC, y = args->y_QO;
    int64_t in = check_x(&check, "x", x, &args->geometry);
    int64_t out = check.status == TT_OK ? check_y(&check, "y", y, x.dtype, &args->geometry) : 0;
    check_weight(&check, "w", args->w_OK, TT_TYPES_REAL, out, in, args->geometry.kernel);
    if (check.status == TT_OK) tt_check_type(&check, "w", args->w_OK, x.dtype);
    check_padded(&check, "y", y, args->padded);
    check_channels(&check, "scale", args->scale_O, out);
    check_channels(&check, "bias", args->bias_O, out);
    if (check.status == TT_OK && !tt_tensor_is_empty(args->residual_QO)) {
        tt_check_like(&check, "residual", args->residual_QO, TT_TYPES_REAL, "y", y);
        tt_check_type(&check, "residual", args->residual_QO, x.dtype);
        tt_check_same_or_apart(&check, "residual", args->residual_QO, "y", y);
    }
    tt_check_apart(&check, "y", y, "x", x);
    tt_check_apart(&check, "y", y, "w", args->w_OK);
    if (check.status != TT_OK) return check.status;
    return tt_dispatch_conv2d_forward(stream, args);
}

tt_status tt_conv2d_backward_input(struct tt_stream *stream, const struct tt_conv2d_backward_input_args *args)
{
    struct tt_check check = {.op = "conv2d_backward_input"};
    tt_tensor dx = args->dx_PC, dz = args->dz_QO;
    int64_t in = check_x(&check, "dx", dx, &args->geometry);
    int64_t out = check.status == TT_OK ? check_y(&check, "dz", dz, dx.dtype, &args->geometry) : 0;
    check_weight(&check, "w", args->w_OK, TT_TYPES_REAL, out, in, args->geometry.kernel);
    if (check.status == TT_OK) tt_check_type(&check, "w", args->w_OK, dz.dtype);
    check_padded(&check, "dz", dz, args->padded);
    tt_check_apart(&check, "dx", dx, "dz", dz);
    tt_check_apart(&check, "dx", dx, "w", args->w_OK);
    if (check.status != TT_OK) return check.status;
    return tt_dispatch_conv2d_backward_input(stream, args);
}

tt_status tt_conv2d_backward_weight(struct tt_stream *stream,
                                    const struct tt_conv2d_backward_weight_args *args)
{
    struct tt_check check = {.op = "conv2d_backward_weight"};
    tt_tensor x = args->x_PC, dz = args->dz_QO;
    int64_t in = check_x(&check, "x", x, &args->geometry);
    int64_t out = check.status == TT_OK ? check_y(&check, "dz", dz, x.dtype, &args->geometry) : 0;
    check_weight(&check, "dw", args->dw_OK, TT_TYPES_F32, out, in, args->geometry.kernel);
    check_padded(&check, "dz", dz, args->padded);
    if (args->geometry.kernel > 1) {
        check_weight(&check, "scratch", args->scratch_OK, TT_TYPES_F32, out, in, args->geometry.kernel);
        tt_check_apart(&check, "scratch", args->scratch_OK, "dw", args->dw_OK);
    }
    tt_check_apart(&check, "dw", args->dw_OK, "x", x);
    tt_check_apart(&check, "dw", args->dw_OK, "dz", dz);
    if (check.status != TT_OK) return check.status;
    return tt_dispatch_conv2d_backward_weight(stream, args);
}

tt_status tt_conv2d_requests_add(struct tt_conv2d_requests *requests, const struct tt_conv2d_request *request)
{
    TT_TRY(tt_grow(&requests->items, requests->count, &requests->capacity));
    requests->items[requests->count++] = *request;
    return TT_OK;
}

void tt_conv2d_requests_deinit(struct tt_conv2d_requests *requests)
{
    tt_free(requests->items);
    *requests = (struct tt_conv2d_requests){0};
}

tt_status tt_conv2d_prepare(struct tt_stream *stream, const struct tt_conv2d_requests *requests)
{
    const struct tt_device_table *table = stream->device->table;
    return table->conv2d_prepare != NULL ? table->conv2d_prepare(stream, requests) : TT_OK;
}

tt_status tt_conv2d_backward_output(struct tt_stream *stream,
                                    const struct tt_conv2d_backward_output_args *args)
{
    struct tt_check check = {.op = "conv2d_backward_output"};
    tt_tensor dy = args->dy_QO;
    tt_check_tensor(&check, "dy", dy, TT_TYPES_REAL, 2, 2);
    if (check.status != TT_OK) return check.status;
    tt_check_like(&check, "dz", args->dz_QO, TT_TYPES_REAL, "dy", dy);
    tt_check_type(&check, "dz", args->dz_QO, dy.dtype);
    tt_check_same_or_apart(&check, "dz", args->dz_QO, "dy", dy);
    check_channels(&check, "scale", args->scale_O, dy.dims[1]);
    check_channels(&check, "dbias", args->dbias_O, dy.dims[1]);
    if (!tt_tensor_is_empty(args->y_QO)) {
        tt_check_like(&check, "y", args->y_QO, TT_TYPES_REAL, "dy", dy);
        tt_check_type(&check, "y", args->y_QO, dy.dtype);
        tt_check_apart(&check, "dz", args->dz_QO, "y", args->y_QO);
    }
    if (!tt_tensor_is_empty(args->dresidual_QO)) {
        tt_check_like(&check, "dresidual", args->dresidual_QO, TT_TYPES_REAL, "dy", dy);
        tt_check_type(&check, "dresidual", args->dresidual_QO, dy.dtype);
        tt_check_apart(&check, "dresidual", args->dresidual_QO, "dy", dy);
        tt_check_apart(&check, "dresidual", args->dresidual_QO, "dz", args->dz_QO);
    }
    if (check.status != TT_OK) return check.status;
    return tt_dispatch_conv2d_backward_output(stream, args);
}

tt_status tt_maxpool2d_forward(struct tt_stream *stream, const struct tt_maxpool2d_forward_args *args)
{
    struct tt_check check = {.op = "maxpool2d_forward"};
    tt_tensor x = args->x_PC, y = args->y_QC;
    int64_t channels = check_x(&check, "x", x, &args->geometry);
    if (check.status == TT_OK) (void)check_y(&check, "y", y, x.dtype, &args->geometry);
    tt_check_that(&check, y.dims[1] == channels, "y has %lld channels, x %lld", (long long)y.dims[1],
                  (long long)channels);
    if (check.status == TT_OK && !tt_tensor_is_empty(args->which_QC)) {
        tt_check_like(&check, "which", args->which_QC, TT_TYPES_I32, "y", y);
        tt_check_apart(&check, "which", args->which_QC, "y", y);
    }
    tt_check_apart(&check, "y", y, "x", x);
    if (check.status != TT_OK) return check.status;
    return tt_dispatch_maxpool2d_forward(stream, args);
}

tt_status tt_maxpool2d_backward(struct tt_stream *stream, const struct tt_maxpool2d_backward_args *args)
{
    struct tt_check check = {.op = "maxpool2d_backward"};
    tt_tensor dx = args->dx_PC, dy = args->dy_QC;
    int64_t channels = check_x(&check, "dx", dx, &args->geometry);
    if (check.status == TT_OK) (void)check_y(&check, "dy", dy, dx.dtype, &args->geometry);
    tt_check_that(&check, dy.dims[1] == channels, "dy has %lld channels, dx %lld", (long long)dy.dims[1],
                  (long long)channels);
    if (check.status == TT_OK) tt_check_like(&check, "which", args->which_QC, TT_TYPES_I32, "dy", dy);
    tt_check_apart(&check, "dx", dx, "dy", dy);
    tt_check_apart(&check, "dx", dx, "which", args->which_QC);
    if (check.status != TT_OK) return check.status;
    return tt_dispatch_maxpool2d_backward(stream, args);
}

/* small [images, height, width], large twice as high and wide */
static void check_pair(struct tt_check *check, const char *small_name, tt_tensor small,
                       const char *large_name, tt_tensor large, const int64_t dims[3])
{
    tt_check_tensor(check, small_name, small, TT_TYPES_REAL, 2, 2);
    if (check->status != TT_OK) return;
    int64_t pixels = dims[0] * dims[1] * dims[2], channels = small.dims[1];
    tt_check_shape(check, small_name, small, TT_TYPES_REAL, 2, TT_DIMS(pixels, channels));
    tt_check_shape(check, large_name, large, TT_TYPES_REAL, 2, TT_DIMS(4 * pixels, channels));
    tt_check_type(check, large_name, large, small.dtype);
    tt_check_apart(check, small_name, small, large_name, large);
}

tt_status tt_upsample_add(struct tt_stream *stream, const struct tt_upsample_add_args *args)
{
    struct tt_check check = {.op = "upsample_add"};
    check_pair(&check, "x", args->x_PC, "y", args->y_QC, TT_DIMS(args->images, args->height, args->width));
    if (check.status != TT_OK) return check.status;
    return tt_dispatch_upsample_add(stream, args);
}

tt_status tt_upsample_backward(struct tt_stream *stream, const struct tt_upsample_backward_args *args)
{
    struct tt_check check = {.op = "upsample_backward"};
    check_pair(&check, "dx", args->dx_PC, "dy", args->dy_QC,
               TT_DIMS(args->images, args->height, args->width));
    if (check.status != TT_OK) return check.status;
    return tt_dispatch_upsample_backward(stream, args);
}
