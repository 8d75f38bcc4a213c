#include "base/alloc.h"
#include "shard/shard_impl.h"

bool tt_unit_gathers_exact(const struct tt_unit *unit)
{
    return unit->exact && !unit->context->resident;
}

/* The whole unit's, as it is lent. */
static size_t trainable_bytes(const struct tt_unit *unit)
{
    size_t element = tt_dtype_bytes(unit->context->config.compute_dtype);
    return (size_t)unit->trainable_count * (element + (tt_unit_gathers_exact(unit) ? sizeof(float) : 0));
}

size_t tt_unit_gathered_bytes(const struct tt_unit *unit)
{
    return unit->frozen_bytes + (has_slot(&unit->own_trainable) ? 0 : trainable_bytes(unit));
}

/* Small trainable segments, such as LoRA's, are gathered once a step and stay gathered, and their gradients are summed
 * once a step: a short collective slows the products that run beside it by more than its own time. Where nothing is
 * gathered, the bf16 copy stays. */
static bool keeps_trainable(const struct tt_unit *unit)
{
    const struct tt_shard_context *context = unit->context;
    if (unit->trainable_count == 0) return false;
    if (context->resident) return context->config.compute_dtype != TT_F32;
    return unit->small && context->config.strategy != TT_SHARD_GRAD_OP;
}

/* Stays gathered from pass to pass. */
static bool stays_whole(const struct tt_unit *unit, bool is_part)
{
    struct tt_shard_context *context = unit->context;
    if (context->resident) return false;
    if (context->config.strategy == TT_SHARD_GRAD_OP) return true;
    return !is_part && context->unit_count < context->config.unsharded_units;
}

static tt_status create_memory(struct tt_unit *unit, bool beside_parts, bool is_part)
{
    struct tt_shard_context *context = unit->context;
    size_t slice_bytes = (size_t)unit->slice_count * sizeof(float);
    unit->small =
        unit->trainable_count > 0 && (size_t)unit->trainable_count * sizeof(float) <=
                                         (unit->frozen_bytes + unit->in_place_bytes) / SMALL_TRAINABLE;
    if (!context->config.offload_params)
        TT_TRY(tt_shard_buffer_create(context, unit->frozen_shard_bytes, TT_PURPOSE_WEIGHTS,
                                      &unit->frozen_shard));
    else if (unit->frozen_shard_bytes > 0)
        TT_TRY(tt_host_buffer_create(context->config.device, unit->frozen_shard_bytes, TT_PURPOSE_OFFLOAD,
                                     &unit->frozen_shard));
    TT_TRY(tt_shard_buffer_create(context, slice_bytes, TT_PURPOSE_ADAPTERS, &unit->master));
    TT_TRY(tt_shard_buffer_create(context, slice_bytes, TT_PURPOSE_GRADIENTS, &unit->gradient));
    TT_TRY(tt_event_create(context->config.device, &unit->written));
    tt_unit_set_piece_data(unit);
    if (keeps_trainable(unit))
        TT_TRY(tt_gather_slot_init(context, trainable_bytes(unit), &unit->own_trainable));
    if (stays_whole(unit, is_part) || (beside_parts && !context->at_hand))
        TT_TRY(tt_gather_slot_init(context, tt_unit_gathered_bytes(unit), &unit->own_slot));
    if (!context->resident && (unit->user_count > 1 || unit->small))
        TT_TRY(tt_gradient_slot_init(context, unit->trainable_count, &unit->own_gradient));
    return TT_OK;
}

tt_status tt_unit_make(struct tt_shard_context *context, const char *name, tt_param *const *params,
                       size_t param_count, int user_count, bool beside_parts, struct row_range range,
                       struct tt_unit **out)
{
    tt_status status = TT_OK;
    if (context->sealed || user_count < 1)
        return tt_fail(TT_ERR_INTERNAL, "unit '%s' is created %s", name,
                       context->sealed ? "after its context was sealed" : "for no user");
    struct tt_unit *unit = tt_calloc(1, sizeof *unit);
    if (unit == NULL) return TT_ERR_MEMORY;
    unit->context = context;
    unit->next = context->units;
    context->units = unit;
    unit->user_count = user_count;
    unit->part = -1;
    unit->uses = (1u << TT_USE_COUNT) - 1;
    unit->own_slot.owner = unit->own_trainable.owner = unit;
    unit->name = tt_strdup(name);
    if (unit->name == NULL) TT_GO(TT_ERR_MEMORY);
    TT_GO(tt_unit_lay_out(unit, params, param_count, range));
    TT_GO(create_memory(unit, beside_parts, range.param != NULL));
    if (range.param == NULL) context->unit_count++;
    *out = unit;
out:
    if (status != TT_OK) {
        tt_while("creating unit '%s'", name);
        tt_unit_destroy(unit);
    }
    return status;
}

tt_status tt_unit_create(struct tt_shard_context *context, const char *name, tt_param *const *params,
                         size_t param_count, int user_count, struct tt_unit **out)
{
    return tt_unit_make(context, name, params, param_count, user_count, false, (struct row_range){0}, out);
}

/* Removes the unit from its context. */
static void forget(struct tt_shard_context *context, const struct tt_unit *unit)
{
    struct tt_unit **link = &context->units;
    while (*link != unit) link = &(*link)->next;
    *link = unit->next;
    for (int i = 0; i < context->slot_count; i++) {
        struct gather_slot *slot = &context->slots[i];
        if (slot->owner != unit) continue;
        slot->owner = NULL;
        slot->held = slot->keep = false;
    }
    for (int i = 0; i < GRADIENT_SLOTS; i++) {
        if (context->gradient_slots[i].owner == unit) context->gradient_slots[i].owner = NULL;
    }
}

void tt_unit_destroy(struct tt_unit *unit)
{
    if (unit == NULL) return;
    tt_share_leave(unit->context); /* before the first shard that others pull is freed */
    tt_unit_destroy_parts(unit);
    forget(unit->context, unit);
    for (size_t i = 0; i < unit->member_count && unit->holders > 0; i++)
        unit->members[i].param->value = unit->members[i].param->grad = (tt_tensor){0};
    tt_buffer_destroy(unit->frozen_shard);
    tt_buffer_destroy(unit->master);
    tt_buffer_destroy(unit->gradient);
    tt_gather_slot_deinit(&unit->own_slot);
    tt_gather_slot_deinit(&unit->own_trainable);
    tt_share_forget(unit);
    tt_gradient_slot_deinit(&unit->own_gradient);
    if (unit->written != NULL) tt_event_destroy(unit->written);
    tt_free(unit->members);
    tt_free(unit->pieces);
    tt_free(unit->runs);
    tt_free(unit->name);
    tt_free(unit);
}

size_t tt_unit_piece_count(const struct tt_unit *unit)
{
    return unit->member_count + (size_t)unit->part_count;
}

struct tt_piece tt_unit_piece(const struct tt_unit *unit, size_t index)
{
    return index < unit->member_count ? unit->pieces[index]
                                      : unit->parts[index - unit->member_count]->pieces[0];
}

struct tt_slices tt_unit_slices(const struct tt_unit *unit)
{
    return (struct tt_slices){tt_buffer_at(unit->master, 0), tt_buffer_at(unit->gradient, 0),
                              unit->slice_count};
}

size_t tt_unit_run_count(const struct tt_unit *unit)
{
    return unit->run_count;
}

struct tt_slice_run tt_unit_run(const struct tt_unit *unit, size_t index)
{
    return unit->runs[index];
}

int64_t tt_unit_whole_offset(const struct tt_unit *unit, size_t index)
{
    bool trains = index < unit->member_count && unit->members[index].trains;
    return trains ? (int64_t)unit->members[index].offset : -1;
}

size_t tt_unit_frozen_bytes(const struct tt_unit *unit)
{
    size_t bytes = unit->frozen_payload_bytes;
    for (int i = 0; i < unit->part_count; i++) bytes += unit->parts[i]->frozen_payload_bytes;
    return bytes;
}

int64_t tt_unit_trainable_count(const struct tt_unit *unit)
{
    return unit->trainable_payload_count;
}

bool tt_unit_sums_at_join(const struct tt_unit *unit)
{
    return unit->small;
}
