/* Rows of a table of V tokens that train apart from it, those of K tokens (PEFT's trainable_token_indices): an
 * embedding reads them in the place of the table's own, and a head multiplies by them. The table stays as it is.
 *
 *     embedding: y[t] = rows[k] where ids[t] = tokens[k]
 *     head:      logits[n, tokens[k]] = n[n] rows[k]^T
 *
 * Nothing is kept for backward. Where adapters are off, the table's own rows count. */
#ifndef TT_NN_TOKEN_ROWS_H
#define TT_NN_TOKEN_ROWS_H

#include "nn/pass.h"
#include "tensor/param.h"

struct tt_token_rows {
    tt_param *rows;   /* [K, D]; NULL: there are none */
    tt_param *tokens; /* [K], i32, frozen */
};

bool tt_token_rows_count(const struct tt_token_rows *of, const struct tt_pass *pass);
/* Writes the rows of y_TD whose tokens are of them. */
TT_MUST_USE tt_status tt_token_rows_read(const struct tt_token_rows *of, const struct tt_pass *pass,
                                         tt_tensor y_TD);
TT_MUST_USE tt_status tt_token_rows_read_backward(const struct tt_token_rows *of, const struct tt_pass *pass,
                                                  tt_tensor dy_TD);
/* Overwrites the columns of the tokens in logits_NV, by the rows n_ND of the head. */
TT_MUST_USE tt_status tt_token_rows_logits(const struct tt_token_rows *of, const struct tt_pass *pass,
                                           tt_tensor n_ND, tt_tensor logits_NV);
/* Takes the columns of the tokens out of dlogits_NV, which is 0 there for whoever multiplies by the table, into
 * *dlogits_NK, which is pushed onto the workspace; and adds to the gradient of the rows, where it is lent. */
TT_MUST_USE tt_status tt_token_rows_take(const struct tt_token_rows *of, const struct tt_pass *pass,
                                         tt_tensor n_ND, tt_tensor dlogits_NV, tt_tensor *dlogits_NK);
/* dn_ND += dlogits_NK rows */
TT_MUST_USE tt_status tt_token_rows_add(const struct tt_token_rows *of, const struct tt_pass *pass,
                                        tt_tensor dlogits_NK, tt_tensor dn_ND);

#endif
