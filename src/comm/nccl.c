/* Ranks on GPUs. Host calls go over `control`, data on devices over NCCL (the plugin's table).
 *
 * A communicator and those split from it form a family: they fail together, and the device has one check for all of
 * them. A failed peer shows in two places: in control with its rank, and in NCCL as an error without a rank. An error
 * of NCCL therefore waits a little for control's.
 */
#include <pthread.h>
#include <time.h>

#include "backend/plugin.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "comm/comm_impl.h"

enum { NAME_SECONDS_MAX = 3 }; /* an error of NCCL waits this long for the rank that caused it */

struct nccl_comm;

struct family {
    pthread_mutex_t mutex; /* guards the list, which tt_comm_abort reads from any thread */
    struct nccl_comm *first;
    struct tt_comm *control; /* of the first communicator; NULL after that is destroyed */
    struct tt_device *device;
    const struct tt_collectives_table *calls;
    bool careful; /* other ranks are threads of this process: comm/peers.c describes the possible deadlock */
};

struct nccl_comm {
    struct tt_comm base;
    struct family *family;
    struct nccl_comm *next;
    bool owns_control;
    void *handle;
    struct tt_collective_part *parts; /* [world_size]: of an exchange, for the plugin */
};

static struct nccl_comm *nccl_of(struct tt_comm *comm)
{
    return (struct nccl_comm *)comm;
}

/* Called after a failure of NCCL: returns the error of the failed peer if control reports it soon, otherwise NCCL's
 * own. */
static tt_status explain(struct tt_comm *control, tt_status status)
{
    struct tt_error own;
    if (status != TT_ERR_COMM || control == NULL) return status;
    tt_error_copy(&own);
    for (double start = tt_clock_seconds(); tt_clock_seconds() - start < NAME_SECONDS_MAX;) {
        if (tt_comm_poll(control) != TT_OK) return TT_ERR_PEER;
        nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    }
    return tt_error_restore(&own);
}

/* The device's check (tt_device_set_watch): called in the rank's thread while the host waits for the device. */
static tt_status check_family(void *context)
{
    const struct family *family = context;
    if (family->control != NULL) TT_TRY(tt_comm_poll(family->control));
    for (const struct nccl_comm *comm = family->first; comm != NULL; comm = comm->next) {
        tt_status status = family->calls->check(comm->handle);
        if (status != TT_OK) return explain(family->control, status);
    }
    return TT_OK;
}

/* The end of every call on a stream. With several ranks in this process the host waits: no other call may reach the
 * driver while a kernel spins for another rank. */
static tt_status settle(struct nccl_comm *comm, struct tt_stream *stream, tt_status status)
{
    if (status == TT_OK && comm->family->careful) return tt_stream_synchronize(stream);
    return explain(comm->base.control, status);
}

static tt_status nccl_all_gather(struct tt_comm *base, struct tt_stream *stream, const void *send, void *recv,
                                 size_t bytes)
{
    struct nccl_comm *comm = nccl_of(base);
    return settle(comm, stream, comm->family->calls->all_gather(comm->handle, stream, send, recv, bytes));
}

static tt_status nccl_reduce_scatter(struct tt_comm *base, struct tt_stream *stream, const void *send,
                                     void *recv, size_t count, tt_dtype dtype)
{
    struct nccl_comm *comm = nccl_of(base);
    return settle(comm, stream,
                  comm->family->calls->reduce_scatter(comm->handle, stream, send, recv, count, dtype));
}

static tt_status nccl_all_reduce(struct tt_comm *base, struct tt_stream *stream, void *data, size_t count,
                                 tt_dtype dtype, enum tt_reduce reduce)
{
    struct nccl_comm *comm = nccl_of(base);
    return settle(comm, stream,
                  comm->family->calls->all_reduce(comm->handle, stream, data, count, dtype, (int)reduce));
}

static tt_status nccl_exchange(struct tt_comm *base, const struct tt_comm_exchange *exchange)
{
    struct nccl_comm *comm = nccl_of(base);
    for (int q = 0; q < base->world_size; q++) {
        const struct tt_comm_part *part = &exchange->parts[q];
        comm->parts[q] = (struct tt_collective_part){.send = part->send,
                                                     .send_bytes = part->send_bytes,
                                                     .recv = part->recv,
                                                     .recv_bytes = part->recv_bytes};
    }
    return settle(comm, exchange->stream,
                  comm->family->calls->exchange(comm->handle, exchange->stream, comm->parts));
}

/* Control first: the peers, whose devices may wait for this one, receive the cause before NCCL reports its effects. */
static void nccl_abort(struct tt_comm *base)
{
    struct nccl_comm *comm = nccl_of(base);
    struct family *family = comm->family;
    tt_comm_abort(comm->base.control);
    pthread_mutex_lock(&family->mutex);
    for (struct nccl_comm *member = family->first; member != NULL; member = member->next)
        if (member->handle != NULL) family->calls->abort(member->handle);
    pthread_mutex_unlock(&family->mutex);
}

static void family_release(struct family *family)
{
    if (family->first != NULL) return;
    tt_device_set_watch(family->device, NULL, NULL);
    pthread_mutex_destroy(&family->mutex);
    tt_free(family);
}

static void nccl_destroy(struct tt_comm *base)
{
    struct nccl_comm *comm = nccl_of(base);
    struct family *family = comm->family;
    struct tt_error record;
    tt_error_copy(&record);
    bool failed = tt_comm_poll(comm->base.control) != TT_OK;
    (void)tt_error_restore(&record);
    if (failed) family->calls->abort(comm->handle); /* an orderly end waits for peers */
    pthread_mutex_lock(&family->mutex);
    struct nccl_comm **link = &family->first;
    while (*link != comm) link = &(*link)->next;
    *link = comm->next;
    if (family->control == comm->base.control) family->control = NULL;
    pthread_mutex_unlock(&family->mutex);
    family->calls->destroy(comm->handle);
    if (comm->owns_control) tt_comm_destroy(comm->base.control);
    tt_free(comm->parts);
    tt_free(comm);
    family_release(family);
}

static tt_status nccl_split(struct tt_comm *base, int color, struct tt_comm **out);

static const struct tt_comm_table nccl_table = {
    .kind = "nccl",
    .reaches_devices = true,
    .exchange = nccl_exchange,
    .all_gather = nccl_all_gather,
    .reduce_scatter = nccl_reduce_scatter,
    .all_reduce = nccl_all_reduce,
    .split = nccl_split,
    .abort = nccl_abort,
    .destroy = nccl_destroy,
};

/* Collective over `control`. When a rank fails here, the others are inside NCCL, where only an abort reaches them. */
static tt_status connect(const struct family *family, struct tt_comm *control, void **handle)
{
    unsigned char id[TT_COLLECTIVE_ID_BYTES] = {0};
    tt_status status = control->rank == 0 ? family->calls->make_id(id) : TT_OK;
    TT_TRY(tt_comm_agree(control, status));
    TT_TRY(tt_comm_host_broadcast(control, id, sizeof id, 0));
    status = family->calls->create(family->device, id, control->rank, control->world_size, handle);
    status = explain(control, status);
    if (status != TT_OK) {
        tt_while("connecting the GPUs of %d ranks", control->world_size);
        tt_comm_abort(control);
    }
    return status;
}

/* Takes ownership of `control` if `owns` is set, also on failure. */
static tt_status comm_create(struct family *family, struct tt_comm *control, bool owns, struct tt_comm **out)
{
    tt_status status;
    void *handle = NULL;
    struct nccl_comm *comm = tt_calloc(1, sizeof *comm);
    struct tt_collective_part *parts = tt_calloc((size_t)control->world_size, sizeof *parts);
    status = tt_comm_agree(control, comm != NULL && parts != NULL ? TT_OK : TT_ERR_MEMORY);
    if (status == TT_OK) status = connect(family, control, &handle);
    if (status != TT_OK) {
        if (owns) tt_comm_destroy(control);
        tt_free(parts);
        tt_free(comm);
        return status;
    }
    *comm = (struct nccl_comm){
        .base = {.table = &nccl_table,
                 .rank = control->rank,
                 .world_size = control->world_size,
                 .local_size = control->local_size,
                 .control = control},
        .family = family,
        .owns_control = owns,
        .handle = handle,
        .parts = parts,
    };
    pthread_mutex_lock(&family->mutex);
    comm->next = family->first;
    family->first = comm;
    pthread_mutex_unlock(&family->mutex);
    *out = &comm->base;
    return TT_OK;
}

static tt_status nccl_split(struct tt_comm *base, int color, struct tt_comm **out)
{
    struct nccl_comm *comm = nccl_of(base);
    struct tt_comm *control = NULL;
    TT_TRY(tt_comm_split(comm->base.control, color, &control));
    return comm_create(comm->family, control, true, out);
}

static tt_status family_create(struct tt_comm *control, struct tt_device *device, struct family **out)
{
    char reason[512] = "";
    const struct tt_plugin *plugin = tt_plugin_load(reason, sizeof reason);
    if (plugin == NULL) return tt_fail(TT_ERR_DEVICE, "no GPU can be used: %s", reason);
    if (plugin->collectives == NULL)
        return tt_fail(TT_ERR_UNSUPPORTED, "this build has no collectives between GPUs");
    struct family *family = tt_calloc(1, sizeof *family);
    if (family == NULL) return TT_ERR_MEMORY;
    pthread_mutex_init(&family->mutex, NULL);
    family->control = control;
    family->device = device;
    family->calls = plugin->collectives;
    *out = family;
    return TT_OK;
}

tt_status tt_comm_create_nccl(struct tt_comm *control, struct tt_device *device, struct tt_comm **out)
{
    struct family *family = NULL;
    tt_status status = tt_comm_agree(control, family_create(control, device, &family));
    int here = 1;
    if (status == TT_OK) status = tt_comm_count_local_ranks(control, device, &here);
    if (status == TT_OK) {
        family->careful = here > 1;
        tt_device_set_watch(device, check_family, family);
        status = comm_create(family, control, false, out);
    }
    if (status != TT_OK && family != NULL) family_release(family);
    return status;
}
