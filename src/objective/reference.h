/* The reference of an objective as columns of the data, in the place of passes over each micro batch: log p of every
 * label, computed before the training, or of whole answers, from the rows. */
#ifndef TT_OBJECTIVE_REFERENCE_H
#define TT_OBJECTIVE_REFERENCE_H

#include "objective/objective.h"

/* Columns per row, and per sequence: of the batches of ops->share where these have answers of other rows. */
#define TT_REFERENCE_ROWS "reference logps"
#define TT_REFERENCE_MISMATCHED "reference mismatched logps"

/* Whether passes of the reference belong to each micro batch. */
bool tt_objective_runs_reference(const struct tt_objective *objective);
/* Whether `share` reads answers of other rows, which have a reference of their own. */
bool tt_objective_mismatches(const struct tt_objective *objective);
/* log p of the batch's rows by its columns; `shared`: a batch for ops->share. That of a whole answer stands at its
 * first row, and 0 at the others. TT_ERR_INTERNAL: there are none. */
TT_MUST_USE tt_status tt_objective_take_reference(const struct tt_objective *objective,
                                                  const struct tt_batch *batch, bool shared,
                                                  float *ref_logp_N);

#endif
