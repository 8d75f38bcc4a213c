/* Frozen shards of the ranks of a machine. They are constant from the end of loading to the end of the run, so a rank
 * can copy them with its copy engines at any time, at the speed of the link and without slowing compute. Threads of one
 * process exchange addresses, processes handles (tt_buffer_export).
 *
 * A rank frees its shards only after all other ranks have left: threads a latch, processes a barrier. After a failure
 * the barrier fails at once on every rank; the others then end the copies that they have queued, of a block or two, and
 * a rank waits for that before it frees what they read. */
#include <stdio.h>
#include <time.h>

#include "backend/chips.h"
#include "base/alloc.h"
#include "base/log.h"
#include "comm/host_values.h"
#include "comm/latch.h"
#include "shard/shard_impl.h"

enum { LEAVE_SECONDS = 30, LINGER_SECONDS = 2 };

/* The message of a rank about one of its shards, and at the end about all of them. */
struct offer {
    const void *address;
    struct tt_memory_handle handle;
};
struct outcome {
    int32_t failed;
    char reason[252];
};

static void note_failure(struct outcome *outcome)
{
    if (outcome->failed != 0) return;
    outcome->failed = 1;
    snprintf(outcome->reason, sizeof outcome->reason, "%.*s", (int)sizeof outcome->reason - 1,
             tt_error_last()->message);
    tt_error_clear();
}

void tt_share_forget(struct tt_unit *unit)
{
    const struct tt_shard_context *context = unit->context;
    for (int r = 0; unit->peer_shards != NULL && r < context->world_size; r++)
        if (context->reaches[r] == TT_REACH_MACHINE)
            tt_device_unimport(context->config.device, (void *)(uintptr_t)unit->peer_shards[r]);
    tt_free(unit->peer_shards);
    unit->peer_shards = NULL;
}

/* Collective. Without handles where all ranks are threads of this process. */
static tt_status exchange_shard(struct tt_unit *unit, bool handles, struct offer *offers,
                                struct outcome *outcome)
{
    struct tt_shard_context *context = unit->context;
    struct offer own = {.address = tt_buffer_at(unit->frozen_shard, 0)};
    if (handles && tt_buffer_export(unit->frozen_shard, &own.handle) != TT_OK) note_failure(outcome);
    TT_TRY(tt_comm_host_all_gather(context->config.shard_comm, &own, offers, sizeof own));
    unit->peer_shards = tt_calloc((size_t)context->world_size, sizeof *unit->peer_shards);
    if (unit->peer_shards == NULL) return TT_ERR_MEMORY;
    for (int r = 0; r < context->world_size; r++) {
        void *data = NULL;
        if (context->reaches[r] == TT_REACH_PROCESS)
            unit->peer_shards[r] = offers[r].address;
        else if (outcome->failed == 0 &&
                 tt_device_import(context->config.device, &offers[r].handle, &data) != TT_OK)
            note_failure(outcome);
        else if (data != NULL)
            unit->peer_shards[r] = data;
    }
    return TT_OK;
}

/* Collective. Finds the ranks that hold the same experts, in their order. */
static tt_status find_holders(struct tt_shard_context *context)
{
    tt_status status = TT_OK;
    int count = 0, *places = tt_calloc((size_t)context->world_size, sizeof *places);
    tt_free(context->holders);
    context->holders = tt_calloc((size_t)context->world_size, sizeof *context->holders);
    if (places == NULL || context->holders == NULL) TT_GO(TT_ERR_MEMORY);
    TT_GO(tt_comm_host_all_gather(context->config.shard_comm, &context->expert_rank, places, sizeof *places));
    for (int r = 0; r < context->world_size; r++)
        if (places[r] == context->expert_rank) context->holders[count++] = r;
out:
    tt_free(places);
    return status;
}

/* Collective. Sets *shared on all ranks if every rank reads all shards. */
static tt_status exchange_shards(struct tt_shard_context *context, bool handles, bool *shared)
{
    tt_status status = TT_OK;
    size_t count = (size_t)context->world_size;
    struct tt_comm *comm = context->config.shard_comm;
    struct outcome own = {0}, *all = tt_calloc(count, sizeof *all);
    struct offer *offers = tt_calloc(count, sizeof *offers);
    const char *reason = NULL;
    if (all == NULL || offers == NULL) TT_GO(TT_ERR_MEMORY);
    TT_GO(find_holders(context));
    for (struct tt_unit *unit = context->units; unit != NULL; unit = unit->next)
        if (unit->frozen_shard_bytes > 0) /* the same on all ranks */
            TT_GO(exchange_shard(unit, handles, offers, &own));
    TT_GO(tt_comm_host_all_gather(comm, &own, all, sizeof own));
    for (size_t r = count; r > 0; r--)
        if (all[r - 1].failed != 0) reason = all[r - 1].reason;
    *shared = reason == NULL;
    if (reason != NULL && tt_comm_rank(comm) == 0)
        tt_info("GPUs of other processes cannot be read, so that NCCL gathers the weights: %.*s",
                (int)sizeof own.reason, reason);
out:
    tt_free(all);
    tt_free(offers);
    return status;
}

static void stop_sharing(struct tt_shard_context *context)
{
    for (struct tt_unit *unit = context->units; unit != NULL; unit = unit->next) tt_share_forget(unit);
    tt_free(context->reaches);
    context->reaches = NULL;
}

tt_status tt_shard_context_share(struct tt_shard_context *context)
{
    const struct tt_shard_config *config = &context->config;
    if (context->resident || context->reaches != NULL || tt_device_is_plan(config->device)) return TT_OK;
    TT_TRY(tt_stream_synchronize(config->compute));
    TT_TRY(tt_stream_synchronize(context->comm_stream));
    tt_status status = TT_OK;
    bool shared = false, willing = !config->offload_params && !tt_device_is_host(config->device);
    enum tt_reach least = TT_REACH_NONE;
    struct tt_latch *own = NULL, *latch;
    context->reaches = tt_calloc((size_t)context->world_size, sizeof *context->reaches);
    if (context->reaches == NULL) TT_GO(TT_ERR_MEMORY);
    TT_GO(tt_comm_reaches(config->shard_comm, config->device, willing, context->reaches, &least));
    if (least == TT_REACH_NONE) goto out;
    TT_GO(exchange_shards(context, least == TT_REACH_MACHINE, &shared));
    if (!shared || least == TT_REACH_MACHINE) goto out;
    if (context->rank == 0) own = tt_latch_create(context->world_size);
    if (context->rank == 0 && own == NULL) TT_GO(TT_ERR_MEMORY);
    latch = own;
    TT_GO(tt_comm_host_share(config->shard_comm, &latch, sizeof(struct tt_latch *)));
    context->latch = latch;
    own = NULL; /* the last rank to leave frees it */
out:
    tt_latch_destroy(own);
    if (status != TT_OK || !shared) stop_sharing(context);
    return status;
}

bool tt_shard_context_pulls(const struct tt_shard_context *context)
{
    return context->reaches != NULL;
}

/* Part `from` of a span. */
static tt_status pull_one(struct tt_unit *unit, struct tt_stream *stream, const struct frozen_span *span,
                          int from, char *to)
{
    int rank = span->own ? unit->context->holders[from] : from;
    const char *shard = (const char *)unit->peer_shards[rank] + span->shard_offset;
    return tt_copy_on_device(stream, to + (size_t)from * span->shard_bytes, shard, span->shard_bytes);
}

bool tt_shard_plans_pull(const struct tt_shard_context *context)
{
    const struct tt_comm *comm = context->config.shard_comm;
    const struct tt_chip *chip = tt_device_chip(context->config.device);
    /* GPUs with PCIe alone may not read each other, and get no less from several at once. */
    bool linked = chip != NULL && chip->links_bytes_per_second < chip->link_bytes_per_second;
    return tt_device_is_plan(context->config.device) && linked && !context->resident &&
           tt_comm_local_size(comm) >= tt_comm_world_size(comm);
}

static tt_status copy_own(struct tt_unit *unit, const struct frozen_span *span, char *to)
{
    struct tt_shard_context *context = unit->context;
    struct tt_stream *beside = context->own_stream;
    TT_TRY(tt_event_record(context->forked, context->comm_stream));
    TT_TRY(tt_stream_wait(beside, context->forked));
    TT_TRY(tt_copy_on_device(beside, to + (size_t)span->rank * span->shard_bytes,
                             tt_buffer_at(unit->frozen_shard, span->shard_offset), span->shard_bytes));
    return tt_event_record(context->joined, beside);
}

tt_status tt_shard_pull(struct tt_unit *unit, const struct frozen_span *span, char *to)
{
    struct tt_shard_context *context = unit->context;
    struct tt_stream *stream = context->comm_stream;
    TT_TRY(copy_own(unit, span, to));
    if (tt_shard_plans_pull(context) && span->ranks > 1)
        TT_TRY(tt_comm_all_gather(span->comm, stream, to + (size_t)span->rank * span->shard_bytes, to,
                                  span->shard_bytes));
    /* Each rank begins with its neighbour, so that not all read from one rank. */
    for (int i = 1; i < span->ranks && unit->peer_shards != NULL; i++)
        TT_TRY(pull_one(unit, stream, span, (span->rank + i) % span->ranks, to));
    return tt_stream_wait(stream, context->joined);
}

void tt_share_leave(struct tt_shard_context *context)
{
    struct tt_latch *latch = context->latch;
    if (context->reaches == NULL || context->left) return;
    context->left = true;
    context->latch = NULL;
    struct tt_error record; /* the rank's error, which must survive */
    tt_error_copy(&record);
    /* A pull that failed midway has not joined its own copy. */
    if (tt_stream_synchronize(context->own_stream) != TT_OK ||
        tt_stream_synchronize(context->comm_stream) != TT_OK)
        tt_debug("a rank frees its shards before its copies have ended: %s", tt_error_last()->message);
    if (latch != NULL)
        tt_latch_leave(latch, LEAVE_SECONDS, NULL, NULL);
    else if (tt_comm_barrier(context->config.shard_comm) != TT_OK)
        nanosleep(&(struct timespec){.tv_sec = LINGER_SECONDS}, NULL);
    (void)tt_error_restore(&record);
}
