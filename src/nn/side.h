/* Side values: a tensor with a row for each token that one block offers and blocks behind it read, beside the stream:
 * keys and values of another layer, inputs of every layer made of the ids.
 *
 * A side value is described in the model; a block or a half has a pointer to the description of those that it offers
 * and reads. The executor pushes the memory before the first block runs and keeps it for the whole pass: a side value
 * is never recomputed and never on the host. The forward of the offering block writes it; when that runs again for
 * backward (pass->in.again) the value stays as it is.
 *
 * Its gradient is a sum in fp32, to which the readers add in their backward, the last block first; the backward of the
 * offering block reads the sum. So it is the same bits at every level. Where no parameter below the value trains, there
 * is no sum, and what readers add goes nowhere.
 *
 * Keys and values have no side value in passes over a key/value cache: the rows of the offering layer are read. All are
 * empty in a pass without tokens. */
#ifndef TT_NN_SIDE_H
#define TT_NN_SIDE_H

#include "nn/pass.h"

/* Made by tt_build_side (model/builder.h), in the model's arena. */
struct tt_side {
    int index; /* in the model's list, and in pass->lent.sides */
    int64_t columns;
    bool trains; /* a parameter below it trains */
    bool cached; /* a key/value cache has it too */
};

/* Pushes the side values of a pass and the sums of their gradients, which begin with 0. `values`: [count], to write. */
TT_MUST_USE tt_status tt_sides_push(const struct tt_side *const *sides, int count, const struct tt_pass *pass,
                                    struct tt_side_value *values);

/* Columns of the value, for readers and for a block that writes it in place; empty where the pass has none. */
tt_tensor tt_side_columns(const struct tt_side *side, const struct tt_pass *pass, int64_t first,
                          int64_t count);
/* The same of the sum of gradients, f32; empty where there is none. */
tt_tensor tt_side_gradient(const struct tt_side *side, const struct tt_pass *pass, int64_t first,
                           int64_t count);

/* Copies x to columns of the value, from `first` on; nothing where they are made or the pass has none. */
TT_MUST_USE tt_status tt_side_offer(const struct tt_side *side, const struct tt_pass *pass, int64_t first,
                                    tt_tensor x_TC);
/* A reader's gradient of columns from `first` on. */
TT_MUST_USE tt_status tt_side_add_gradient(const struct tt_side *side, const struct tt_pass *pass,
                                           int64_t first, tt_tensor d_TC);
/* d += the sum of the readers' gradients of columns from `first` on, rounded once. */
TT_MUST_USE tt_status tt_side_take_gradient(const struct tt_side *side, const struct tt_pass *pass,
                                            int64_t first, tt_tensor d_TC);

#endif
