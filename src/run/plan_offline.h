/* A plan without a run: from settings and the config.json of a model, for a device that need not be present. Reads no
 * weights, tokenizer or data: every row counts with the maximal number of tokens, all of them supervised. */
#ifndef TT_RUN_PLAN_OFFLINE_H
#define TT_RUN_PLAN_OFFLINE_H

#include "engine/plan.h"
#include "job/spec.h"

/* `spec` is resolved. Fills `plan`, which is also filled for a run that does not fit. */
TT_MUST_USE tt_status tt_plan_offline(const struct tt_plan_spec *spec, struct tt_plan *plan);

#endif
