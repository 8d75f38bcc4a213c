/* The layer block: a list of halves over one residual stream (nn/half.h). Kept for backward are the streams between
 * halves, D elements of the compute type a token each, and what each half lists. `impl` of the block is a struct
 * tt_layer. */
#ifndef TT_NN_LAYER_H
#define TT_NN_LAYER_H

#include "nn/half.h"

enum { TT_LAYER_HALVES = 4 };

struct tt_layer {
    struct tt_half halves[TT_LAYER_HALVES];
    int count;
    tt_param *scalar; /* [1], frozen: multiplies the stream behind the last half; NULL: none */
};

extern const struct tt_block_ops tt_layer_ops;

#endif
