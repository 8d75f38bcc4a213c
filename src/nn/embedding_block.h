/* The embedding block: token ids -> rows of the table. Keeps nothing but what embeddings for each layer need. `impl` is
 * a struct tt_embedding_block. */
#ifndef TT_NN_EMBEDDING_BLOCK_H
#define TT_NN_EMBEDDING_BLOCK_H

#include "nn/layer_inputs.h"
#include "nn/token_rows.h"

struct tt_embedding_block {
    tt_param *table; /* [V, D] */
    float scale;     /* of the rows, rounded to the compute type; 0 or 1: none. Backward then overwrites dy */
    const struct tt_layer_inputs *inputs; /* embeddings for each layer; NULL: none */
    struct tt_token_rows trained;         /* rows that train apart from the table */
    struct tt_norm norm; /* of the rows, bare; or none. Backward makes the rows again, and overwrites dy */
};

extern const struct tt_block_ops tt_embedding_block_ops;

#endif
