/* Norm of groups of channels, each image by itself (Wu and He 2018, arXiv 1803.08494; torch's GroupNorm), then relu.
 * The rows of an image's pixels follow one another: P = images * pixels of an image. C / groups neighbouring channels
 * are a group, with one mean and one variance (of all its values, biased) in an image. Sums are fp64, in an order that
 * depends on the shape alone. */
#ifndef TT_BACKEND_OPS_GROUP_NORM_H
#define TT_BACKEND_OPS_GROUP_NORM_H

#include "backend/device.h"
#include "tensor/tensor.h"

/* y = relu((x - mean) / sqrt(variance + eps) * weight + bias) */
struct tt_group_norm_args {
    tt_tensor x_PC;             /* f32 | bf16 */
    tt_tensor weight_C, bias_C; /* f32 */
    int64_t images, groups;
    double eps;
    tt_tensor mean_NG, scale_NG; /* f32 [images, groups], written: mean, 1 / sqrt(variance + eps) */
    tt_tensor y_PC;              /* x's type; may be x */
    bool relu;
};
TT_MUST_USE tt_status tt_group_norm(struct tt_stream *stream, const struct tt_group_norm_args *args);

/* The gradients, with g = dy where y > 0 (everywhere without `y`), r = scale, h = (x - mean) r:
 *     dweight[c] += sum over pixels of g h;  dbias[c] += sum of g
 *     dx = r (g weight - mean of (g weight) - h * mean of (g weight h)), means over a group of an image */
struct tt_group_norm_backward_args {
    tt_tensor x_PC, weight_C;
    int64_t images, groups;
    tt_tensor mean_NG, scale_NG; /* as written by group_norm */
    tt_tensor y_PC;              /* the output where it had a relu; else empty */
    tt_tensor dy_PC;
    tt_tensor dx_PC;                /* x's type; may be dy */
    tt_tensor dweight_C, dbias_C;   /* f32, added to; both or neither (empty) */
    tt_tensor factors_NC, parts_NC; /* scratch: f32 [3 * images, C], f64 [2 * images, C] */
};
TT_MUST_USE tt_status tt_group_norm_backward(struct tt_stream *stream,
                                             const struct tt_group_norm_backward_args *args);

#endif
