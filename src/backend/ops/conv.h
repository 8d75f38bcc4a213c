/* Convolution of images in channels-last order (cross-correlation, as torch.nn.functional.conv2d): images are rows of
 * pixels [P, C], P = images * height * width, with C contiguous; weights are in torch's order [O, C, kernel, kernel].
 *
 *     z[n, i, j, o] = sum over h, w, c of x[n, i * stride - padding + h, j * stride - padding + w, c] * w[o, c, h, w]
 *
 * x is 0 outside. Sums are fp32. On processors their order depends on C and kernel alone: an image gives the same bits
 * whatever the batch and the number of threads. On GPUs it depends on the shape of the batch too, since cuDNN chooses a
 * kernel for each shape. There is no dilation, and there are no groups. */
#ifndef TT_BACKEND_OPS_CONV_H
#define TT_BACKEND_OPS_CONV_H

#include "backend/device.h"
#include "tensor/tensor.h"

struct tt_conv_geometry {
    int64_t images, height, width; /* of x */
    int64_t kernel, stride, padding;
};
static inline int64_t tt_conv_side(const struct tt_conv_geometry *geometry, int64_t side)
{
    return (side + 2 * geometry->padding - geometry->kernel) / geometry->stride + 1;
}
static inline int64_t tt_conv_pixels(const struct tt_conv_geometry *geometry)
{
    return geometry->images * tt_conv_side(geometry, geometry->height) *
           tt_conv_side(geometry, geometry->width);
}

/* Kernels of GPUs read channels in groups. With `padded` the rows of y, or of its gradient, have room for whole groups:
 * forward may write 0 into the rest of the last group, and the backward passes may read it: it is 0 there.
 * `again`: w is that of the call before, of the same op on this stream, with the same values: a device may use what it
 * made of it then. Only casts ran in between. */
enum { TT_CONV_GROUP = 8 };
static inline int64_t tt_conv_grouped(int64_t channels)
{
    return (channels + TT_CONV_GROUP - 1) / TT_CONV_GROUP * TT_CONV_GROUP;
}

/* y = relu(z * scale + bias + residual), rounded once. */
struct tt_conv2d_forward_args {
    struct tt_conv_geometry geometry;
    tt_tensor x_PC;        /* f32 | bf16; rows may be strided */
    tt_tensor w_OK;        /* x's type, [O, C * kernel * kernel], contiguous */
    tt_tensor scale_O;     /* f32, or empty */
    tt_tensor bias_O;      /* f32, or empty */
    tt_tensor residual_QO; /* empty, or y's type and shape; may be y itself */
    tt_tensor y_QO;        /* x's type */
    bool relu;
    bool padded, again;
};
TT_MUST_USE tt_status tt_conv2d_forward(struct tt_stream *stream, const struct tt_conv2d_forward_args *args);

/* dx = gradient of x, or dx + it with `accumulate`. */
struct tt_conv2d_backward_input_args {
    struct tt_conv_geometry geometry;
    tt_tensor dz_QO;
    tt_tensor w_OK;
    tt_tensor dx_PC; /* dz's type */
    bool accumulate;
    bool padded; /* dz */
    bool again;
};
TT_MUST_USE tt_status tt_conv2d_backward_input(struct tt_stream *stream,
                                               const struct tt_conv2d_backward_input_args *args);

/* dw += gradient of w. */
struct tt_conv2d_backward_weight_args {
    struct tt_conv_geometry geometry;
    tt_tensor x_PC;
    tt_tensor dz_QO;
    tt_tensor dw_OK;      /* f32 */
    tt_tensor scratch_OK; /* f32, as dw; empty where kernel is 1 */
    bool padded;          /* dz */
};
TT_MUST_USE tt_status tt_conv2d_backward_weight(struct tt_stream *stream,
                                                const struct tt_conv2d_backward_weight_args *args);

/* Convolutions that are to come: their arguments, of which no value is read. Their tensors are at addresses with the
 * same remainders by 64 as those of the calls. */
enum tt_conv2d_pass { TT_CONV2D_FORWARD, TT_CONV2D_BACKWARD_INPUT, TT_CONV2D_BACKWARD_WEIGHT };
struct tt_conv2d_request {
    enum tt_conv2d_pass pass;
    union {
        struct tt_conv2d_forward_args forward;
        struct tt_conv2d_backward_input_args input;
        struct tt_conv2d_backward_weight_args weight;
    } args;
};
struct tt_conv2d_requests {
    struct tt_conv2d_request *items; /* owned */
    size_t count, capacity;
};
TT_MUST_USE tt_status tt_conv2d_requests_add(struct tt_conv2d_requests *requests,
                                             const struct tt_conv2d_request *request);
void tt_conv2d_requests_deinit(struct tt_conv2d_requests *requests);
/* Prepares the device for these calls on this stream, all at once: cuDNN's plans, on GPUs. No effect on other
 * devices, and none where it was there already; a call that was not prepared is as good, and takes longer. */
TT_MUST_USE tt_status tt_conv2d_prepare(struct tt_stream *stream, const struct tt_conv2d_requests *requests);

/* The gradient before scale, residual and relu of a convolution: with g = dy where y > 0, else 0 (g = dy without y),
 * dz = g * scale, and dresidual = g, or dresidual + g with `accumulate`. dbias += sums of dz over all places. */
struct tt_conv2d_backward_output_args {
    tt_tensor y_QO;         /* empty: no relu */
    tt_tensor dy_QO;        /* f32 | bf16 */
    tt_tensor scale_O;      /* f32, or empty */
    tt_tensor dresidual_QO; /* empty, or dy's type and shape; may not be dy */
    tt_tensor dz_QO;        /* may be dy */
    tt_tensor dbias_O;      /* f32, or empty */
    bool accumulate;
};
TT_MUST_USE tt_status tt_conv2d_backward_output(struct tt_stream *stream,
                                                const struct tt_conv2d_backward_output_args *args);

/* Maximum over windows of kernel x kernel, without the padding; which_QC is the pixel of x that it came from (the first
 * of equals, in order of rows). */
struct tt_maxpool2d_forward_args {
    struct tt_conv_geometry geometry;
    tt_tensor x_PC;
    tt_tensor y_QC;     /* x's type */
    tt_tensor which_QC; /* i32; empty when no backward follows */
};
TT_MUST_USE tt_status tt_maxpool2d_forward(struct tt_stream *stream,
                                           const struct tt_maxpool2d_forward_args *args);

struct tt_maxpool2d_backward_args {
    struct tt_conv_geometry geometry;
    tt_tensor which_QC;
    tt_tensor dy_QC;
    tt_tensor dx_PC; /* dy's type; overwritten */
};
TT_MUST_USE tt_status tt_maxpool2d_backward(struct tt_stream *stream,
                                            const struct tt_maxpool2d_backward_args *args);

/* y += x enlarged twice: each pixel of x [images, height, width] is added to 2 x 2 pixels of y
 * [images, 2 height, 2 width] (nearest neighbour). */
struct tt_upsample_add_args {
    int64_t images, height, width; /* of x */
    tt_tensor x_PC;
    tt_tensor y_QC; /* x's type, in place */
};
TT_MUST_USE tt_status tt_upsample_add(struct tt_stream *stream, const struct tt_upsample_add_args *args);

/* dx += sums of dy over 2 x 2 pixels. */
struct tt_upsample_backward_args {
    int64_t images, height, width; /* of x */
    tt_tensor dy_QC;
    tt_tensor dx_PC; /* dy's type */
};
TT_MUST_USE tt_status tt_upsample_backward(struct tt_stream *stream,
                                           const struct tt_upsample_backward_args *args);

#endif
