/* The block: the part of the model for which weights are gathered at once. A model is a list of blocks: embedding,
 * decoder layers, head. Written for one device; both directions of a block are in one file.
 *
 * Memory: forward pushes its results for backward onto the workspace and pops all its scratch before it returns; the
 * caller pops the kept results after backward. `saved` is the block's record of these views, in `saved_bytes` bytes of
 * host memory of the caller. pass->in.level decides what a decoder layer keeps; the record shows it, so backward needs
 * no level.
 *
 * A block may offer a side value to blocks behind it (nn/side.h): its forward writes it, unless pass->in.again says
 * that forward only runs for backward, and its backward reads the sum of the readers' gradients.
 *
 * A block names the columns of the data that it reads, in forward, backward or both: the engine brings them to the
 * device, and refuses data without them.
 *
 * Parameters: `params` are this block's, in their order in memory (tensors read by one GEMM are neighbours). The caller
 * (src/shard) sets their `value` / `grad` views before a call. Gradients are needed in backward; a head with trainable
 * weights saves one pass over the logits when they are lent in its forward already (nn/head.h).
 */
#ifndef TT_NN_BLOCK_H
#define TT_NN_BLOCK_H

#include "nn/pass.h"
#include "tensor/column.h"
#include "tensor/param.h"

struct tt_block;
struct tt_linear; /* nn/linear.h */
typedef tt_status tt_linear_visit(void *context, const struct tt_linear *linear);

/* The place of a block in the model. */
enum tt_block_role {
    TT_ROLE_INPUT,  /* reads ids; its output has a row for each token */
    TT_ROLE_LAYER,  /* rows of tokens to rows of tokens */
    TT_ROLE_TOWER,  /* features of images, of sizes of its own */
    TT_ROLE_OUTPUT, /* fills pass->out, and has no output */
};

/* The request of a block to other ranks by struct tt_exchange. */
enum tt_block_exchange {
    TT_EXCHANGE_NONE,
    /* sums of statistics in training, which change when they are made twice: the block is never recomputed */
    TT_EXCHANGE_STATISTICS,
    /* rows of activations in every pass: the block is recomputed like others, and asks again */
    TT_EXCHANGE_ACTIVATIONS,
};

/* Sets of levels. */
#define TT_LEVEL_BIT(level) (1u << (level))
enum {
    TT_LEVELS_ONE = TT_LEVEL_BIT(TT_KEEP_CHEAP), /* there is one way to run */
    TT_LEVELS_FEATURES = TT_LEVEL_BIT(TT_KEEP_CHEAP) | TT_LEVEL_BIT(TT_RECOMPUTE_BLOCK),
    TT_LEVELS_ALL = TT_LEVEL_BIT(TT_LEVEL_COUNT) - 1
};

struct tt_block_ops {
    const char *kind; /* "embedding", "decoder layer", "head" */
    enum tt_block_role role;
    unsigned levels; /* at which it can run; without TT_LEVELS_ALL's offloading where inputs differ in size */
    size_t saved_bytes; /* host bytes of the record `saved` */
    /* x_TD -> y_TD (both lent by the caller, y allocated). The embedding reads batch->ids and gets an empty x; the
     * head fills pass->out and gets an empty y. `saved` is NULL when pass->in.gradient is false. An empty y of a
     * decoder layer means recomputation for backward: it fills `saved` and omits work that only y needs. */
    tt_status (*forward)(struct tt_block *block, const struct tt_pass *pass, tt_tensor x_TD, void *saved,
                         tt_tensor y_TD);
    /* NULL: the output has a row for each token, as wide as the block. Of a tower: its rows and columns in a batch. */
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
    /* NULL: TT_EXCHANGE_NONE. Else forward and backward are called without tokens or images too, with empty tensors: a
     * block of STATISTICS in training, one of ACTIVATIONS in every pass, and again for backward where it is recomputed.
     * A rank without tokens may get rows of others: such a block keeps them in `saved` as it does with tokens. */
    enum tt_block_exchange (*exchange)(const struct tt_block *block);
};

struct tt_block {
    const struct tt_block_ops *ops;
    char name[64];     /* "model.layers.17" */
    int index;         /* place in the model's list */
    int64_t width;     /* columns of the output; 0: `output` of its ops says them */
    tt_param **params; /* owned by the model's arena */
    size_t param_count;
    /* those that it reads (tt_device_batch_column); owned by the model's arena */
    const struct tt_column_name *columns;
    int column_count;
    bool trains; /* at least one parameter is trainable */
    void *impl;  /* description of the kind, in the model's arena */
};

/* The exchange of a block, none included. */
enum tt_block_exchange tt_block_exchange_of(const struct tt_block *block);
/* The levels at which this block can run. */
unsigned tt_block_levels(const struct tt_block *block);
/* The one of `levels` that is taken where `wanted` is asked for: that, else the next one below, else the lowest. */
enum tt_level tt_level_among(unsigned levels, enum tt_level wanted);
/* The same of a block's levels. */
enum tt_level tt_block_level(const struct tt_block *block, enum tt_level wanted);

#endif
