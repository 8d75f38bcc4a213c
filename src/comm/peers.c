/* Ranks that are threads of one process, each with a GPU, where every GPU can read the memory of every other. Host
 * calls go over `control`; data is copied by copy engines and added by element-wise kernels that read the other GPU's
 * memory over the link.
 *
 * No kernel here spins until another GPU answers, as NCCL's kernels do. With several ranks in one process that can
 * deadlock: the driver loads a kernel at its first use under a lock of the process, and may have to wait for the kernel
 * that runs on that GPU. If that kernel spins for another rank whose thread waits for the lock, no rank makes progress
 * (observed with two H200s, CUDA 13.0 and NCCL 2.28.9).
 *
 * A call, on every rank: publish the address of the data, record the event "ready", wait for the other ranks on the
 * host, let the stream wait for their "ready", copy or add, record "done", wait for the ranks again, let the stream
 * wait for their "done". Only events order the streams, and work that is queued later on a rank's stream may change its
 * data.
 */
#include <stdatomic.h>
#include <string.h>
#include <time.h>

#include "backend/ops/elementwise.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "base/integer.h"
#include "comm/comm_impl.h"

enum {
    LEAVE_SECONDS_MAX = 30,
    SLICE_ELEMENTS = 8, /* borders between slices: 16-byte accesses in both types */
};

/* Published by one rank for the others: written before a barrier on the host, read by the others until the next one. */
struct peer_state {
    const void *data;
    struct tt_event *ready, *done;
    atomic_bool inside; /* in a call, in which it may read the other ranks' states */
};

struct group {
    atomic_int users; /* the last one frees it */
    struct peer_state states[];
};

struct peers_comm {
    struct tt_comm base; /* host calls go over its control */
    bool owns_control;
    bool watches; /* installed the device's check */
    struct tt_device *device;
    struct group *group;
};

static struct peers_comm *peers_of(struct tt_comm *comm)
{
    return (struct peers_comm *)comm;
}

static struct peer_state *own_state(struct peers_comm *comm)
{
    return &comm->group->states[comm->base.rank];
}

static tt_status wait_for_all(struct peers_comm *comm, struct tt_stream *stream, bool done)
{
    for (int r = 0; r < comm->base.world_size; r++) {
        const struct peer_state *state = &comm->group->states[r];
        if (r != comm->base.rank) TT_TRY(tt_stream_wait(stream, done ? state->done : state->ready));
    }
    return TT_OK;
}

/* Starts a call: work queued on the stream afterwards sees the others' data. */
static tt_status begin(struct peers_comm *comm, struct tt_stream *stream, const void *data)
{
    struct peer_state *state = own_state(comm);
    state->data = data;
    atomic_store(&state->inside, true);
    TT_TRY(tt_event_record(state->ready, stream));
    TT_TRY(tt_comm_barrier(&comm->base));
    return wait_for_all(comm, stream, false);
}

/* Ends a call: work queued on the stream afterwards runs when no other rank reads this rank's data any more. */
static tt_status end(struct peers_comm *comm, struct tt_stream *stream)
{
    TT_TRY(tt_event_record(own_state(comm)->done, stream));
    TT_TRY(tt_comm_barrier(&comm->base));
    return wait_for_all(comm, stream, true);
}

/* Called at the end of a call, also after a failure: this rank no longer reads the others' states. */
static tt_status leave(struct peers_comm *comm, tt_status status)
{
    atomic_store(&own_state(comm)->inside, false);
    return status;
}

static tt_status gather(struct peers_comm *comm, struct tt_stream *stream, const void *send, void *recv,
                        size_t bytes)
{
    TT_TRY(begin(comm, stream, send));
    for (int i = 0; i < comm->base.world_size; i++) {
        int from = (comm->base.rank + i) % comm->base.world_size;
        const void *data = comm->group->states[from].data;
        char *to = (char *)recv + (size_t)from * bytes;
        if (to != data) TT_TRY(tt_copy_on_device(stream, to, data, bytes));
    }
    return end(comm, stream);
}

static tt_status peers_all_gather(struct tt_comm *base, struct tt_stream *stream, const void *send,
                                  void *recv, size_t bytes)
{
    struct peers_comm *comm = peers_of(base);
    return leave(comm, gather(comm, stream, send, recv, bytes));
}

/* to += the same elements of all others, beginning with the next rank. */
static tt_status add_others(struct peers_comm *comm, struct tt_stream *stream, char *to, size_t offset,
                            size_t count, tt_dtype dtype)
{
    tt_tensor sum = tt_tensor_1d(to, dtype, (int64_t)count);
    for (int i = 1; i < comm->base.world_size; i++) {
        int from = (comm->base.rank + i) % comm->base.world_size;
        char *data = (char *)comm->group->states[from].data + offset;
        struct tt_add_args add = {.a = sum, .b = tt_tensor_1d(data, dtype, (int64_t)count), .y = sum};
        TT_TRY(tt_add(stream, &add));
    }
    return TT_OK;
}

static tt_status sum_slice(struct peers_comm *comm, struct tt_stream *stream, const void *send, void *recv,
                           size_t count, tt_dtype dtype)
{
    size_t bytes = count * tt_dtype_bytes(dtype), offset = (size_t)comm->base.rank * bytes;
    const char *own = (const char *)send + offset;
    TT_TRY(begin(comm, stream, send));
    if (own != recv) TT_TRY(tt_copy_on_device(stream, recv, own, bytes));
    TT_TRY(add_others(comm, stream, recv, offset, count, dtype));
    return end(comm, stream);
}

static tt_status peers_reduce_scatter(struct tt_comm *base, struct tt_stream *stream, const void *send,
                                      void *recv, size_t count, tt_dtype dtype)
{
    struct peers_comm *comm = peers_of(base);
    return leave(comm, sum_slice(comm, stream, send, recv, count, dtype));
}

/* Each rank sums one slice in place and then copies the other slices from the ranks that summed them, so all get the
 * same bits. */
static tt_status sum_all(struct peers_comm *comm, struct tt_stream *stream, void *data, size_t count,
                         tt_dtype dtype)
{
    size_t element = tt_dtype_bytes(dtype), world = (size_t)comm->base.world_size;
    size_t slice = (count + world * SLICE_ELEMENTS - 1) / (world * SLICE_ELEMENTS) * SLICE_ELEMENTS;
    size_t first = tt_smaller_size((size_t)comm->base.rank * slice, count),
           last = tt_smaller_size(first + slice, count);
    TT_TRY(begin(comm, stream, data));
    if (last > first)
        TT_TRY(
            add_others(comm, stream, (char *)data + first * element, first * element, last - first, dtype));
    TT_TRY(end(comm, stream));
    for (int i = 1; i < comm->base.world_size; i++) {
        size_t from = (size_t)((comm->base.rank + i) % comm->base.world_size);
        size_t begins = tt_smaller_size(from * slice, count), ends = tt_smaller_size(begins + slice, count);
        const char *theirs = (const char *)comm->group->states[from].data + begins * element;
        if (ends > begins)
            TT_TRY(tt_copy_on_device(stream, (char *)data + begins * element, theirs,
                                     (ends - begins) * element));
    }
    return end(comm, stream);
}

static tt_status peers_all_reduce(struct tt_comm *base, struct tt_stream *stream, void *data, size_t count,
                                  tt_dtype dtype, enum tt_reduce reduce)
{
    struct peers_comm *comm = peers_of(base);
    if (reduce != TT_REDUCE_SUM || (dtype != TT_F32 && dtype != TT_BF16))
        return tt_fail(TT_ERR_UNSUPPORTED, "GPUs of one process sum F32 and BF16, not %s",
                       tt_dtype_name(dtype));
    return leave(comm, sum_all(comm, stream, data, count, dtype));
}

/* The published data is a copy of the rank's parts in host memory: it outlives a call that fails while other ranks read
 * it. */
static tt_status copy_parts(struct peers_comm *comm, const struct tt_comm_exchange *exchange)
{
    memcpy(comm->base.parts, exchange->parts, (size_t)comm->base.world_size * sizeof *exchange->parts);
    TT_TRY(begin(comm, exchange->stream, comm->base.parts));
    for (int i = 1; i < comm->base.world_size; i++) {
        int from = (comm->base.rank + i) % comm->base.world_size;
        const struct tt_comm_part *theirs = comm->group->states[from].data;
        const struct tt_comm_part *part = &exchange->parts[from];
        TT_TRY(tt_comm_check_sizes(comm->base.rank, part, &theirs[comm->base.rank], from));
        if (part->recv_bytes > 0)
            TT_TRY(tt_copy_on_device(exchange->stream, part->recv, theirs[comm->base.rank].send,
                                     part->recv_bytes));
    }
    return end(comm, exchange->stream);
}

static tt_status peers_exchange(struct tt_comm *base, const struct tt_comm_exchange *exchange)
{
    struct peers_comm *comm = peers_of(base);
    return leave(comm, copy_parts(comm, exchange));
}

static void peers_abort(struct tt_comm *base)
{
    tt_comm_abort(base->control);
}

static bool is_other_rank_inside(const struct peers_comm *comm)
{
    bool inside = false;
    for (int r = 0; r < comm->base.world_size; r++)
        inside |= r != comm->base.rank && atomic_load(&comm->group->states[r].inside);
    return inside;
}

/* A rank that has passed the last barrier may still read this rank's state while it queues a few calls; it cannot pass
 * another barrier without this rank. Waits for such ranks only, not for the end of all others: a rank that fails before
 * the others have begun must be able to abort them. */
static void leave_group(struct peers_comm *comm)
{
    struct group *group = comm->group;
    struct peer_state *state = own_state(comm);
    double start = tt_clock_seconds();
    while (is_other_rank_inside(comm) && tt_clock_seconds() - start < LEAVE_SECONDS_MAX)
        nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
    if (state->ready != NULL) tt_event_destroy(state->ready);
    if (state->done != NULL) tt_event_destroy(state->done);
    if (atomic_fetch_sub(&group->users, 1) == 1) tt_free(group);
}

static void peers_destroy(struct tt_comm *base)
{
    struct peers_comm *comm = peers_of(base);
    if (comm->watches) tt_device_set_watch(comm->device, NULL, NULL);
    if (comm->group != NULL) leave_group(comm);
    if (comm->owns_control) tt_comm_destroy(base->control);
    tt_comm_deinit_parts(base);
    tt_free(comm);
}

static tt_status peers_split(struct tt_comm *base, int color, struct tt_comm **out);

static const struct tt_comm_table peers_table = {
    .kind = "peers",
    .reaches_devices = true,
    .exchange = peers_exchange,
    .all_gather = peers_all_gather,
    .reduce_scatter = peers_reduce_scatter,
    .all_reduce = peers_all_reduce,
    .split = peers_split,
    .abort = peers_abort,
    .destroy = peers_destroy,
};

static tt_status check_control(void *context)
{
    return tt_comm_poll(context);
}

static struct group *make_group(int world_size)
{
    struct group *group = tt_calloc(1, sizeof *group + (size_t)world_size * sizeof group->states[0]);
    if (group != NULL) atomic_init(&group->users, world_size);
    return group;
}

/* Collective. Takes ownership of `control` if `owns` is set, also on failure. */
static tt_status create(struct tt_comm *control, struct tt_device *device, bool owns, struct tt_comm **out)
{
    tt_status status = TT_OK;
    struct peers_comm *comm = tt_calloc(1, sizeof *comm);
    struct group *group = NULL;
    if (comm == NULL) {
        status = tt_comm_agree(control, TT_ERR_MEMORY);
        if (owns) tt_comm_destroy(control);
        return status;
    }
    *comm = (struct peers_comm){.base = {.table = &peers_table,
                                         .rank = control->rank,
                                         .world_size = control->world_size,
                                         .local_size = control->local_size,
                                         .control = control},
                                .owns_control = owns,
                                .device = device};
    if (control->rank == 0) group = make_group(control->world_size);
    status = tt_comm_init_parts(&comm->base);
    if (control->rank == 0 && group == NULL) status = TT_ERR_MEMORY;
    status = tt_comm_agree(control, status);
    if (status == TT_OK) status = tt_comm_host_broadcast(control, &group, sizeof group, 0);
    if (status != TT_OK) {
        if (control->rank == 0) tt_free(group);
        peers_destroy(&comm->base);
        return status;
    }
    comm->group = group;
    status = tt_event_create(device, &own_state(comm)->ready);
    if (status == TT_OK) status = tt_event_create(device, &own_state(comm)->done);
    status = tt_comm_agree(control, status);
    if (status != TT_OK) {
        peers_destroy(&comm->base);
        return status;
    }
    *out = &comm->base;
    return TT_OK;
}

static tt_status peers_split(struct tt_comm *base, int color, struct tt_comm **out)
{
    struct peers_comm *comm = peers_of(base);
    struct tt_comm *control = NULL;
    TT_TRY(tt_comm_split(base->control, color, &control));
    return create(control, comm->device, true, out);
}

tt_status tt_comm_create_peers(struct tt_comm *control, struct tt_device *device, struct tt_comm **out)
{
    struct tt_comm *comm = NULL;
    TT_TRY(create(control, device, false, &comm));
    tt_device_set_watch(device, check_control, control);
    peers_of(comm)->watches = true;
    *out = comm;
    return TT_OK;
}
