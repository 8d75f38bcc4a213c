/* Internals of the plan device: its op table, which only estimates time (the checked entries do all else), and its
 * clock. */
#ifndef TT_BACKEND_PLAN_PLAN_OPS_H
#define TT_BACKEND_PLAN_PLAN_OPS_H

#include "backend/device_impl.h"
#include "backend/plan/plan.h"

extern const struct tt_op_table tt_plan_op_table;

/* The device table's gemm_coded. */
tt_status tt_plan_gemm_coded(struct tt_stream *stream, const struct tt_gemm_lora_args *args);

/* Advances the clock by one piece of work: `flops` at `flops_rate`, or `bytes` through device memory, whichever takes
 * longer, and at least the time of a launch. */
void tt_plan_spend(struct tt_stream *stream, double flops, double flops_rate, double bytes);

/* A convolution runs. */
tt_status tt_plan_note(struct tt_stream *stream, const struct tt_conv2d_request *request);

#endif
