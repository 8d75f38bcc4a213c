/* Scores of task items and of tasks, as lm-evaluation-harness defines them: acc (the likeliest choice; a greedy end),
 * acc_norm (by likelihood a character), perplexity of ends, exact_match of texts. */
#ifndef TT_RUN_TASK_SCORES_H
#define TT_RUN_TASK_SCORES_H

#include "run/task_items.h"

/* A zeroed struct is empty. */
struct tt_item_score {
    double *sums; /* owned: log likelihoods of the choices, or of the end */
    bool *greedy; /* owned */
    size_t done;  /* prompts that are scored */
    double acc, acc_norm, exact_match;
    struct tt_str text;   /* as it was generated */
    struct tt_str answer; /* as the regular expression left it */
};
void tt_item_score_deinit(struct tt_item_score *score);
TT_MUST_USE tt_status tt_item_score_choice(struct tt_item_score *score, const struct tt_task_item *item,
                                           size_t choice, double sum, bool greedy);
TT_MUST_USE tt_status tt_item_score_text(struct tt_item_score *score, const struct tt_task_item *item,
                                         const struct tt_str *text);
/* Appends a line of JSON. */
TT_MUST_USE tt_status tt_item_score_write(const struct tt_task_item *item, const struct tt_item_score *score,
                                          struct tt_str *out);
/* The scores of all tasks, in the order in which they come. *list is owned. */
TT_MUST_USE tt_status tt_task_scores_list(const struct tt_task_items *items,
                                          const struct tt_item_score *scores, struct tt_json_value **list);

#endif
