/* The block: the part of the model for which weights are gathered at once. A model is a list of blocks: embedding,
 * decoder layers, head. Written for one device; both directions of a block are in one file.
 *
 * Memory: forward pushes its results for backward onto the workspace and pops all its scratch before it returns; the
 * caller pops the kept results after backward. `saved` is the block's record of these views, in `saved_bytes` bytes of
 * host memory of the caller. pass->in.level decides what a decoder layer keeps; the record shows it, so backward needs
 * no level.
 *
 * Parameters: `params` are this block's, in their order in memory (tensors read by one GEMM are neighbours). The caller
 * (src/shard) sets their `value` / `grad` views before a call. Gradients are needed in backward; a head with trainable
 * weights saves one pass over the logits when they are lent in its forward already (nn/head.h).
 */
#ifndef TT_NN_BLOCK_H
#define TT_NN_BLOCK_H

#include "nn/pass.h"
#include "tensor/param.h"

struct tt_block;
struct tt_linear; /* nn/linear.h */
typedef tt_status tt_linear_visit(void *context, const struct tt_linear *linear);

struct tt_block_ops {
    const char *kind;   /* "embedding", "decoder layer", "head" */
    size_t saved_bytes; /* host bytes of the record `saved` */
    /* x_TD -> y_TD (both lent by the caller, y allocated). The embedding reads batch->ids and gets an empty x; the
     * head fills pass->out and gets an empty y. `saved` is NULL when pass->in.gradient is false. An empty y of a
     * decoder layer means recomputation for backward: it fills `saved` and omits work that only y needs. */
    tt_status (*forward)(struct tt_block *block, const struct tt_pass *pass, tt_tensor x_TD, void *saved,
                         tt_tensor y_TD);
    /* NULL: the output has a row for each token, hidden_size wide. Else its rows and columns for this batch. */
    void (*output)(const struct tt_block *block, const struct tt_pass *pass, int64_t dims[2]);
    /* NULL, or whether y begins with x. Then the caller may lend x's memory for that part of y, and dy's for dx. */
    bool (*extends)(const struct tt_block *block);
    /* dy_TD -> dx_TD, adding to the grad views of trainable parameters. dx may be the same memory as dy (not where
     * `output` is set). The embedding writes no dx; the head reads no dy. dx is empty when no block below is
     * trainable. */
    tt_status (*backward)(struct tt_block *block, const struct tt_pass *pass, tt_tensor x_TD,
                          const void *saved, tt_tensor dy_TD, tt_tensor dx_TD);
    /* Calls `visit` for each linear, in order of the parameters, until one fails. */
    tt_status (*visit_linears)(const struct tt_block *block, tt_linear_visit *visit, void *context);
    /* Training FLOPs for one row: a token of a sequence of `length` tokens; for the head a label. Recomputation is not
     * counted. `full`: all parameters train. */
    double (*flops)(const struct tt_block *block, double length, bool full);
    /* NULL, or the frozen matrix that the block can read in parts of its rows (struct tt_exchange); NULL again when
     * this one cannot. Then forward and backward are called without tokens too, with empty tensors, to take the same
     * parts. */
    tt_param *(*split)(const struct tt_block *block);
    /* NULL, or whether the block asks for sums over the ranks (struct tt_exchange) in training. Then forward and
     * backward are called without tokens or images too, with empty tensors. */
    bool (*exchanges)(const struct tt_block *block);
};

struct tt_block {
    const struct tt_block_ops *ops;
    char name[64];     /* "model.layers.17" */
    int index;         /* place in the model's list */
    tt_param **params; /* owned by the model's arena */
    size_t param_count;
    bool trains; /* at least one parameter is trainable */
    void *impl;  /* description of the kind, in the model's arena */
};

#endif
