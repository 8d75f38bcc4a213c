/* Inside the plan device: its op table (the checked entries have done all there is to do but to count time),
 * and how time passes. */
#ifndef TT_BACKEND_PLAN_PLAN_OPS_H
#define TT_BACKEND_PLAN_PLAN_OPS_H

#include "backend/device_impl.h"
#include "backend/plan/plan.h"

extern const struct tt_op_table tt_plan_op_table;

/* One piece of work on the stream: `flops` at `flops_rate`, or `bytes` through device memory, whichever takes
 * longer, and never less than a launch. */
void tt_plan_spend(struct tt_stream *stream, double flops, double flops_rate, double bytes);

#endif
