/* Experts that the ranks of a group share: along TT_AXIS_EXPERT rank q of E owns experts q X/E .. (q + 1) X/E - 1 of
 * each layer, whose weights stay where they are while rows travel.
 *
 * Sizes are the same on all ranks and known before a pass, so that no host reads the choice of a router: C is the
 * largest number of tokens of a micro batch of any rank, and a matrix of all N = E C places has the tokens of rank q
 * from row q C on, behind them rows without a token, whose slots have id -1.
 *
 * Forward: all ranks give their tokens' rows, ids and weights (a token goes to every rank once, however many of its
 * experts are there), each multiplies the rows of its own experts, and adds up those of a token in order of the slots,
 * in fp32. These sums travel back, and the token's rank adds them in order of the ranks and rounds once. Backward does
 * the same with the gradients. So one split gives the same bits every time, and with another E the sums of a token have
 * another order of additions.
 *
 * A rank alone (E = 1) exchanges nothing. A rank without tokens takes part with C rows of none. */
#ifndef TT_NN_EXPERT_EXCHANGE_H
#define TT_NN_EXPERT_EXCHANGE_H

#include "nn/pass.h"

struct tt_expert_share {
    int rank, size;       /* in the group; 0 of 1: alone */
    int64_t first, count; /* this rank's experts */
    int64_t each;         /* C; 0: alone */
};
struct tt_expert_share tt_expert_share_of(const struct tt_pass *pass, int64_t experts);
/* Rows of a matrix of all places, N; of a rank alone its tokens. */
int64_t tt_expert_share_rows(const struct tt_expert_share *share, int64_t tokens);
/* The rows of this rank's tokens. */
tt_tensor tt_expert_share_own(const struct tt_expert_share *share, tt_tensor all, int64_t tokens);

/* Makes the rows behind this rank's tokens zeros, or with `none` -1 (i32), and brings the rows of all ranks. */
TT_MUST_USE tt_status tt_expert_share_gather(const struct tt_expert_share *share, const struct tt_pass *pass,
                                             tt_tensor all, int64_t tokens, bool none);
/* The same of rows that lie elsewhere: pushes a matrix of all places, named `name`, as wide as `columns`. */
TT_MUST_USE tt_status tt_expert_share_push(const struct tt_expert_share *share, const struct tt_pass *pass,
                                           const char *name, tt_tensor x_TD, int64_t columns,
                                           tt_tensor *all_ND);
/* y = addend + the sums of this rank's tokens on all ranks, in order of the ranks; rounded once. sums_ND: f32, this
 * rank's; changed. addend_TD: empty, or of y's shape. An empty y: nobody wants it here. */
TT_MUST_USE tt_status tt_expert_share_return(const struct tt_expert_share *share, const struct tt_pass *pass,
                                             tt_tensor sums_ND, tt_tensor addend_TD, tt_tensor y_TD);

#endif
