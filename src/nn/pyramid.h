/* A feature pyramid (Lin et al. 2017, arXiv 1612.03144) with RetinaNet's two further levels, as torchvision's
 * FeaturePyramidNetwork with LastLevelP6P7: reads C3, C4, C5 and makes P3 .. P7.
 *
 *     m5 = inner5 C5;  m4 = inner4 C4 + up(m5);  m3 = inner3 C3 + up(m4);  Pi = layer_i mi
 *     P6 = p6 P5, or p6 C5;  P7 = p7 relu(P6)
 *
 * `impl` of the block is a struct tt_pyramid. Kept for backward: m3 .. m5, relu(P6), and the output. */
#ifndef TT_NN_PYRAMID_H
#define TT_NN_PYRAMID_H

#include "nn/block.h"
#include "nn/feature.h"

enum { TT_PYRAMID_INPUTS = 3 };

struct tt_pyramid {
    struct tt_conv inner[TT_PYRAMID_INPUTS], layer[TT_PYRAMID_INPUTS], p6, p7;
    bool p6_of_c5; /* the second version of torchvision's */
    struct tt_feature_list in, out;
};

extern const struct tt_block_ops tt_pyramid_ops;

#endif
