/* The head block: the final norm and a linear over some rows, and what becomes of them: struct tt_head_ops, one file
 * for each kind. `impl` is a struct tt_head.
 *
 * language: logits and losses of the rows with a label, in chunks. A chunk of logits takes at most
 * TT_HEAD_CHUNK_BYTES_HOST (on GPUs _DEVICE), and only one exists at a time. Each chunk reads the weights again, which
 * more rows hide: a large vocabulary may take TT_HEAD_CHUNK_MOST_HOST for TT_HEAD_CHUNK_ROWS_HOST rows.
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
 * Kept for backward, per row with a label: D elements of the compute type and one rstd (fp32).
 *
 * score: scores of the last token of each sequence, of a reward model or a classifier. Whoever reads them writes their
 * gradient into pass->in.dscores_BL before backward. Nothing is kept. */
#ifndef TT_NN_HEAD_H
#define TT_NN_HEAD_H

#include "nn/block.h"
#include "nn/linear.h"
#include "nn/norm.h"
#include "nn/token_rows.h"

enum {
    TT_HEAD_CHUNK_BYTES_HOST = 64 << 20,
    TT_HEAD_CHUNK_MOST_HOST = 128 << 20,
    TT_HEAD_CHUNK_ROWS_HOST = 128,
    TT_HEAD_CHUNK_BYTES_DEVICE = 256 << 20,
    TT_HEAD_SPLIT_BYTES_DEVICE = 1 << 30
};

struct tt_head;
struct tt_head_saved {
    tt_tensor drows_ND; /* gradient of the normed rows, when `done` */
    tt_tensor rstd_N;
    bool done;
};

struct tt_head_ops {
    const char *name;
    /* x_TD -> pass->out. `saved` is NULL when no backward follows. */
    tt_status (*forward)(const struct tt_head *head, const struct tt_pass *pass, tt_tensor x_TD,
                         struct tt_head_saved *saved);
    tt_status (*backward)(const struct tt_head *head, const struct tt_pass *pass, tt_tensor x_TD,
                          const struct tt_head_saved *saved, tt_tensor dx_TD);
    bool splits; /* its matrix may come in parts (struct tt_exchange) */
};
extern const struct tt_head_ops tt_head_language, tt_head_score;

struct tt_head {
    const struct tt_head_ops *ops;
    struct tt_norm norm;
    struct tt_linear_group lm_head; /* one linear; its weight is the embedding's table when they are tied */
    struct tt_token_rows trained;   /* rows that train apart from the weight: the embedding's, when tied */
    float soft_cap;                 /* of logits; 0: none */
    float scale; /* of logits before the cap; 0: none. The normed rows are scaled in their place */
};

extern const struct tt_block_ops tt_head_block_ops;
/* Rows of one chunk for a vocabulary of `vocab` entries. */
int64_t tt_head_chunk_rows(int64_t vocab, tt_dtype dtype, bool host);

/* ---- Between the files of heads ---- */

/* Rows of the input, in scratch. */
TT_MUST_USE tt_status tt_head_gather(const struct tt_pass *pass, tt_tensor rows_N, tt_tensor x_TD,
                                     tt_tensor *x_ND);
/* The keys of these rows for dropout; empty where the head has none. */
TT_MUST_USE tt_status tt_head_gather_keys(const struct tt_head *head, const struct tt_pass *pass,
                                          tt_tensor rows_N, tt_tensor *keys_N);
TT_MUST_USE tt_status tt_head_norm_rows(const struct tt_head *head, const struct tt_pass *pass,
                                        tt_tensor x_ND, tt_tensor n_ND, tt_tensor rstd_N);
/* The gradient of the linear's input back to that of the block, through the norm. */
struct tt_head_rows_gradient {
    tt_tensor x_ND, rstd_N; /* empty without rows */
    tt_tensor drows_ND;     /* overwritten */
    tt_tensor rows_N;
    tt_tensor dx_TD; /* empty when no block below is trainable */
};
TT_MUST_USE tt_status tt_head_rows_backward(const struct tt_head *head, const struct tt_pass *pass,
                                            const struct tt_head_rows_gradient *rows);

/* head_parts.c: a language head with the matrix in parts. */
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
