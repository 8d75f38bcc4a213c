/* Ops on the channels of images [P, C], from which norms over pixels are made: batch norm is channel_sums, then (after
 * the sums of all ranks were added) channel_affine; its backward pass is channel_sums with g, then channel_mix. */
#ifndef TT_BACKEND_OPS_CHANNELS_H
#define TT_BACKEND_OPS_CHANNELS_H

#include "backend/device.h"
#include "tensor/tensor.h"

/* sums[0, c] += sum over pixels of x, sums[1, c] += of x * x; with g: of g, and of g * x. In fp64, in fixed groups. */
struct tt_channel_sums_args {
    tt_tensor x_PC;    /* f32 | bf16 */
    tt_tensor g_PC;    /* empty, or x's type and shape */
    tt_tensor sums_2C; /* f64 */
};
TT_MUST_USE tt_status tt_channel_sums(struct tt_stream *stream, const struct tt_channel_sums_args *args);

/* y = relu(x * scale + shift + residual) */
struct tt_channel_affine_args {
    tt_tensor x_PC;
    tt_tensor scale_C, shift_C; /* f32; empty: 1 and 0 */
    tt_tensor residual_PC;      /* empty, or x's type and shape */
    tt_tensor y_PC;             /* x's type; may be x or the residual */
    bool relu;
};
TT_MUST_USE tt_status tt_channel_affine(struct tt_stream *stream, const struct tt_channel_affine_args *args);

/* A norm by fixed statistics as two vectors: scale = weight / sqrt(variance + eps), shift = bias - mean * scale, in the
 * order of torchvision's FrozenBatchNorm2d. */
struct tt_norm_fold_args {
    tt_tensor weight_C, bias_C, mean_C, variance_C; /* f32 */
    double eps;
    tt_tensor scale_C, shift_C; /* f32 */
};
TT_MUST_USE tt_status tt_norm_fold(struct tt_stream *stream, const struct tt_norm_fold_args *args);

/* Mean and variance of a batch from channel_sums of all ranks, whose pixels are `count`, and the running ones of
 * torch's BatchNorm2d, which takes the variance times count / (count - 1):
 *     running = (1 - momentum) running + momentum (mean or variance)
 * Without pixels (count is 0) mean is 0, variance is 1, and the running ones stay. */
struct tt_batch_statistics_args {
    tt_tensor sums_2C, count_1; /* f64 */
    double momentum;
    tt_tensor mean_C, variance_C;                 /* f32; written */
    tt_tensor running_mean_C, running_variance_C; /* f32; updated */
};
TT_MUST_USE tt_status tt_batch_statistics(struct tt_stream *stream,
                                          const struct tt_batch_statistics_args *args);

/* The gradient of y = (x - mean) r weight + bias, r = 1 / sqrt(variance + eps), where g is that of y. all_2C are
 * channel_sums with g of all ranks, own_2C of this one:
 *     dweight += r (own of g x - mean own of g);  dbias += own of g
 *     dx = g a + x b + c for channel_mix: k = r (all of g x - mean all of g) / count, a = weight r, b = -a r k,
 *     c = a (r k mean - all of g / count) */
struct tt_batch_norm_gradient_args {
    tt_tensor all_2C, own_2C, count_1;      /* f64 */
    tt_tensor mean_C, variance_C, weight_C; /* f32 */
    double eps;
    tt_tensor a_C, b_C, c_C;      /* f32; written */
    tt_tensor dweight_C, dbias_C; /* f32; added to */
};
TT_MUST_USE tt_status tt_batch_norm_gradient(struct tt_stream *stream,
                                             const struct tt_batch_norm_gradient_args *args);

/* dx = g * a + x * b + c */
struct tt_channel_mix_args {
    tt_tensor g_PC, x_PC;
    tt_tensor a_C, b_C, c_C; /* f32 */
    tt_tensor dx_PC;         /* g's type; may be g or x */
};
TT_MUST_USE tt_status tt_channel_mix(struct tt_stream *stream, const struct tt_channel_mix_args *args);

#endif
