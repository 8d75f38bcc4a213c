/* Batch norm after a convolution (Ioffe and Szegedy 2015, arXiv 1502.03167), by the statistics of the images of all
 * ranks, as torch's SyncBatchNorm: sums of the channels are added over the ranks by the pass's exchange. A convolution
 * that has one is otherwise as in nn/conv.h; outside of training its running statistics make it a frozen norm. */
#ifndef TT_NN_BATCH_NORM_H
#define TT_NN_BATCH_NORM_H

#include "nn/conv.h"

#define TT_BATCH_NORM_MOMENTUM 0.1 /* of the running statistics */

/* Kept for backward: the output of the convolution, and the statistics. */
struct tt_batch_norm_kept {
    tt_tensor z_QO, mean_O, variance_O, count_1;
};

/* tt_conv_forward, with batch norm where the convolution has one. `kept` stays in the workspace. */
TT_MUST_USE tt_status tt_conv_norm_forward(const struct tt_conv *conv, const struct tt_pass *pass,
                                           struct tt_image_shape shape, tt_tensor x_PC, tt_tensor residual_QO,
                                           tt_tensor y_QO, struct tt_batch_norm_kept *kept);
/* tt_conv_run_backward, as forward. */
TT_MUST_USE tt_status tt_conv_norm_backward(const struct tt_conv *conv, const struct tt_pass *pass,
                                            const struct tt_batch_norm_kept *kept,
                                            const struct tt_conv_backward *args);

/* Called by a rank without images: takes part in the sums of forward, and updates the running statistics as the others
 * do; takes part in the sums of backward. */
TT_MUST_USE tt_status tt_batch_norm_forward_empty(const struct tt_conv *conv, const struct tt_pass *pass);
TT_MUST_USE tt_status tt_batch_norm_backward_empty(const struct tt_conv *conv, const struct tt_pass *pass);

#endif
