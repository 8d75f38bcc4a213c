/* Several evaluation sets: eval_dataset as a mapping of names to data sets, as transformers' Trainer takes it. A set
 * is a file, folder or name, or an object as an entry of `datasets` without a weight. All are evaluated in one pass,
 * and each has metrics of its own, eval_NAME_loss and eval_NAME_mean_token_accuracy, one of which may be
 * metric_for_best_model. */
#ifndef TT_JOB_EVAL_SETS_H
#define TT_JOB_EVAL_SETS_H

#include "data/dataset.h"
#include "data/sources.h"

/* Whether eval_dataset is a mapping. */
bool tt_eval_sets_are_named(const struct tt_data_config *data);
/* `set` is lent for the call; its split is dataset_test_split where it has none of its own. */
typedef tt_status tt_eval_set_visit(void *context, const char *name, const struct tt_mixture_entry *set);
/* Visits the sets of a mapping in its order. TT_ERR_USAGE, TT_ERR_DATA: it is none, a name is there twice or has other
 * characters than letters, digits, '.', '_' and '-', or a set is no data set. */
TT_MUST_USE tt_status tt_eval_sets_visit(const struct tt_data_config *data, tt_eval_set_visit *visit,
                                         void *context);
/* The set that a metric is of ("NAME_loss", also with "eval_" before it), and its metric ("loss"); *metric NULL: it
 * is of no set. */
TT_MUST_USE tt_status tt_eval_sets_find(const struct tt_data_config *data, const char *name, size_t *set,
                                        const char **metric);

#endif
