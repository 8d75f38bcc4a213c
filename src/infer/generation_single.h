/* Passes of single tokens: one new token for each running sequence, which is what generation mostly does. On a device
 * with graphs the work of such a pass is recorded at its second run and then launched as one piece. Numbers of rows are
 * rounded up to a few, so that few graphs serve all passes; rows behind the last sequence compute nothing that is read.
 */
#ifndef TT_INFER_GENERATION_SINGLE_H
#define TT_INFER_GENERATION_SINGLE_H

#include "infer/generation_rank.h"

TT_MUST_USE tt_status tt_generation_single_create(const struct tt_rank *rank, int64_t slots,
                                                  struct tt_generation_single **out);
void tt_generation_single_destroy(struct tt_generation_single *single); /* takes NULL */
/* The work is recorded, on this rank. */
bool tt_generation_single_records(const struct tt_generation_single *single);
/* Passes that were launched as recorded work, so far; 0 for NULL. */
int64_t tt_generation_single_launches(const struct tt_generation_single *single);

/* Whether every sequence of the batch has at most one token, and each token a row. */
bool tt_generation_is_single(const struct tt_batch *batch);
/* Queues such a pass, as tt_generation_rank_pass; the caller waits. */
TT_MUST_USE tt_status tt_generation_single_pass(struct tt_generation_rank *rank, const struct tt_batch *batch,
                                                const struct tt_sample_rule *rules,
                                                const struct tt_generation_adapters *adapters);

#endif
