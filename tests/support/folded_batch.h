/* For tests: the batch of a model runner with what its sequences have in common once. */
#ifndef TT_TESTS_SUPPORT_FOLDED_BATCH_H
#define TT_TESTS_SUPPORT_FOLDED_BATCH_H

#include "data/fold.h"
#include "support/model_runner.h"

/* Folds the batch that tt_runner_set_batch has set, whose sequence b begins with prefix[b] tokens of sequence
 * parent[b]. The runner reads `storage` and `fold` from now on. */
void test_fold_batch(struct tt_model_runner *runner, const int32_t *parent, const int32_t *prefix,
                     struct tt_batch_storage *storage, struct tt_batch_fold *fold);

#endif
