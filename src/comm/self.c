#include "base/alloc.h"
#include "comm/comm_impl.h"

/* One rank: what it gathers is its own, every sum is already there. And one that stands among others in a
 * plan: comm.c never comes here with data of a plan device. */

static tt_status copy(struct tt_stream *stream, void *to, const void *from, size_t bytes)
{
    if (to == from) return TT_OK;
    if (stream != NULL) return tt_copy_on_device(stream, to, from, bytes);
    memcpy(to, from, bytes);
    return TT_OK;
}

static tt_status self_all_gather(struct tt_comm *comm, struct tt_stream *stream, const void *send, void *recv,
                                 size_t bytes)
{
    (void)comm;
    return copy(stream, recv, send, bytes);
}

static tt_status self_reduce_scatter(struct tt_comm *comm, struct tt_stream *stream, const void *send,
                                     void *recv, size_t count, tt_dtype dtype)
{
    (void)comm;
    return copy(stream, recv, send, count * tt_dtype_bytes(dtype));
}

static tt_status self_all_reduce(struct tt_comm *comm, struct tt_stream *stream, void *data, size_t count,
                                 tt_dtype dtype, enum tt_reduce reduce)
{
    (void)comm;
    (void)stream;
    (void)data;
    (void)count;
    (void)dtype;
    (void)reduce;
    return TT_OK;
}

static tt_status self_broadcast(struct tt_comm *comm, struct tt_stream *stream, void *data, size_t bytes,
                                int root)
{
    (void)comm;
    (void)stream;
    (void)data;
    (void)bytes;
    (void)root;
    return TT_OK;
}

static tt_status self_barrier(struct tt_comm *comm)
{
    (void)comm;
    return TT_OK;
}

static tt_status self_split(struct tt_comm *comm, int color, struct tt_comm **out)
{
    (void)comm;
    (void)color;
    return tt_comm_create_self(out);
}

/* Nobody waits for the only rank. */
static void self_abort(struct tt_comm *comm)
{
    (void)comm;
}

static void self_destroy(struct tt_comm *comm)
{
    tt_free(comm);
}

static const struct tt_comm_table self_table = {
    .kind = "self",
    .all_gather = self_all_gather,
    .reduce_scatter = self_reduce_scatter,
    .all_reduce = self_all_reduce,
    .broadcast = self_broadcast,
    .barrier = self_barrier,
    .poll = self_barrier, /* nobody else can stop */
    .split = self_split,
    .abort = self_abort,
    .destroy = self_destroy,
};

tt_status tt_comm_create_planned(int world_size, int local_size, struct tt_comm **out)
{
    struct tt_comm *comm = tt_calloc(1, sizeof *comm);
    if (comm == NULL) return TT_ERR_MEMORY;
    *comm =
        (struct tt_comm){.table = &self_table, .rank = 0, .world_size = world_size, .local_size = local_size};
    *out = comm;
    return TT_OK;
}

tt_status tt_comm_create_self(struct tt_comm **out)
{
    return tt_comm_create_planned(1, 1, out);
}
