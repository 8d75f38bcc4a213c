/* Internals of the plan device: its op table, which only estimates time (the checked entries do all else), and its
 * clock. */
#ifndef TT_BACKEND_PLAN_PLAN_OPS_H
#define TT_BACKEND_PLAN_PLAN_OPS_H

#include "backend/chips.h"
#include "backend/device_impl.h"
#include "backend/plan/plan.h"

/* The device's state: device->impl. */
struct tt_plan_state {
    uintptr_t next;      /* the next fictitious address */
    double host_seconds; /* the host's clock, after its waits for streams */
    double drag_seconds; /* slowdown of compute by transfers that no op has been charged with yet */
    double work_seconds; /* of all compute so far, without waits and drag */
    double network_bytes_per_second;
    struct tt_conv2d_requests *convolutions; /* NULL: nobody asks */
};

/* The state of a stream or an event: its impl. */
struct tt_plan_clock {
    double seconds;
};

extern const struct tt_op_table tt_plan_op_table;

/* The device table's gemm_coded. */
tt_status tt_plan_gemm_coded(struct tt_stream *stream, const struct tt_gemm_lora_args *args);

/* Advances the clock by one piece of work: `flops` at `flops_rate`, or `bytes` through device memory, whichever takes
 * longer, and at least the time of a launch. */
void tt_plan_spend(struct tt_stream *stream, double flops, double flops_rate, double bytes);

/* Advances the clock by a copy between the host and the device. */
void tt_plan_spend_copy(struct tt_stream *stream, size_t bytes);

/* A convolution runs. */
tt_status tt_plan_record_convolution(struct tt_stream *stream, const struct tt_conv2d_request *request);

#endif
