/* Frozen shards of ranks that are threads of this process. They are constant from the end of loading to the end of the
 * run, so a rank can copy them with its copy engines at any time, at the speed of the link and without slowing compute.
 * A rank frees its shards only after all other ranks have left the latch. */
#include "base/alloc.h"
#include "base/log.h"
#include "comm/host_values.h"
#include "comm/latch.h"
#include "shard/shard_impl.h"

enum { LEAVE_SECONDS = 30 };

static tt_status exchange_shards(struct tt_shard_context *context)
{
    for (struct tt_unit *unit = context->units; unit != NULL; unit = unit->next) {
        const void *own = tt_buffer_at(unit->frozen_shard, 0);
        if (unit->frozen_shard_bytes == 0) continue; /* the same on all ranks */
        const void **shards = tt_calloc((size_t)context->world_size, sizeof *shards);
        if (shards == NULL) return TT_ERR_MEMORY;
        tt_status status = tt_comm_host_all_gather(context->config.shard_comm, &own, shards, sizeof own);
        if (status != TT_OK) {
            tt_free(shards);
            return status;
        }
        unit->peer_shards = shards;
    }
    return TT_OK;
}

tt_status tt_shard_context_share(struct tt_shard_context *context)
{
    const struct tt_shard_config *config = &context->config;
    if (context->resident || context->sharing != NULL || tt_device_is_plan(config->device)) return TT_OK;
    TT_TRY(tt_stream_synchronize(config->compute));
    TT_TRY(tt_stream_synchronize(context->comm_stream));
    tt_status status = TT_OK;
    bool shares = false, willing = !config->offload_params && !tt_device_is_host(config->device);
    struct tt_latch *own = NULL;
    if (context->rank == 0) own = tt_latch_create(context->world_size);
    if (context->rank == 0 && own == NULL) TT_GO(TT_ERR_MEMORY);
    TT_GO(tt_comm_shares_memory(config->shard_comm, config->device, willing, &shares));
    if (!shares) goto out;
    struct tt_latch *shared = own;
    TT_GO(tt_comm_host_share(config->shard_comm, &shared, sizeof(struct tt_latch *)));
    context->sharing = shared;
    own = NULL; /* the last rank to leave frees it */
    TT_GO(exchange_shards(context));
out:
    tt_latch_destroy(own);
    return status;
}

bool tt_shard_context_pulls(const struct tt_shard_context *context)
{
    return context->sharing != NULL;
}

tt_status tt_shard_pull(struct tt_unit *unit, const struct frozen_span *span, char *to)
{
    struct tt_shard_context *context = unit->context;
    size_t bytes = span->shard_bytes;
    /* Other ranks' shards first, each rank beginning with its neighbour, so that not all read from one rank. */
    for (int i = 1; i <= context->world_size; i++) {
        int from = (context->rank + i) % context->world_size;
        const char *shard = (const char *)unit->peer_shards[from] + span->shard_offset;
        TT_TRY(tt_copy_on_device(context->comm_stream, to + (size_t)from * bytes, shard, bytes));
    }
    return TT_OK;
}

void tt_share_leave(struct tt_shard_context *context)
{
    struct tt_latch *latch = context->sharing;
    if (latch == NULL) return;
    context->sharing = NULL;
    struct tt_error record; /* the rank's error, which must survive */
    tt_error_copy(&record);
    if (tt_stream_synchronize(context->comm_stream) != TT_OK)
        tt_debug("a rank frees its shards before its copies have ended: %s", tt_error_last()->message);
    (void)tt_error_restore(&record);
    tt_latch_leave(latch, LEAVE_SECONDS, NULL, NULL);
}
