/* Frozen shards of ranks that are threads of this process. They lie still from the end of loading to the end
 * of the run, so a rank pulls them with its copy engines whenever it wants, at the speed of the link and
 * beside full compute. Whoever ends frees its shards only after all others have said that they pull no more.
 */
#include <errno.h>
#include <pthread.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/log.h"
#include "shard/shard_impl.h"

enum { LEAVE_SECONDS = 30 }; /* a thread that hangs must not keep the others */

/* One for all ranks of the group; the last to leave frees it. */
struct latch {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    int pulling; /* ranks that may still pull */
    int users;
};

struct share {
    struct latch *latch;
};

/* What each rank says of itself, and then of each unit. */
struct card {
    int64_t process;
    char host[64];
    int64_t device; /* index of the GPU */
    int64_t willing;
    struct latch *latch; /* rank 0's */
};

static struct latch *make_latch(int users)
{
    struct latch *latch = tt_calloc(1, sizeof *latch);
    if (latch == NULL) return NULL;
    pthread_mutex_init(&latch->mutex, NULL);
    pthread_cond_init(&latch->changed, NULL);
    latch->pulling = latch->users = users;
    return latch;
}

static void free_latch(struct latch *latch)
{
    if (latch == NULL) return;
    pthread_cond_destroy(&latch->changed);
    pthread_mutex_destroy(&latch->mutex);
    tt_free(latch);
}

/* Whether all ranks are threads of this process on devices that reach each other; the same answer on all
 * ranks. */
static tt_status agree_to_pull(struct tt_shard_context *context, const struct card *cards, bool *pull)
{
    struct tt_comm *comm = context->config.shard_comm;
    const struct card *own = &cards[context->rank];
    int64_t can = 1;
    for (int r = 0; r < context->world_size; r++) {
        can &= cards[r].willing && cards[r].process == own->process;
        for (size_t c = 0; c < sizeof own->host; c++) can &= cards[r].host[c] == own->host[c];
        if (can) can &= tt_device_reach(context->config.device, (int)cards[r].device);
    }
    int64_t *all = tt_calloc((size_t)context->world_size, sizeof *all);
    if (all == NULL) return TT_ERR_MEMORY;
    tt_status status = tt_comm_host_all_gather(comm, &can, all, sizeof can);
    *pull = true;
    for (int r = 0; r < context->world_size; r++) *pull &= all[r] != 0;
    tt_free(all);
    return status;
}

static tt_status exchange_shards(struct tt_shard_context *context)
{
    for (struct tt_unit *unit = context->units; unit != NULL; unit = unit->next) {
        const void *own = tt_buffer_at(unit->frozen_shard, 0);
        if (unit->frozen_shard_bytes == 0) continue; /* alike on all ranks */
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
    if (context->resident || context->share != NULL || tt_device_is_plan(config->device)) return TT_OK;
    TT_TRY(tt_stream_synchronize(config->compute));
    TT_TRY(tt_stream_synchronize(context->comm_stream));
    tt_status status = TT_OK;
    bool pull = false;
    struct card own = {.process = getpid(),
                       .device = tt_device_index(config->device),
                       .willing = !config->offload_params && !tt_device_is_host(config->device)};
    struct card *cards = tt_calloc((size_t)context->world_size, sizeof *cards);
    struct share *share = tt_calloc(1, sizeof *share);
    if (gethostname(own.host, sizeof own.host - 1) != 0) own.willing = false;
    if (context->rank == 0) own.latch = make_latch(context->world_size);
    if (cards == NULL || share == NULL || (context->rank == 0 && own.latch == NULL)) TT_GO(TT_ERR_MEMORY);
    TT_GO(tt_comm_host_all_gather(config->shard_comm, &own, cards, sizeof own));
    TT_GO(agree_to_pull(context, cards, &pull));
    if (!pull) goto out;
    share->latch = cards[0].latch;
    context->share = share;
    share = NULL;
    own.latch = NULL; /* the last to leave frees it */
    TT_GO(exchange_shards(context));
out:
    free_latch(own.latch);
    tt_free(share);
    tt_free(cards);
    return status;
}

tt_status tt_shard_pull(struct tt_unit *unit, char *to)
{
    struct tt_shard_context *context = unit->context;
    size_t bytes = unit->frozen_shard_bytes;
    /* The others' first, each rank beginning with its neighbour, so that not all read from one. */
    for (int i = 1; i <= context->world_size; i++) {
        int from = (context->rank + i) % context->world_size;
        TT_TRY(tt_copy_on_device(context->comm_stream, to + (size_t)from * bytes, unit->peer_shards[from],
                                 bytes));
    }
    return TT_OK;
}

void tt_share_leave(struct tt_shard_context *context)
{
    struct share *share = context->share;
    if (share == NULL) return;
    context->share = NULL;
    tt_status status = tt_stream_synchronize(context->comm_stream);
    if (status != TT_OK) tt_warn("a rank leaves while its copies have not ended");
    struct latch *latch = share->latch;
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += LEAVE_SECONDS;
    pthread_mutex_lock(&latch->mutex);
    latch->pulling--;
    pthread_cond_broadcast(&latch->changed);
    while (latch->pulling > 0 && pthread_cond_timedwait(&latch->changed, &latch->mutex, &until) != ETIMEDOUT)
        continue;
    bool last = --latch->users == 0;
    pthread_mutex_unlock(&latch->mutex);
    if (last) free_latch(latch);
    tt_free(share);
}
