/* Micro batches whose sequences begin alike (batch->prefix), folded: what several of them have is there once.
 *
 *     sequences   p q a b | p q c d        tokens   p q a b c d
 *     keys        p q a b   p q c d        of tokens 0 1 2 3   0 1 4 5
 *
 * A pass computes the tokens; attention gives each sequence the keys of all that it has (nn/attention_branches.c), so
 * that results are those of the sequences one by one, and the gradient of a token is the sum of those in each of them.
 * Positions, labels, and everything else of a token are those that it has in the first of its sequences. */
#ifndef TT_DATA_FOLD_H
#define TT_DATA_FOLD_H

#include "data/sampler.h"

/* Points into the storage, until its next use, and into the batch. */
struct tt_batch_fold {
    /* folded; the batch itself where no sequences begin alike: its branches are empty */
    struct tt_batch batch;
    /* [rows of the batch] the row of the folded one that it is; NULL: nothing is folded */
    const int32_t *row_of;
};

/* TT_ERR_INTERNAL: sequences that are said to begin alike have other rows there, or are not in order. */
TT_MUST_USE tt_status tt_batch_fold(const struct tt_batch *batch, struct tt_batch_storage *storage,
                                    struct tt_batch_fold *out);

#endif
