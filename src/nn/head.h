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
 * A frozen matrix may come in parts of the vocabulary (struct tt_exchange). Then a chunk of logits is filled part by
 * part, and its gradient multiplied part by part, summed in fp32: each chunk takes all parts twice, so a chunk takes up
 * to TT_HEAD_SPLIT_BYTES_DEVICE. Ranks with fewer rows make as many rounds over the parts.
 *
 * Kept for backward, per row with a label: D elements of the compute type and one rstd (fp32). */
#ifndef TT_NN_HEAD_H
#define TT_NN_HEAD_H

#include "nn/block.h"
#include "nn/linear.h"
#include "nn/norm.h"

enum {
    TT_HEAD_CHUNK_BYTES_HOST = 64 << 20,
    TT_HEAD_CHUNK_BYTES_DEVICE = 256 << 20,
    TT_HEAD_SPLIT_BYTES_DEVICE = 1 << 30
};

struct tt_head {
    struct tt_norm norm;
    struct tt_linear_group lm_head; /* one linear; its weight is the embedding's table when they are tied */
    float soft_cap;                 /* of logits; 0: none */
    float scale; /* of logits before the cap; 0: none. The normed rows are scaled in their place */
};

extern const struct tt_block_ops tt_head_ops;
/* Rows of one chunk for a vocabulary of `vocab` entries. */
int64_t tt_head_chunk_rows(int64_t vocab, tt_dtype dtype, bool host);

/* head_parts.c: the same with the matrix in parts. */
struct tt_head_rows {
    const struct tt_head *head;
    const struct tt_pass *pass;
    tt_tensor n_ND;     /* normed rows; empty without rows */
    tt_tensor drows_ND; /* with `gradient`: overwritten by the gradient of n_ND */
    bool gradient;
};
/* The loss of a chunk of logits: cross entropy of rows [first, first + count) of the batch. */
TT_MUST_USE tt_status tt_head_loss(const struct tt_head *head, const struct tt_pass *pass, bool gradient,
                                   int64_t first, int64_t count, tt_tensor logits_NV);
TT_MUST_USE tt_status tt_head_run_parts(const struct tt_head_rows *rows);
/* Takes all parts once; logits_NV is empty without rows. */
TT_MUST_USE tt_status tt_head_logits_in_parts(const struct tt_head *head, const struct tt_pass *pass,
                                              tt_tensor n_ND, tt_tensor logits_NV);

#endif
