/* The path of a gradient (slice: the part that this rank's optimizer owns).
 *
 *   resident   The blocks add straight into the slice, which is the whole vector. With replicas it is summed over them
 *              at the last micro batch.
 *   sharded    The blocks add into a full gradient, zero when lent. reduce sums it over the ranks, adds this rank's
 *              share to the slice and zeroes it again. With replicas the slice is summed over them at the last micro
 *              batch.
 *   small      (few trainable bytes beside the frozen ones) In either case the sum is made by tt_shard_context_join.
 *
 * Gradient memory is not zeroed at release: gradients without a reduce would reach the next owner of that memory. This
 * saves zeroing it after every forward pass, which gets gradient views too and writes none.
 */
#include "backend/ops/elementwise.h"
#include "backend/profile.h"
#include "shard/shard_impl.h"

static tt_status cast(struct tt_shard_context *context, void *from, tt_dtype from_dtype, void *to,
                      tt_dtype to_dtype, int64_t count)
{
    struct tt_cast_args args = {.x = tt_tensor_1d(from, from_dtype, count),
                                .y = tt_tensor_1d(to, to_dtype, count)};
    return tt_cast(context->comm_stream, &args);
}

static tt_status sum_over_shards(struct tt_unit *unit)
{
    struct tt_shard_context *context = unit->context;
    tt_dtype dtype = context->config.reduce_dtype;
    float *full = unit->gradient_slot->data;
    float *slice = tt_buffer_data(unit->gradient);
    void *travelling = full;
    if (dtype != TT_F32) {
        travelling = tt_buffer_data(context->travel);
        TT_TRY(cast(context, full, TT_F32, travelling, dtype, unit->trainable_count));
    }
    char *own =
        (char *)travelling + (size_t)context->rank * (size_t)unit->slice_count * tt_dtype_bytes(dtype);
    TT_TRY(tt_comm_reduce_scatter(context->config.shard_comm, context->comm_stream, travelling, own,
                                  (size_t)unit->slice_count, dtype));
    struct tt_add_args add = {
        .a = tt_tensor_1d(slice, TT_F32, unit->slice_count),
        .b = tt_tensor_1d(own, dtype, unit->slice_count),
        .y = tt_tensor_1d(slice, TT_F32, unit->slice_count),
    };
    TT_TRY(tt_add(context->comm_stream, &add));
    TT_TRY(tt_fill_zero(context->comm_stream, full, (size_t)unit->trainable_count * sizeof(float)));
    return tt_event_record(unit->gradient_slot->reduced, context->comm_stream);
}

static tt_status sum_over_replicas(struct tt_unit *unit)
{
    struct tt_shard_context *context = unit->context;
    tt_dtype dtype = context->config.reduce_dtype;
    float *slice = tt_buffer_data(unit->gradient);
    void *travelling = slice;
    if (dtype != TT_F32) {
        travelling = tt_buffer_data(context->travel);
        TT_TRY(cast(context, slice, TT_F32, travelling, dtype, unit->slice_count));
    }
    TT_TRY(tt_comm_all_reduce(context->replicas, context->comm_stream, travelling, (size_t)unit->slice_count,
                              dtype, TT_REDUCE_SUM));
    if (dtype == TT_F32) return TT_OK;
    return cast(context, travelling, dtype, slice, TT_F32, unit->slice_count);
}

/* Orders the comm stream after all writes of the compute stream so far. */
static tt_status begin_sums(struct tt_shard_context *context)
{
    TT_TRY(tt_event_record(context->gradients_ready, context->config.compute));
    TT_TRY(tt_stream_wait(context->comm_stream, context->gradients_ready));
    tt_span_begin(context->comm_stream, TT_SPAN_REDUCE);
    return TT_OK;
}

static tt_status end_sums(struct tt_shard_context *context)
{
    tt_span_end(context->comm_stream, TT_SPAN_REDUCE);
    return tt_event_record(context->reduced, context->comm_stream);
}

static tt_status sum(struct tt_unit *unit, bool last_micro)
{
    struct tt_shard_context *context = unit->context;
    tt_status status = TT_OK;
    if (!context->resident) {
        struct gradient_slot *held = unit->gradient_slot;
        if (held == NULL) unit->gradient_slot = &unit->own_gradient;
        status = sum_over_shards(unit);
        unit->gradient_slot = held;
    }
    if (status == TT_OK && context->replicas != NULL && last_micro) status = sum_over_replicas(unit);
    if (status != TT_OK) tt_while("summing the gradients of unit '%s'", unit->name);
    return status;
}

tt_status tt_unit_reduce(struct tt_unit *unit, bool last_micro)
{
    struct tt_shard_context *context = unit->context;
    if (unit->holders == 0 || !context->config.train) return tt_unit_fail_state(unit, "reduce");
    if (unit->trainable_count == 0 || ++unit->reduces < unit->user_count) return TT_OK;
    unit->reduces = 0;
    if (unit->small) {
        unit->sum_due |= last_micro;
        return TT_OK;
    }
    TT_TRY(begin_sums(context));
    TT_TRY(sum(unit, last_micro));
    return end_sums(context);
}

tt_status tt_shard_sum_due(struct tt_shard_context *context)
{
    bool any = false;
    for (struct tt_unit *unit = context->units; unit != NULL; unit = unit->next) {
        if (!unit->sum_due) continue;
        if (!any) TT_TRY(begin_sums(context));
        any = true;
        unit->sum_due = false;
        TT_TRY(sum(unit, true));
    }
    return any ? end_sums(context) : TT_OK;
}

tt_status tt_unit_zero_grad(struct tt_unit *unit)
{
    if (unit->slice_count == 0) return TT_OK;
    TT_TRY(tt_shard_context_join(unit->context));
    return tt_fill_zero(unit->context->config.compute, tt_buffer_data(unit->gradient),
                        (size_t)unit->slice_count * sizeof(float));
}
