/* A norm of groups of channels after a convolution, then relu (backend/ops/group_norm.h): each image by itself, so it
 * asks nothing of other ranks. */
#ifndef TT_NN_GROUP_NORM_H
#define TT_NN_GROUP_NORM_H

#include "nn/conv.h"

/* Kept for backward: the output of the convolution, and the statistics. */
struct tt_group_norm_kept {
    tt_tensor z_QO, mean_NG, scale_NG;
};

/* tt_conv_forward, with the norm where the convolution has one. `kept` stays in the workspace; NULL: no backward pass
 * follows. */
TT_MUST_USE tt_status tt_conv_group_forward(const struct tt_conv *conv, const struct tt_pass *pass,
                                            struct tt_image_shape shape, tt_tensor x_PC, tt_tensor y_QO,
                                            struct tt_group_norm_kept *kept);
/* tt_conv_run_backward, as forward. There is no residual. */
TT_MUST_USE tt_status tt_conv_group_backward(const struct tt_conv *conv, const struct tt_pass *pass,
                                             const struct tt_group_norm_kept *kept,
                                             const struct tt_conv_backward *args);

#endif
