/* Rows of a table by token id, also of a table that comes in parts. */
#ifndef TT_NN_TABLE_H
#define TT_NN_TABLE_H

#include "nn/pass.h"
#include "tensor/param.h"

/* The running block reads `table` in parts (struct tt_exchange); `split` is the matrix that the ops of the block name.
 */
bool tt_table_is_parted(const struct tt_pass *pass, const tt_param *table, const tt_param *split);
/* y[t] = table[ids[t]]. Where `parted`, takes all parts in order, also in a batch without tokens, where y may be empty:
 * each row is in one part, so that y is the same bits. */
TT_MUST_USE tt_status tt_table_read(const struct tt_pass *pass, const tt_param *table, bool parted,
                                    tt_tensor y_TD);

#endif
