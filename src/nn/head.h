/* The head block: final norm, output projection and loss, only over the rows with a label, in chunks. A chunk of logits
 * takes at most TT_HEAD_CHUNK_BYTES_HOST (on GPUs _DEVICE: each chunk reads the weights again, which more rows hide),
 * and only one exists at a time. `impl` is a struct tt_head.
 *
 * When a backward pass follows, forward computes the gradient of the normed rows directly from each chunk of logits, so
 * that the logits are computed once. Trainable weights of the head (a full copy of lm_head, or LoRA on it) get their
 * gradient in the same pass when their grad views are lent in forward already; otherwise forward computes the loss
 * only, and backward recomputes the chunks. It does so too where the scales of rows follow from their losses
 * (pass->in.scales_follow).
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
    float soft_cap;                 /* of logits; 0: none */
};

extern const struct tt_block_ops tt_head_ops;
/* Rows of one chunk for a vocabulary of `vocab` entries. */
int64_t tt_head_chunk_rows(int64_t vocab, tt_dtype dtype, bool host);

#endif
