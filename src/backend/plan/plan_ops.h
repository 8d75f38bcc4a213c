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

/* The ops of plan/rows.c. */
#define OP(name) tt_status plan_##name(struct tt_stream *stream, const struct tt_##name##_args *args);
OP(embedding_forward)
OP(embedding_backward)
OP(put_token_rows)
OP(add_token_rows)
OP(put_token_columns)
OP(take_token_columns)
OP(gather_rows)
OP(scatter_rows)
#undef OP

/* The ops of plan/sequences.c. */
#define OP(name) tt_status plan_##name(struct tt_stream *stream, const struct tt_##name##_args *args);
OP(conv1d_forward)
OP(conv1d_backward)
OP(scan_forward)
OP(scan_backward)
OP(gated_norm_forward)
OP(gated_norm_backward)
OP(latent_heads)
OP(ready_heads)
#undef OP

/* The ops of plan/experts.c. */
#define OP(name) tt_status plan_##name(struct tt_stream *stream, const struct tt_##name##_args *args);
OP(route_forward)
OP(route_backward)
OP(route_balance)
OP(order_rows)
OP(spread_rows)
OP(combine_rows)
OP(weigh_rows)
OP(grouped_gemm)
OP(grouped_gradients)
#undef OP

/* The device table's gemm_coded. */
tt_status tt_plan_gemm_coded(struct tt_stream *stream, const struct tt_gemm_lora_args *args);

/* Advances the clock by one piece of work: `flops` at `flops_rate`, or `bytes` through device memory, whichever takes
 * longer, and at least the time of a launch. */
void tt_plan_spend(struct tt_stream *stream, double flops, double flops_rate, double bytes);

static inline double plan_size(tt_tensor tensor)
{
    return tt_tensor_is_empty(tensor) ? 0.0 : (double)tt_tensor_bytes(tensor);
}

/* An op that is bound by memory. */
static inline tt_status plan_moves(struct tt_stream *stream, double bytes)
{
    tt_plan_spend(stream, 0.0, 1.0, bytes);
    return TT_OK;
}

/* Advances the clock by a copy between the host and the device. */
void tt_plan_spend_copy(struct tt_stream *stream, size_t bytes);

/* A convolution runs. */
tt_status tt_plan_record_convolution(struct tt_stream *stream, const struct tt_conv2d_request *request);

#endif
