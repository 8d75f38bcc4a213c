/* The context of a rank's units: the pool of slots for gathered units, streams and events. */
#include "base/alloc.h"
#include "base/str.h"
#include "shard/shard_impl.h"

const char *tt_shard_strategy_name(enum tt_shard_strategy strategy)
{
    switch (strategy) {
    case TT_FULL_SHARD:
        return "FULL_SHARD";
    case TT_SHARD_GRAD_OP:
        return "SHARD_GRAD_OP";
    case TT_NO_SHARD:
        return "NO_SHARD";
    case TT_HYBRID_SHARD:
        return "HYBRID_SHARD";
    }
    return "UNKNOWN";
}

static bool is_value_type(tt_dtype dtype)
{
    return dtype == TT_F32 || dtype == TT_BF16;
}

static tt_status check_config(const struct tt_shard_config *config)
{
    bool hybrid = config->strategy == TT_HYBRID_SHARD;
    if (hybrid != (config->replicate_comm != NULL))
        return tt_fail(TT_ERR_INTERNAL, "%s %s a communicator of replicas",
                       tt_shard_strategy_name(config->strategy), hybrid ? "needs" : "does not take");
    if (!is_value_type(config->compute_dtype) || !is_value_type(config->reduce_dtype))
        return tt_fail(TT_ERR_UNSUPPORTED,
                       "parameters lent as %s with gradients summed as %s: only F32 and BF16",
                       tt_dtype_name(config->compute_dtype), tt_dtype_name(config->reduce_dtype));
    return TT_OK;
}

tt_status tt_shard_context_create(const struct tt_shard_config *config, struct tt_shard_context **out)
{
    tt_status status = TT_OK;
    TT_TRY(check_config(config));
    struct tt_shard_context *context = tt_calloc(1, sizeof *context);
    if (context == NULL) return TT_ERR_MEMORY;
    int world_size = tt_comm_world_size(config->shard_comm);
    context->config = *config;
    context->resident = config->strategy == TT_NO_SHARD || world_size == 1;
    context->at_hand = context->resident && !config->offload_params;
    context->rank = context->resident ? 0 : tt_comm_rank(config->shard_comm);
    context->world_size = context->resident ? 1 : world_size;
    bool shares = config->expert_comm != NULL && !context->resident;
    context->experts = shares ? tt_comm_world_size(config->expert_comm) : 1;
    context->expert_rank = shares ? tt_comm_rank(config->expert_comm) : 0;
    context->shared = tt_calloc(config->expert_count + 1, sizeof *context->shared);
    if (context->shared == NULL) TT_GO(TT_ERR_MEMORY);
    for (size_t i = 0; i < config->expert_count; i++) context->shared[i] = config->experts[i];
    if (config->strategy == TT_HYBRID_SHARD)
        context->replicas = config->replicate_comm;
    else if (config->strategy == TT_NO_SHARD)
        context->replicas = config->shard_comm;
    if (context->replicas != NULL && tt_comm_world_size(context->replicas) == 1) context->replicas = NULL;
    TT_GO(tt_stream_create_copy(config->device, &context->comm_stream));
    TT_GO(tt_stream_create_copy(config->device, &context->own_stream));
    TT_GO(tt_event_create(config->device, &context->forked));
    TT_GO(tt_event_create(config->device, &context->joined));
    TT_GO(tt_event_create(config->device, &context->gradients_ready));
    TT_GO(tt_event_create(config->device, &context->reached));
    TT_GO(tt_event_create(config->device, &context->reduced));
    *out = context;
out:
    if (status != TT_OK) tt_shard_context_destroy(context);
    return status;
}

bool tt_shard_context_at_hand(const struct tt_shard_context *context)
{
    return context->at_hand;
}

void tt_shard_context_destroy(struct tt_shard_context *context)
{
    if (context == NULL) return;
    tt_share_leave(context);
    for (int i = 0; i < context->slot_count; i++) tt_gather_slot_deinit(&context->slots[i]);
    tt_free(context->slots);
    tt_free(context->reaches);
    tt_free(context->holders);
    tt_free(context->shared);
    for (int i = 0; i < GRADIENT_SLOTS; i++) tt_gradient_slot_deinit(&context->gradient_slots[i]);
    tt_buffer_destroy(context->travel);
    if (context->gradients_ready != NULL) tt_event_destroy(context->gradients_ready);
    if (context->reached != NULL) tt_event_destroy(context->reached);
    if (context->reduced != NULL) tt_event_destroy(context->reduced);
    if (context->forked != NULL) tt_event_destroy(context->forked);
    if (context->joined != NULL) tt_event_destroy(context->joined);
    if (context->own_stream != NULL) tt_stream_destroy(context->own_stream);
    if (context->comm_stream != NULL) tt_stream_destroy(context->comm_stream);
    tt_free(context);
}

tt_status tt_shard_buffer_create(struct tt_shard_context *context, size_t bytes, enum tt_purpose purpose,
                                 struct tt_buffer **out)
{
    if (bytes == 0) return TT_OK;
    return tt_buffer_create(context->config.device, bytes, purpose, out);
}

tt_status tt_gather_slot_init(struct tt_shard_context *context, size_t bytes, struct gather_slot *slot)
{
    TT_TRY(tt_shard_buffer_create(context, bytes, TT_PURPOSE_GATHER, &slot->buffer));
    slot->data = tt_buffer_at(slot->buffer, 0);
    TT_TRY(tt_event_create(context->config.device, &slot->gathered));
    return tt_event_create(context->config.device, &slot->released);
}

void tt_gather_slot_deinit(struct gather_slot *slot)
{
    tt_buffer_destroy(slot->buffer);
    if (slot->gathered != NULL) tt_event_destroy(slot->gathered);
    if (slot->released != NULL) tt_event_destroy(slot->released);
    *slot = (struct gather_slot){0};
}

tt_status tt_gradient_slot_init(struct tt_shard_context *context, int64_t count, struct gradient_slot *slot)
{
    TT_TRY(
        tt_shard_buffer_create(context, (size_t)count * sizeof(float), TT_PURPOSE_GRADIENTS, &slot->buffer));
    slot->data = tt_buffer_at(slot->buffer, 0);
    return tt_event_create(context->config.device, &slot->reduced);
}

void tt_gradient_slot_deinit(struct gradient_slot *slot)
{
    tt_buffer_destroy(slot->buffer);
    if (slot->reduced != NULL) tt_event_destroy(slot->reduced);
    *slot = (struct gradient_slot){0};
}

static tt_status create_slots(struct tt_shard_context *context, int count, size_t bytes)
{
    context->slots = tt_calloc((size_t)count, sizeof *context->slots);
    if (context->slots == NULL) return TT_ERR_MEMORY;
    context->slot_count = count;
    for (int i = 0; i < count; i++) TT_TRY(tt_gather_slot_init(context, bytes, &context->slots[i]));
    return TT_OK;
}

tt_status tt_shard_context_seal(struct tt_shard_context *context, int gathers_in_flight)
{
    size_t gathered_bytes = 0;
    int64_t pooled_gradients = 0, travelling = 0;
    if (context->sealed || gathers_in_flight < 1)
        return tt_fail(TT_ERR_INTERNAL, "a shard context is sealed %s",
                       context->sealed ? "a second time" : "for no gather at all");
    for (const struct tt_unit *unit = context->units; unit != NULL; unit = unit->next) {
        size_t bytes = tt_unit_gathered_bytes(unit);
        if (bytes > gathered_bytes && !has_slot(&unit->own_slot)) gathered_bytes = bytes;
        if (unit->trainable_count > travelling) travelling = unit->trainable_count;
        if (unit->user_count == 1 && !unit->small && unit->trainable_count > pooled_gradients)
            pooled_gradients = unit->trainable_count;
    }
    bool from_pool = !context->at_hand && (context->resident || context->config.strategy != TT_SHARD_GRAD_OP);
    if (from_pool) TT_TRY(create_slots(context, gathers_in_flight, gathered_bytes));
    for (int i = 0; i < GRADIENT_SLOTS && !context->resident; i++)
        TT_TRY(tt_gradient_slot_init(context, pooled_gradients, &context->gradient_slots[i]));
    bool sums = !context->resident || context->replicas != NULL;
    if (sums && context->config.reduce_dtype != TT_F32)
        TT_TRY(tt_shard_buffer_create(context,
                                      (size_t)travelling * tt_dtype_bytes(context->config.reduce_dtype),
                                      TT_PURPOSE_GRADIENTS, &context->travel));
    context->sealed = true;
    return TT_OK;
}

static tt_status fail_exhausted(const struct tt_shard_context *context, const struct tt_unit *unit)
{
    struct tt_str names = {0};
    for (int i = 0; i < context->slot_count; i++) {
        const struct tt_unit *owner = context->slots[i].owner;
        if (owner != NULL &&
            tt_str_printf(&names, "%s'%s'", names.bytes > 0 ? ", " : "", owner->name) != TT_OK)
            break;
    }
    tt_fail(TT_ERR_INTERNAL, "no gather buffer is free for unit '%s': %d of %d are held by %s", unit->name,
            context->slot_count, context->slot_count, tt_str_text(&names));
    tt_str_deinit(&names);
    return TT_ERR_INTERNAL;
}

/* True if `a` is the better slot to overwrite: an empty one, else one without `keep`, else the one released first. */
static bool is_better(const struct gather_slot *a, const struct gather_slot *b)
{
    if ((a->owner == NULL) != (b->owner == NULL)) return a->owner == NULL;
    if (a->keep != b->keep) return !a->keep;
    return a->let_go < b->let_go;
}

bool tt_shard_has_free_slot(const struct tt_shard_context *context)
{
    for (int i = 0; i < context->slot_count; i++)
        if (!context->slots[i].held) return true;
    return false;
}

tt_status tt_shard_take_slot(struct tt_shard_context *context, struct tt_unit *unit, struct gather_slot **out)
{
    struct gather_slot *best = NULL;
    for (int i = 0; i < context->slot_count; i++) {
        struct gather_slot *slot = &context->slots[i];
        if (slot->held) continue;
        if (slot->owner == unit) {
            best = slot;
            break;
        }
        if (best == NULL || is_better(slot, best)) best = slot;
    }
    if (best == NULL) return fail_exhausted(context, unit);
    if (best->owner != unit) {
        best->frozen_valid = 0;
        best->trainable_valid = false;
    }
    best->owner = unit;
    best->held = true;
    *out = best;
    return TT_OK;
}

tt_status tt_shard_take_gradient_slot(struct tt_shard_context *context, struct tt_unit *unit,
                                      struct gradient_slot **out)
{
    for (int i = 0; i < GRADIENT_SLOTS; i++) {
        /* Slots are taken in turn, because a sum may still read the slot that was released last. */
        int index = (context->next_gradient_slot + i) % GRADIENT_SLOTS;
        if (context->gradient_slots[index].owner != NULL) continue;
        context->next_gradient_slot = (index + 1) % GRADIENT_SLOTS;
        context->gradient_slots[index].owner = unit;
        *out = &context->gradient_slots[index];
        return TT_OK;
    }
    return tt_fail(TT_ERR_INTERNAL, "no gradient buffer is free for unit '%s': unit '%s' still holds it",
                   unit->name, context->gradient_slots[0].owner->name);
}

tt_status tt_shard_context_join(struct tt_shard_context *context)
{
    TT_TRY(tt_shard_sum_due(context));
    return tt_stream_wait(context->config.compute, context->reduced);
}
