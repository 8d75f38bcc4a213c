/* The workspace of a pass for what blocks hand on: their outputs, and the gradients of their inputs. Blocks need not be
 * alike: one may have an output of its own size, or extend its input, with which it then shares memory. */
#ifndef TT_ENGINE_PLACES_H
#define TT_ENGINE_PLACES_H

#include "backend/workspace.h"
#include "model/model.h"

struct tt_places {
    const struct tt_model *model; /* lent, as the workspace */
    struct tt_workspace *workspace;
    int first_trainable;    /* lowest block with a trainable parameter; block_count without one */
    tt_tensor gradients[2]; /* of the inputs of blocks, in turn; the same memory where all are alike */
};

/* Rows and columns of the output of `block`. */
void tt_places_output_dims(const struct tt_places *places, const struct tt_pass *pass, int block,
                           int64_t dims[2]);
/* Pushes the memory of all gradients: one tensor where all blocks have outputs alike, since a block then computes the
 * gradient of its input in place. */
TT_MUST_USE tt_status tt_places_push_gradients(struct tt_places *places, const struct tt_pass *pass);
/* The gradient of the input of `block`; empty where nothing below trains, and with block_count. */
tt_tensor tt_places_gradient(const struct tt_places *places, const struct tt_pass *pass, int block);
/* Pushes the output y_TD of `block`, with room for those of the blocks that extend it; one that extends its input x_TD
 * lies behind it. */
TT_MUST_USE tt_status tt_places_push_output(const struct tt_places *places, const struct tt_pass *pass,
                                            int block, tt_tensor x_TD, tt_tensor *y_TD);

#endif
