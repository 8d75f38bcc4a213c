/* The state of a unit is (prefetched, holders):
 *
 *   call            allowed when                 effect
 *   gather          always                       prefetched; takes a slot and fills it when nobody holds the unit
 *   wait            prefetched, or holders > 0   not prefetched, holders + 1; the first lends views and gradients
 *   release_values  holders > 0                  for a single holder, not prefetched: revokes the values and releases
 *                                                the slot; gradients stay lent, and no wait follows before the release
 *   reduce          holders > 0                  (reduce.c)
 *   release         holders > 0                  holders - 1; the last revokes the views and, unless the unit is
 *                                                prefetched again, releases the slot
 *
 * A second gather before the wait has no effect. Any other call is TT_ERR_INTERNAL with the unit's name and state.
 * Resident units use their shards in place and have no slot, except for bf16 copies of trainable values; with
 * SHARD_GRAD_OP every unit has a slot of its own, and otherwise the first `unsharded_units`; the others' come from the
 * pool.
 */
#include "backend/ops/elementwise.h"
#include "backend/profile.h"
#include "shard/shard_impl.h"

tt_status tt_unit_fail_state(const struct tt_unit *unit, const char *call)
{
    return tt_fail(TT_ERR_INTERNAL, "%s of unit '%s', which is %sprefetched and has %d holders", call,
                   unit->name, unit->prefetched ? "" : "not ", unit->holders);
}

static tt_status take_slot(struct tt_unit *unit)
{
    struct tt_shard_context *context = unit->context;
    if (unit->slot != NULL) return TT_OK;
    if (has_slot(&unit->own_slot)) {
        unit->slot = &unit->own_slot;
        return TT_OK;
    }
    if (context->at_hand) return TT_OK;
    return tt_shard_take_slot(context, unit, &unit->slot);
}

static void give_slot(struct tt_unit *unit, bool keep)
{
    struct gather_slot *slot = unit->slot;
    unit->slot = NULL;
    if (slot == NULL) return;
    slot->held = false;
    slot->keep = keep;
    slot->let_go = ++unit->context->releases;
}

/* The slot of the trainable values in the compute type; NULL when the masters themselves are lent. */
static struct gather_slot *trainable_slot(struct tt_unit *unit)
{
    if (has_slot(&unit->own_trainable)) return &unit->own_trainable;
    return unit->context->resident ? NULL : unit->slot;
}

static char *trainable_values(struct tt_unit *unit)
{
    const struct gather_slot *slot = trainable_slot(unit);
    if (slot == NULL) return tt_buffer_at(unit->master, 0);
    if (slot->data == NULL) return NULL;
    return slot == &unit->own_trainable ? slot->data : slot->data + unit->frozen_bytes;
}

/* The trainable values in fp32: the masters where they are whole, else those that are lent, or behind them. */
static char *exact_values(struct tt_unit *unit)
{
    char *values = trainable_values(unit);
    size_t element = tt_dtype_bytes(unit->context->config.compute_dtype);
    if (unit->context->resident) return tt_buffer_at(unit->master, 0);
    if (!unit->exact) return values;
    return values == NULL ? NULL : values + (size_t)unit->trainable_count * element;
}

/* Gathers the masters of all ranks, then converts them to the compute type. */
static tt_status fill_exact(struct tt_unit *unit)
{
    struct tt_shard_context *context = unit->context;
    const struct tt_shard_config *config = &context->config;
    size_t slice_bytes = (size_t)unit->slice_count * sizeof(float);
    char *whole = exact_values(unit), *own = whole + (size_t)context->rank * slice_bytes;
    TT_TRY(tt_copy_on_device(context->comm_stream, own, tt_buffer_data(unit->master), slice_bytes));
    TT_TRY(tt_comm_all_gather(config->shard_comm, context->comm_stream, own, whole, slice_bytes));
    struct tt_cast_args cast = {
        .x = tt_tensor_1d(whole, TT_F32, unit->trainable_count),
        .y = tt_tensor_1d(trainable_values(unit), config->compute_dtype, unit->trainable_count),
    };
    return tt_cast(context->comm_stream, &cast);
}

/* Converts this rank's masters to the compute type, then gathers those of all ranks. */
static tt_status fill_trainable(struct tt_unit *unit)
{
    struct tt_shard_context *context = unit->context;
    const struct tt_shard_config *config = &context->config;
    if (tt_unit_gathers_exact(unit)) return fill_exact(unit);
    size_t slice_bytes = (size_t)unit->slice_count * tt_dtype_bytes(config->compute_dtype);
    char *values = trainable_values(unit), *own = values + (size_t)context->rank * slice_bytes;
    struct tt_cast_args cast = {
        .x = tt_tensor_1d(tt_buffer_data(unit->master), TT_F32, unit->slice_count),
        .y = tt_tensor_1d(own, config->compute_dtype, unit->slice_count),
    };
    TT_TRY(tt_cast(context->comm_stream, &cast));
    if (context->resident) return TT_OK;
    return tt_comm_all_gather(config->shard_comm, context->comm_stream, own, values, slice_bytes);
}

/* Gathers a span of the frozen segment into its place in the segment at `to`. GPUs gather in place: otherwise the
 * collective itself would copy the rank's own shard, and wait for free multiprocessors. */
static tt_status fill_span(struct tt_unit *unit, const struct frozen_span *span, char *segment)
{
    struct tt_shard_context *context = unit->context;
    const struct tt_shard_config *config = &context->config;
    struct tt_stream *stream = context->comm_stream;
    const void *shard = tt_buffer_at(unit->frozen_shard, span->shard_offset);
    size_t bytes = span->shard_bytes;
    char *to = segment + span->offset, *own = to + (size_t)span->rank * bytes;
    bool pulls =
        !config->offload_params && !tt_device_is_host(config->device) && tt_shard_plans_pull(context);
    if (unit->peer_shards != NULL || pulls) return tt_shard_pull(unit, span, to);
    if (config->offload_params)
        TT_TRY(tt_copy_to_device(stream, own, shard, bytes));
    else if (tt_device_is_host(config->device))
        return tt_comm_all_gather(span->comm, stream, shard, to, bytes);
    else
        TT_TRY(tt_copy_on_device(stream, own, shard, bytes));
    return span->ranks == 1 ? TT_OK : tt_comm_all_gather(span->comm, stream, own, to, bytes);
}

/* The spans that are wanted and not there yet. */
static unsigned missing_spans(const struct tt_unit *unit, const struct gather_slot *slot)
{
    unsigned missing = 0;
    for (int i = 0; i < SPAN_COUNT; i++) {
        bool wanted = (unit->uses & 1u << i % TT_USE_COUNT) != 0;
        if (wanted && unit->spans[i].bytes > 0 && !unit->spans[i].in_place) missing |= 1u << i;
    }
    return missing & ~slot->frozen_valid;
}

static tt_status fill_frozen(struct tt_unit *unit, unsigned missing, char *segment)
{
    for (int i = 0; i < SPAN_COUNT; i++)
        if ((missing & 1u << i) != 0) TT_TRY(fill_span(unit, &unit->spans[i], segment));
    return TT_OK;
}

static tt_status begin_fill(struct tt_unit *unit, struct gather_slot *slot)
{
    struct tt_stream *stream = unit->context->comm_stream;
    TT_TRY(tt_stream_wait(stream, slot->released));
    return tt_stream_wait(stream, unit->written);
}

static tt_status fill_slots(struct tt_unit *unit)
{
    struct tt_stream *stream = unit->context->comm_stream;
    struct gather_slot *slot = unit->slot, *trainable = trainable_slot(unit);
    unsigned missing = slot != NULL ? missing_spans(unit, slot) : 0;
    if (missing != 0) {
        TT_TRY(begin_fill(unit, slot));
        tt_span_begin(stream, TT_SPAN_GATHER);
        TT_TRY(fill_frozen(unit, missing, slot->data));
        tt_span_end(stream, TT_SPAN_GATHER);
        slot->frozen_valid |= missing;
        TT_TRY(tt_event_record(slot->gathered, stream));
    }
    if (trainable != NULL && unit->trainable_count > 0 && !trainable->trainable_valid) {
        TT_TRY(begin_fill(unit, trainable));
        TT_TRY(fill_trainable(unit));
        trainable->trainable_valid = true;
        TT_TRY(tt_event_record(trainable->gathered, stream));
    }
    return TT_OK;
}

static tt_status fill(struct tt_unit *unit)
{
    tt_status status = fill_slots(unit);
    if (status != TT_OK) tt_while("gathering unit '%s'", unit->name);
    return status;
}

void tt_unit_set_uses(struct tt_unit *unit, unsigned uses)
{
    if (unit->holders == 0) unit->uses = uses;
}

tt_status tt_unit_gather(struct tt_unit *unit)
{
    if (!unit->context->sealed)
        return tt_fail(TT_ERR_INTERNAL, "unit '%s' is gathered before the seal", unit->name);
    if (unit->prefetched) return TT_OK;
    if (unit->holders == 0) {
        TT_TRY(take_slot(unit));
        tt_status status = fill(unit);
        if (status != TT_OK) {
            give_slot(unit, false);
            return status;
        }
    }
    unit->prefetched = true;
    return TT_OK;
}

tt_status tt_unit_gather_behind(struct tt_unit *unit)
{
    struct tt_shard_context *context = unit->context;
    if (!unit->prefetched && unit->holders == 0) {
        TT_TRY(tt_event_record(context->reached, context->config.compute));
        TT_TRY(tt_stream_wait(context->comm_stream, context->reached));
    }
    return tt_unit_gather(unit);
}

static void *offset_of(void *base, size_t bytes)
{
    return base == NULL ? NULL : (char *)base + bytes;
}

/* The memory of a frozen member. */
static void *frozen_data(const struct tt_unit *unit, const struct member *member)
{
    const struct frozen_span *span = &unit->spans[member->span + (int)member->param->use];
    if (span->in_place)
        return tt_buffer_at(unit->frozen_shard, span->shard_offset + (member->offset - span->offset));
    void *segment = unit->context->at_hand ? tt_buffer_at(unit->frozen_shard, 0) : unit->slot->data;
    return offset_of(segment, member->offset);
}

static tt_tensor view(const tt_param *param, void *data, tt_dtype dtype, int64_t rows)
{
    if (tt_param_is_quantized(param)) return tt_tensor_1d(data, dtype, (int64_t)param->quant.bytes);
    tt_tensor tensor = {.data = data, .dtype = dtype, .rank = param->rank};
    int64_t stride = 1;
    for (int i = param->rank - 1; i >= 0; i--) {
        tensor.dims[i] = param->dims[i];
        tensor.strides[i] = stride;
        stride *= param->dims[i];
    }
    if (rows > 0) tensor.dims[0] = rows;
    return tensor;
}

static void lend(struct tt_unit *unit)
{
    const struct tt_shard_context *context = unit->context;
    void *trainable = trainable_values(unit), *exact = exact_values(unit);
    float *gradient = context->resident             ? tt_buffer_at(unit->gradient, 0)
                      : unit->gradient_slot != NULL ? unit->gradient_slot->data
                                                    : NULL;
    for (size_t i = 0; i < unit->member_count; i++) {
        const struct member *member = &unit->members[i];
        tt_param *param = member->param;
        if (!member->trains && (unit->uses & 1u << param->use) == 0) continue;
        if (member->lent < 0) continue; /* behind the member before */
        if (member->lent > 0) {
            param->value = tt_tensor_1d(frozen_data(unit, member), member->dtype, member->lent);
            continue;
        }
        if (!member->trains) {
            param->value = view(param, frozen_data(unit, member), member->dtype, member->rows);
            continue;
        }
        param->value =
            view(param,
                 offset_of(param->exact ? exact : trainable, member->offset * tt_dtype_bytes(member->dtype)),
                 member->dtype, 0);
        param->grad = view(param, offset_of(gradient, member->offset * sizeof(float)), TT_F32, 0);
    }
}

static void revoke_views(struct tt_unit *unit)
{
    for (size_t i = 0; i < unit->member_count; i++)
        unit->members[i].param->value = unit->members[i].param->grad = (tt_tensor){0};
}

static tt_status take_gradient_slot(struct tt_unit *unit)
{
    if (unit->context->resident || unit->trainable_count == 0) return TT_OK;
    if (has_gradient_slot(&unit->own_gradient))
        unit->gradient_slot = &unit->own_gradient;
    else
        TT_TRY(tt_shard_take_gradient_slot(unit->context, unit, &unit->gradient_slot));
    return tt_stream_wait(unit->context->config.compute, unit->gradient_slot->reduced);
}

static tt_status first_wait(struct tt_unit *unit)
{
    struct tt_stream *compute = unit->context->config.compute;
    TT_TRY(fill(unit)); /* masters may have changed since the gather */
    struct gather_slot *trainable = trainable_slot(unit);
    tt_span_begin(compute, TT_SPAN_GATHER_WAIT);
    if (unit->slot != NULL) TT_TRY(tt_stream_wait(compute, unit->slot->gathered));
    if (trainable != NULL && trainable != unit->slot) TT_TRY(tt_stream_wait(compute, trainable->gathered));
    TT_TRY(take_gradient_slot(unit));
    tt_span_end(compute, TT_SPAN_GATHER_WAIT);
    lend(unit);
    return TT_OK;
}

tt_status tt_unit_wait(struct tt_unit *unit)
{
    bool released = unit->holders > 0 && unit->slot == NULL && !unit->context->at_hand; /* its values */
    if (released || (!unit->prefetched && unit->holders == 0)) return tt_unit_fail_state(unit, "wait");
    if (unit->holders == 0) TT_TRY(first_wait(unit));
    unit->prefetched = false;
    unit->holders++;
    return TT_OK;
}

tt_status tt_unit_release_values(struct tt_unit *unit)
{
    if (unit->holders == 0) return tt_unit_fail_state(unit, "release of the values");
    TT_TRY(tt_unit_drop_part(unit));
    if (unit->holders > 1 || unit->prefetched || unit->slot == NULL) return TT_OK;
    for (size_t i = 0; i < unit->member_count; i++) unit->members[i].param->value = (tt_tensor){0};
    tt_status status = tt_event_record(unit->slot->released, unit->context->config.compute);
    give_slot(unit, false);
    return status;
}

tt_status tt_unit_release(struct tt_unit *unit, bool keep)
{
    if (unit->holders == 0) return tt_unit_fail_state(unit, "release");
    TT_TRY(tt_unit_drop_part(unit));
    if (--unit->holders > 0) return TT_OK;
    revoke_views(unit);
    if (unit->gradient_slot != NULL) unit->gradient_slot->owner = NULL;
    unit->gradient_slot = NULL;
    tt_status status = TT_OK;
    struct tt_stream *compute = unit->context->config.compute;
    if (unit->slot != NULL) status = tt_event_record(unit->slot->released, compute);
    if (status == TT_OK && has_slot(&unit->own_trainable))
        status = tt_event_record(unit->own_trainable.released, compute);
    if (!unit->prefetched) give_slot(unit, keep);
    return status;
}

/* The slot that may still hold earlier values of this unit; NULL: none. */
static struct gather_slot *find_values(struct tt_unit *unit)
{
    struct tt_shard_context *context = unit->context;
    if (unit->slot != NULL) return unit->slot;
    if (has_slot(&unit->own_slot)) return &unit->own_slot;
    for (int i = 0; i < context->slot_count; i++) {
        if (context->slots[i].owner == unit) return &context->slots[i];
    }
    return NULL;
}

tt_status tt_unit_masters_changed(struct tt_unit *unit)
{
    if (unit->holders > 0) return tt_unit_fail_state(unit, "change of the masters");
    struct gather_slot *slot = has_slot(&unit->own_trainable) ? &unit->own_trainable : find_values(unit);
    if (slot != NULL) slot->trainable_valid = false;
    return tt_event_record(unit->written, unit->context->config.compute);
}

/* A gather that still reads the old masters is made again before anybody reads its values. */
tt_status tt_unit_exchange_masters(struct tt_unit *unit, struct tt_buffer *other, struct tt_buffer *scratch)
{
    struct tt_stream *compute = unit->context->config.compute;
    size_t bytes = (size_t)unit->slice_count * sizeof(float);
    if (bytes == 0) return TT_OK;
    void *master = tt_buffer_data(unit->master), *own = tt_buffer_data(other),
         *between = tt_buffer_data(scratch);
    TT_TRY(tt_copy_on_device(compute, between, master, bytes));
    TT_TRY(tt_copy_on_device(compute, master, own, bytes));
    TT_TRY(tt_copy_on_device(compute, own, between, bytes));
    return tt_unit_masters_changed(unit);
}

tt_status tt_unit_frozen_changed(struct tt_unit *unit)
{
    if (unit->holders > 0) return tt_unit_fail_state(unit, "change of the frozen values");
    struct gather_slot *slot = find_values(unit);
    if (slot != NULL) slot->frozen_valid = 0;
    for (int i = 0; i < unit->part_count; i++) TT_TRY(tt_unit_frozen_changed(unit->parts[i]));
    return tt_event_record(unit->written, unit->context->config.compute);
}

tt_status tt_shard_context_publish(struct tt_shard_context *context)
{
    for (struct tt_unit *unit = context->units; unit != NULL; unit = unit->next)
        if (has_slot(&unit->own_trainable) && unit->holders == 0) TT_TRY(fill(unit));
    return TT_OK;
}
