/* Orders of a chunk's values other than the model's: for merge_rows.c alone. `from` and `to` hold `rows` whole rows of
 * the output's tensor in the output's type, and do not overlap. */
#ifndef TT_CONVERT_MERGE_ORDER_H
#define TT_CONVERT_MERGE_ORDER_H

#include "convert/merge.h"

typedef void merge_order(const struct tt_merge_output *output, int64_t rows, const void *from, void *to);
/* Whole heads: the rows of their halves become neighbours (head_rows). */
merge_order merge_order_heads;
/* The arrangement's columns. */
merge_order merge_order_columns;
/* One matrix of `rows` rows becomes its transpose. */
merge_order merge_transpose;

/* The place of a row or a column in an arrangement with blocks. */
int64_t merge_place(const struct tt_gguf_arrangement *to, int64_t index);

#endif
