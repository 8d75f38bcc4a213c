/* Metrics of the objectives that compare the two answers of a pair, by TRL's names. They take the first sums of an
 * objective; its own begin at TT_PAIR_SUMS. */
#ifndef TT_OBJECTIVE_PAIRS_H
#define TT_OBJECTIVE_PAIRS_H

#include <stdint.h>

#include "objective/objective.h"

enum {
    TT_PAIR_CHOSEN_ROWS,
    TT_PAIR_REJECTED_ROWS,
    TT_PAIR_CHOSEN_LOGITS,
    TT_PAIR_REJECTED_LOGITS,
    TT_PAIR_CHOSEN_REWARD,
    TT_PAIR_REJECTED_REWARD,
    TT_PAIR_ACCURACY,
    TT_PAIR_MARGIN,
    TT_PAIR_CHOSEN_LOGP,
    TT_PAIR_REJECTED_LOGP,
    TT_PAIR_SUMS
};

/* Rows of a table of metrics. */
/* clang-format off */
#define TT_PAIR_LOGIT_METRICS                                                                  \
    {"logits/chosen", TT_PAIR_CHOSEN_LOGITS, TT_PAIR_CHOSEN_ROWS, TT_BETTER_NONE},             \
    {"logits/rejected", TT_PAIR_REJECTED_LOGITS, TT_PAIR_REJECTED_ROWS, TT_BETTER_NONE}
#define TT_PAIR_REWARD_METRICS                                                                 \
    {"rewards/chosen", TT_PAIR_CHOSEN_REWARD, TT_OVER_GROUPS, TT_BETTER_NONE},                 \
    {"rewards/rejected", TT_PAIR_REJECTED_REWARD, TT_OVER_GROUPS, TT_BETTER_NONE},             \
    {"rewards/accuracies", TT_PAIR_ACCURACY, TT_OVER_GROUPS, TT_BETTER_GREATER},               \
    {"rewards/margins", TT_PAIR_MARGIN, TT_OVER_GROUPS, TT_BETTER_GREATER},                    \
    {"logps/chosen", TT_PAIR_CHOSEN_LOGP, TT_OVER_GROUPS, TT_BETTER_NONE},                     \
    {"logps/rejected", TT_PAIR_REJECTED_LOGP, TT_OVER_GROUPS, TT_BETTER_NONE}
/* clang-format on */

/* An answer, with its prompt where rows of prompts reach the head: its rows of the batch, and sums over them. */
struct tt_pair_side {
    int64_t first, end;
    int64_t tokens; /* of the answer */
    double logp;    /* of the answer's tokens */
    double all;     /* log p of all rows */
    double logits;  /* of all rows: means over the vocabulary */
};

/* Reads sequence `sequence`, whose rows begin at `first`. */
struct tt_pair_side tt_pair_side_read(const struct tt_objective_rows *rows, int64_t sequence, int64_t first);

/* Values of a pair as the metrics report them. */
struct tt_pair_report {
    double reward, logp;
};

/* Adds a pair to the sums. The greater reward wins; `beta` scales the rewards. */
void tt_pair_add(double *sums, double beta, const struct tt_pair_side sides[2],
                 const struct tt_pair_report reports[2]);

#endif
