/* The head block: final norm, output projection and loss, over the rows that have a label only, in chunks: a
 * chunk of logits takes at most TT_HEAD_CHUNK_BYTES_HOST (on GPUs _DEVICE: each chunk reads the weights again,
 * which more rows hide), and there is never more than one. `impl` is a struct tt_head.
 *
 * With a gradient to come, forward goes from each chunk of logits straight back to the gradient of the normed
 * rows, so that the logits are computed once. What trains in the head (a full copy of lm_head, or LoRA on it)
 * gets its gradient on the same way when its grad views are lent in forward already; when they are not,
 * forward computes the loss only, and backward computes the chunks again.
 *
 * Kept for backward, per row with a label: D elements of the compute type and one rstd (fp32). */
#ifndef TT_NN_HEAD_H
#define TT_NN_HEAD_H

#include "nn/block.h"
#include "nn/linear.h"
#include "nn/norm.h"

enum { TT_HEAD_CHUNK_BYTES_HOST = 64 << 20, TT_HEAD_CHUNK_BYTES_DEVICE = 256 << 20 };

struct tt_head {
    struct tt_norm norm;
    struct tt_linear_group lm_head; /* one linear; its weight is the embedding's table when they are tied */
};

extern const struct tt_block_ops tt_head_ops;
/* Rows of one chunk for a vocabulary of `vocab` entries. */
int64_t tt_head_chunk_rows(int64_t vocab, tt_dtype dtype, bool host);

#endif
