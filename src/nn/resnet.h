/* A stage of a residual network (He et al. 2015, arXiv 1512.03385) as torchvision builds it: bottlenecks whose 3 x 3
 * convolution has the stride, with norms that are frozen or of the batch (nn/batch_norm.h). The first stage has the
 * stem before it. `impl` of the block is a struct tt_resnet_stage.
 *
 *     y = relu(norm(conv3(relu(norm(conv2(relu(norm(conv1 x))))))) + r), r = x, or norm(downsample x)
 *
 * Kept for backward: the outputs of all convolutions but the downsampling, and with batch norm its statistics. */
#ifndef TT_NN_RESNET_H
#define TT_NN_RESNET_H

#include "nn/block.h"
#include "nn/feature.h"

enum { TT_RESNET_BLOCKS_MAX = 6 };

struct tt_bottleneck {
    struct tt_conv conv[3];
    struct tt_conv downsample; /* weight NULL: none */
};

struct tt_resnet_stage {
    /* weight NULL: none; else the input are pixels, and a pool of 3 x 3 with stride 2 follows */
    struct tt_conv stem;
    struct tt_bottleneck blocks[TT_RESNET_BLOCKS_MAX];
    int block_count;
    struct tt_feature_list in; /* the last one is read; empty with a stem */
    int passed;                /* features of the input that come first in the output: none or all */
    struct tt_feature_list out;
};

extern const struct tt_block_ops tt_resnet_stage_ops;

#endif
