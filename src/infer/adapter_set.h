/* Several adapters over one frozen base, side by side in the matrices of the rank's model (nn/linear.h): each has a
 * place, as large as the largest rank of each module. Rows of a pass name the place of theirs, so all run in one pass.
 *
 * A module that an adapter leaves out, and ranks beyond its own, are zeros, which add nothing. An adapter whose scale
 * alpha / r differs from the rank's gets B times the quotient: exact where that is a power of two. Every number of an
 * adapter is finite, because products multiply those of other rows by zeros. */
#ifndef TT_INFER_ADAPTER_SET_H
#define TT_INFER_ADAPTER_SET_H

#include "engine/rank.h"
#include "job/inputs.h"

/* The adapter fits the model and the places that `common`, of the inputs' options, has: names and shapes of all
 * tensors, modules, ranks, finite numbers. TT_ERR_UNSUPPORTED: it has what places have not. */
TT_MUST_USE tt_status tt_adapter_set_fits(const struct tt_inputs *inputs, const struct tt_model *common,
                                          const struct tt_inputs_adapter *adapter);
/* The same for all adapters of the inputs. */
TT_MUST_USE tt_status tt_adapter_set_check(const struct tt_inputs *inputs, const struct tt_model *common);
/* Writes this rank's part of an adapter that fits to a place; no pass runs, on any rank: other ranks may read this
 * rank's shard. A failure leaves there what rows without it do not see. */
TT_MUST_USE tt_status tt_adapter_set_write(struct tt_rank *rank, const struct tt_inputs *inputs,
                                           const struct tt_inputs_adapter *adapter, int64_t place);
/* Writes the adapters of the inputs to the first places. */
TT_MUST_USE tt_status tt_adapter_set_load(struct tt_rank *rank, const struct tt_inputs *inputs);

#endif
