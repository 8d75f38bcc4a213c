/* Rows without their mean: y[n,d] = x[n,d] - mean_d x[n,d], in fp32, rounded once. A layer norm is this followed by
 * the root-mean-square norm (rmsnorm.h), whose mean of squares is then the variance; the same operation on a gradient
 * is its backward pass, because the matrix is symmetric. */
#ifndef TT_BACKEND_OPS_CENTER_H
#define TT_BACKEND_OPS_CENTER_H

#include "backend/device.h"
#include "tensor/tensor.h"

struct tt_center_args {
    tt_tensor x_ND; /* f32 | bf16, rank 2 with contiguous last dimension */
    tt_tensor y_ND; /* x's type; may be x */
};
TT_MUST_USE tt_status tt_center(struct tt_stream *stream, const struct tt_center_args *args);

#endif
