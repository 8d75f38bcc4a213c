/* The block: a piece of the model between two places where weights change hands. A model is a list of them:
 * embedding, decoder layers, head. Written for one device; the two directions of a block sit in one file.
 *
 * Memory discipline: forward pushes what backward will need onto the workspace and returns with all its scratch
 * popped; the caller pops what was kept after backward. `saved` is the block's own record of these views, stored in
 * `saved_bytes` bytes of host memory that the caller provides. How much a decoder layer keeps is pass->in.level;
 * what it kept shows in the record, so backward needs no level.
 *
 * Parameters: `params` are this block's, in the order in which they should lie in memory (tensors that one GEMM
 * reads are neighbours). Their `value` / `grad` views are set by the caller (src/shard) before a call. Gradients are
 * needed in backward; a head whose own weights train saves one pass over the logits when they are lent in its
 * forward already (nn/head.h).
 */
#ifndef TT_NN_BLOCK_H
#define TT_NN_BLOCK_H

#include "nn/pass.h"
#include "tensor/param.h"

struct tt_block;

struct tt_block_ops {
    const char *kind;   /* "embedding", "decoder layer", "head" */
    size_t saved_bytes; /* host bytes of the record `saved` */
    /* x_TD -> y_TD (both lent by the caller, y allocated). The embedding reads batch->ids and gets an empty x; the
     * head fills pass->out and gets an empty y. `saved` is NULL when pass->in.gradient is false. A decoder layer with
     * an empty y is run again for backward: it fills `saved` and leaves out what only y would need. */
    tt_status (*forward)(struct tt_block *block, const struct tt_pass *pass, tt_tensor x_TD, void *saved,
                         tt_tensor y_TD);
    /* dy_TD -> dx_TD, adding to the grad views of trainable parameters. dx may be the same memory as dy. The
     * embedding writes no dx; the head reads no dy. dx is empty when nobody below trains (no gradient needed). */
    tt_status (*backward)(struct tt_block *block, const struct tt_pass *pass, tt_tensor x_TD,
                          const void *saved, tt_tensor dy_TD, tt_tensor dx_TD);
};

struct tt_block {
    const struct tt_block_ops *ops;
    char name[64];     /* "model.layers.17" */
    int index;         /* place in the model's list */
    tt_param **params; /* owned by the model's arena */
    size_t param_count;
    bool trains; /* some parameter of this block trains */
    void *impl;  /* the kind's own description, in the model's arena */
};

#endif
