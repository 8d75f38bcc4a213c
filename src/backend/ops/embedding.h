/* Token embedding and moving rows.
 * y[t] = table[ids[t]];   dtable[ids[t]] += dy[t]. An id outside [0, V) is TT_ERR_DATA on the cpu and undefined
 * elsewhere; the data layer has checked ids against the vocabulary. */
#ifndef TT_BACKEND_OPS_EMBEDDING_H
#define TT_BACKEND_OPS_EMBEDDING_H

#include "backend/device.h"
#include "tensor/tensor.h"

struct tt_embedding_forward_args {
    tt_tensor table_VD; /* f32 | bf16 */
    tt_tensor ids_T;    /* i32 */
    tt_tensor y_TD;     /* f32 | bf16 */
    /* vocab > 0: `table` has only some rows of a table of `vocab` rows, from row `first` on; y[t] of other ids is left
     * as it is. */
    int64_t first, vocab;
};
TT_MUST_USE tt_status tt_embedding_forward(struct tt_stream *stream,
                                           const struct tt_embedding_forward_args *args);

struct tt_embedding_backward_args {
    tt_tensor dy_TD;     /* f32 | bf16 */
    tt_tensor ids_T;     /* i32 */
    tt_tensor dtable_VD; /* f32, accumulated into, in order of t for any number of threads */
};
TT_MUST_USE tt_status tt_embedding_backward(struct tt_stream *stream,
                                            const struct tt_embedding_backward_args *args);

/* y[n] = x[rows[n]] */
struct tt_gather_rows_args {
    tt_tensor x_TD;
    tt_tensor rows_N; /* i32, in any order; a row may be there several times */
    tt_tensor y_ND;   /* x's type */
};
TT_MUST_USE tt_status tt_gather_rows(struct tt_stream *stream, const struct tt_gather_rows_args *args);

/* y = 0, then y[rows[n]] = x[n] */
struct tt_scatter_rows_args {
    tt_tensor x_ND;
    tt_tensor rows_N; /* i32, strictly increasing */
    tt_tensor y_TD;   /* x's type */
    /* The other rows of y stay as they are, instead of 0. The last entry may then repeat: such a row is arbitrary. */
    bool keep;
};
TT_MUST_USE tt_status tt_scatter_rows(struct tt_stream *stream, const struct tt_scatter_rows_args *args);

/* Rows of a table that train apart from it: those of the ids tokens_K, in any order, none twice (PEFT's
 * TrainableTokensLayer, tuners/trainable_tokens/layer.py, 0.21.2: the table with these rows in the place of its own).
 * y[t] = rows[k] where ids[t] = tokens[k]; other rows of y stay as they are. */
struct tt_put_token_rows_args {
    tt_tensor rows_KD;  /* f32 | bf16 */
    tt_tensor tokens_K; /* i32 */
    tt_tensor ids_T;    /* i32 */
    tt_tensor y_TD;     /* f32 | bf16 */
};
TT_MUST_USE tt_status tt_put_token_rows(struct tt_stream *stream, const struct tt_put_token_rows_args *args);

/* drows[k] += dy[t] where ids[t] = tokens[k] */
struct tt_add_token_rows_args {
    tt_tensor dy_TD; /* f32 | bf16 */
    tt_tensor tokens_K, ids_T;
    tt_tensor drows_KD; /* f32, accumulated into, in order of t for any number of threads */
};
TT_MUST_USE tt_status tt_add_token_rows(struct tt_stream *stream, const struct tt_add_token_rows_args *args);

/* y[n, tokens[k]] = x[n, k]. A token that is no column of y is TT_ERR_INTERNAL on the cpu and undefined elsewhere. */
struct tt_put_token_columns_args {
    tt_tensor x_NK;     /* y's type */
    tt_tensor tokens_K; /* i32 */
    tt_tensor y_NV;     /* f32 | bf16 */
};
TT_MUST_USE tt_status tt_put_token_columns(struct tt_stream *stream,
                                           const struct tt_put_token_columns_args *args);

/* x[n, k] = y[n, tokens[k]], which becomes 0 */
struct tt_take_token_columns_args {
    tt_tensor y_NV;     /* f32 | bf16 */
    tt_tensor tokens_K; /* i32 */
    tt_tensor x_NK;     /* y's type */
};
TT_MUST_USE tt_status tt_take_token_columns(struct tt_stream *stream,
                                            const struct tt_take_token_columns_args *args);

#endif
