/* The decoder layer block: attention half, then MLP half. self_attention.h and mlp.h list the bytes kept per token;
 * this file adds none. `impl` of the block is a struct tt_decoder_layer. */
#ifndef TT_NN_DECODER_LAYER_H
#define TT_NN_DECODER_LAYER_H

#include "nn/block.h"
#include "nn/mlp.h"
#include "nn/self_attention.h"

struct tt_decoder_layer {
    struct tt_self_attention attention;
    struct tt_mlp mlp;
};

extern const struct tt_block_ops tt_decoder_layer_ops;

#endif
