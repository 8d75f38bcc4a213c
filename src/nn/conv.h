/* A convolution, then a bias or a norm by fixed statistics (frozen batch norm), then relu. Norms by other statistics:
 * nn/batch_norm.h, nn/group_norm.h. Images are rows of pixels [P, C] in channels-last order
 * (backend/ops/conv.h). */
#ifndef TT_NN_CONV_H
#define TT_NN_CONV_H

#include "backend/ops/conv.h"
#include "nn/pass.h"
#include "tensor/param.h"

/* Indices of the parameters of a norm: weight, bias, running_mean, running_var. In a frozen norm none is trainable. */
enum {
    TT_CONV_NORM_WEIGHT,
    TT_CONV_NORM_BIAS,
    TT_CONV_NORM_MEAN,
    TT_CONV_NORM_VARIANCE,
    TT_CONV_NORM_PARAMS
};

struct tt_conv {
    tt_param *weight;                    /* [O, C, kernel, kernel] */
    tt_param *bias;                      /* NULL: none */
    tt_param *norm[TT_CONV_NORM_PARAMS]; /* all NULL: no norm */
    tt_param *group_weight, *group_bias; /* of a norm of groups of channels (nn/group_norm.h); NULL: none */
    int64_t groups;
    double norm_eps;
    /* statistics are those of the batch (nn/batch_norm.h), also where weight and bias are frozen */
    bool batch_norm;
    int64_t in, out, kernel, stride, padding;
    bool relu;
};

/* The places of images in a batch. */
struct tt_image_shape {
    int64_t images, height, width;
};
static inline int64_t tt_image_pixels(struct tt_image_shape shape)
{
    return shape.images * shape.height * shape.width;
}
struct tt_image_shape tt_conv_shape(const struct tt_conv *conv, struct tt_image_shape x); /* of y */
bool tt_conv_trains(const struct tt_conv *conv);
/* FLOPs of a training pass over `places` pixels of y. `full`: all parameters train. */
double tt_conv_flops(const struct tt_conv *conv, double places, bool full);

/* Whether the pass computes the statistics of its batch norm. */
static inline bool tt_conv_has_batch_norm(const struct tt_conv *conv, const struct tt_pass *pass)
{
    return conv->batch_norm && pass->in.training;
}

/* A vector of parameters in fp32: itself, or a copy in the workspace. */
TT_MUST_USE tt_status tt_conv_floats(const struct tt_pass *pass, tt_tensor value, tt_tensor *floats);

/* y = relu(norm(conv(x)) + residual). The residual may be empty, or y itself. Rows of y may be longer than its
 * channels: then they have room for whole groups of channels, and the rest of the last group is 0 in y's gradient too
 * (backend/ops/conv.h: padded). */
TT_MUST_USE tt_status tt_conv_forward(const struct tt_conv *conv, const struct tt_pass *pass,
                                      struct tt_image_shape shape, tt_tensor x_PC, tt_tensor residual_QO,
                                      tt_tensor y_QO);

/* The same for several batches of images, such as the levels of a pyramid; parameters are prepared once. */
struct tt_conv_item {
    struct tt_image_shape shape; /* of x */
    tt_tensor x_PC, residual_QO, y_QO;
};
TT_MUST_USE tt_status tt_conv_forward_each(const struct tt_conv *conv, const struct tt_pass *pass,
                                           const struct tt_conv_item *items, int count);

struct tt_conv_backward {
    struct tt_image_shape shape; /* of x */
    tt_tensor x_PC;              /* read where the weight trains */
    tt_tensor y_QO;              /* read where there is a relu */
    tt_tensor dy_QO;             /* overwritten */
    tt_tensor dresidual_QO;      /* empty, or the residual's gradient goes there */
    bool add_residual;           /* it is added */
    tt_tensor dx_PC;             /* empty: nobody reads it */
    bool add_x;                  /* it is added to dx */
};
/* Adds to the gradients of trainable parameters. */
TT_MUST_USE tt_status tt_conv_run_backward(const struct tt_conv *conv, const struct tt_pass *pass,
                                           const struct tt_conv_backward *args);
TT_MUST_USE tt_status tt_conv_run_backward_each(const struct tt_conv *conv, const struct tt_pass *pass,
                                                const struct tt_conv_backward *items, int count);

#endif
