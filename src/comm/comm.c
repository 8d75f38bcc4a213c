#include <string.h>

#include "backend/plan/plan.h"
#include "comm/comm_impl.h"

int tt_comm_rank(const struct tt_comm *comm)
{
    return comm->rank;
}

int tt_comm_world_size(const struct tt_comm *comm)
{
    return comm->world_size;
}

const char *tt_comm_kind(const struct tt_comm *comm)
{
    return comm->table->kind;
}

int tt_comm_local_size(const struct tt_comm *comm)
{
    return comm->local_size;
}

tt_status tt_comm_fail_peer(int rank, const struct tt_error *cause)
{
    int contexts = cause->context_count < TT_ERROR_CONTEXT_MAX ? cause->context_count : TT_ERROR_CONTEXT_MAX;
    if (cause->status == TT_OK) {
        tt_fail(TT_ERR_PEER, "rank %d stopped", rank);
        return TT_ERR_PEER;
    }
    /* Precisions bound the reads: the bytes are another process's. */
    tt_fail(TT_ERR_PEER, "rank %d failed: %.*s", rank, (int)sizeof cause->message - 1, cause->message);
    for (int i = 0; i < contexts; i++) tt_while("%.*s", (int)sizeof cause->context[i] - 1, cause->context[i]);
    if (cause->hint[0] != '\0') tt_hint("%.*s", (int)sizeof cause->hint - 1, cause->hint);
    tt_error_set_reported_elsewhere(cause->status == TT_ERR_PEER ? cause->cause : cause->status);
    return TT_ERR_PEER;
}

static tt_status check_total(const struct tt_comm *comm, size_t count, size_t element_bytes)
{
    size_t bytes;
    if (__builtin_mul_overflow(count, element_bytes, &bytes) ||
        __builtin_mul_overflow(bytes, (size_t)comm->world_size, &bytes) || bytes > PTRDIFF_MAX)
        return tt_fail(TT_ERR_INTERNAL,
                       "a collective over %d ranks of %zu elements of %zu bytes does not fit memory",
                       comm->world_size, count, element_bytes);
    return TT_OK;
}

/* Transports for ranks on cpus read and write the memory themselves; only some transports reach device memory. */
static tt_status check_memory(const struct tt_comm *comm, const struct tt_stream *stream)
{
    const struct tt_device *device = tt_stream_device(stream);
    if (comm->world_size == 1 || tt_device_is_host(device) || comm->table->reaches_devices) return TT_OK;
    return tt_fail(TT_ERR_UNSUPPORTED, "the %s communicator cannot reach memory of a %s device",
                   comm->table->kind, tt_device_kind(device));
}

static bool is_plan(const struct tt_stream *stream)
{
    return tt_device_is_plan(tt_stream_device(stream));
}

/* Counts the time of receiving `bytes` from each other rank on the plan device, which moves no data. The ranks of a
 * machine share its network: each receives the data of one rank of each other machine, and they pass it on to each
 * other. */
static tt_status plan_receive(const struct tt_comm *comm, struct tt_stream *stream, size_t bytes)
{
    int machines = (comm->world_size + comm->local_size - 1) / comm->local_size;
    if (comm->world_size == 1) return TT_OK;
    int inside = comm->local_size < comm->world_size ? comm->local_size : comm->world_size;
    return tt_plan_receive(stream, bytes * (size_t)(comm->world_size - 1), bytes * (size_t)(machines - 1),
                           inside - 1);
}

/* A collective of one rank: copies its own piece, unless a rank outside this group has failed. */
static tt_status copy_own(struct tt_comm *comm, struct tt_stream *stream, void *to, const void *from,
                          size_t bytes)
{
    TT_TRY(tt_comm_poll(comm));
    if (to == from) return TT_OK;
    if (stream != NULL) return tt_copy_on_device(stream, to, from, bytes);
    memcpy(to, from, bytes);
    return TT_OK;
}

/* The communicator for host calls. */
static struct tt_comm *host_of(struct tt_comm *comm)
{
    while (comm->control != NULL) comm = comm->control;
    return comm;
}

/* True if there is no other rank: one rank, or the rank of a plan. */
static bool is_alone(const struct tt_comm *comm)
{
    return comm->world_size == 1 || (comm->table->exchange == NULL && comm->table->all_gather == NULL);
}

static tt_status all_gather(struct tt_comm *comm, struct tt_stream *stream, const void *send, void *recv,
                            size_t bytes)
{
    if (is_alone(comm)) return copy_own(comm, stream, recv, send, bytes);
    if (comm->table->all_gather != NULL) return comm->table->all_gather(comm, stream, send, recv, bytes);
    return tt_exchange_all_gather(comm, send, recv, bytes);
}

/* The stream of a collective on `exchange`; NULL where the transport reaches no device. */
static struct tt_stream *stream_of(const struct tt_comm *comm, struct tt_stream *stream)
{
    return comm->table->reaches_devices ? stream : NULL;
}

static tt_status all_reduce(struct tt_comm *comm, struct tt_stream *stream, void *data, size_t count,
                            tt_dtype dtype, enum tt_reduce reduce)
{
    if (is_alone(comm)) return tt_comm_poll(comm);
    if (comm->table->all_reduce != NULL && comm->rows == NULL)
        return comm->table->all_reduce(comm, stream, data, count, dtype, reduce);
    return tt_exchange_all_reduce(comm, stream_of(comm, stream), data, count, dtype, reduce);
}

tt_status tt_comm_all_gather(struct tt_comm *comm, struct tt_stream *stream, const void *send, void *recv,
                             size_t bytes_per_rank)
{
    TT_TRY(check_total(comm, bytes_per_rank, 1));
    if (bytes_per_rank == 0) return TT_OK;
    if (is_plan(stream)) return plan_receive(comm, stream, bytes_per_rank);
    TT_TRY(check_memory(comm, stream));
    return all_gather(comm, stream, send, recv, bytes_per_rank);
}

tt_status tt_comm_reduce_scatter(struct tt_comm *comm, struct tt_stream *stream, const void *send, void *recv,
                                 size_t count_per_rank, tt_dtype dtype)
{
    size_t bytes = count_per_rank * tt_dtype_bytes(dtype);
    if (dtype != TT_F32 && dtype != TT_BF16)
        return tt_fail(TT_ERR_INTERNAL, "reduce-scatter of %s", tt_dtype_name(dtype));
    TT_TRY(check_total(comm, count_per_rank, tt_dtype_bytes(dtype)));
    if (count_per_rank == 0) return TT_OK;
    if (is_plan(stream)) return plan_receive(comm, stream, bytes);
    TT_TRY(check_memory(comm, stream));
    if (is_alone(comm)) return copy_own(comm, stream, recv, send, bytes);
    if (comm->table->reduce_scatter != NULL && comm->rows == NULL)
        return comm->table->reduce_scatter(comm, stream, send, recv, count_per_rank, dtype);
    return tt_exchange_reduce_scatter(comm, stream_of(comm, stream), send, recv, count_per_rank, dtype);
}

tt_status tt_comm_all_reduce(struct tt_comm *comm, struct tt_stream *stream, void *data, size_t count,
                             tt_dtype dtype, enum tt_reduce reduce)
{
    if (dtype != TT_F32 && dtype != TT_BF16 && dtype != TT_F64 && dtype != TT_I64)
        return tt_fail(TT_ERR_INTERNAL, "all-reduce of %s", tt_dtype_name(dtype));
    TT_TRY(check_total(comm, count, tt_dtype_bytes(dtype)));
    if (count == 0) return TT_OK;
    if (is_plan(stream)) /* each rank sums its share and sends it to all */
        return plan_receive(comm, stream, 2 * count * tt_dtype_bytes(dtype) / (size_t)comm->world_size);
    TT_TRY(check_memory(comm, stream));
    return all_reduce(comm, stream, data, count, dtype, reduce);
}

/* The bytes that other ranks send, and those of them that come from other machines. */
static void count_received(const struct tt_comm *comm, const struct tt_comm_part *parts, size_t *bytes,
                           size_t *network)
{
    *bytes = *network = 0;
    for (int q = 0; q < comm->world_size; q++) {
        if (q == comm->rank) continue;
        *bytes += parts[q].recv_bytes;
        if (q / comm->local_size != comm->rank / comm->local_size) *network += parts[q].recv_bytes;
    }
}

static tt_status plan_exchange(const struct tt_comm *comm, struct tt_stream *stream,
                               const struct tt_comm_part *parts)
{
    size_t bytes, network;
    int inside = comm->local_size < comm->world_size ? comm->local_size : comm->world_size;
    count_received(comm, parts, &bytes, &network);
    return bytes > 0 ? tt_plan_receive(stream, bytes, network, inside - 1) : TT_OK;
}

tt_status tt_comm_exchange(struct tt_comm *comm, struct tt_stream *stream, const struct tt_comm_part *parts)
{
    const struct tt_comm_part *own = &parts[comm->rank];
    struct tt_comm_exchange exchange = {
        .order = {.call = TT_CALL_EXCHANGE}, .stream = stream_of(comm, stream), .parts = parts};
    if (own->send_bytes != own->recv_bytes)
        return tt_fail(TT_ERR_INTERNAL, "rank %d sends itself %zu bytes and expects %zu", comm->rank,
                       own->send_bytes, own->recv_bytes);
    if (is_plan(stream)) return plan_exchange(comm, stream, parts);
    TT_TRY(check_memory(comm, stream));
    if (own->send_bytes > 0) TT_TRY(tt_copy_on_device(stream, own->recv, own->send, own->send_bytes));
    return is_alone(comm) ? tt_comm_poll(comm) : comm->table->exchange(comm, &exchange);
}

tt_status tt_comm_host_broadcast(struct tt_comm *comm, void *data, size_t bytes, int root)
{
    struct tt_comm *host = host_of(comm);
    if (root < 0 || root >= comm->world_size)
        return tt_fail(TT_ERR_INTERNAL, "broadcast from rank %d of %d", root, comm->world_size);
    if (bytes == 0) return TT_OK;
    if (is_alone(host)) return tt_comm_poll(host);
    if (host->table->broadcast != NULL) return host->table->broadcast(host, data, bytes, root);
    return tt_exchange_broadcast(host, data, bytes, root);
}

tt_status tt_comm_host_all_gather(struct tt_comm *comm, const void *send, void *recv, size_t bytes_per_rank)
{
    TT_TRY(check_total(comm, bytes_per_rank, 1));
    if (bytes_per_rank == 0) return TT_OK;
    return all_gather(host_of(comm), NULL, send, recv, bytes_per_rank);
}

tt_status tt_comm_host_min(struct tt_comm *comm, int64_t *value)
{
    return all_reduce(host_of(comm), NULL, value, 1, TT_I64, TT_REDUCE_MIN);
}

tt_status tt_comm_barrier(struct tt_comm *comm)
{
    struct tt_comm *host = host_of(comm);
    if (is_alone(host)) return tt_comm_poll(host);
    return host->table->barrier != NULL ? host->table->barrier(host) : tt_exchange_barrier(host);
}

/* Finds the rank whose error the others report: the lowest that failed by itself, otherwise the lowest that failed with
 * TT_ERR_PEER; -1 if no rank failed. The minimum is taken over one number per rank: its rank, or its rank + world size
 * in the second case. */
static tt_status find_blamed(struct tt_comm *comm, tt_status status, int *blamed)
{
    int64_t key = INT64_MAX;
    if (status == TT_ERR_PEER)
        key = comm->rank + comm->world_size;
    else if (status != TT_OK)
        key = comm->rank;
    TT_TRY(tt_comm_host_min(comm, &key));
    *blamed = key == INT64_MAX ? -1 : (int)(key % comm->world_size);
    return TT_OK;
}

tt_status tt_comm_agree(struct tt_comm *comm, tt_status status)
{
    struct tt_error own, sent;
    int blamed;
    tt_error_copy(&own);
    sent = own;
    if (own.status != status) sent = (struct tt_error){.status = status, .message = "it has no error record"};
    tt_status exchange = find_blamed(comm, status, &blamed);
    if (exchange == TT_OK && blamed >= 0) exchange = tt_comm_host_broadcast(comm, &sent, sizeof sent, blamed);
    /* A rank that has the record may abort at once. Its abort must not reach another rank before the record does, or
     * that rank would report the same error. After the barrier all ranks have the record; its own result does not
     * matter. */
    if (exchange == TT_OK && blamed >= 0) (void)!tt_comm_barrier(comm);
    if (status != TT_OK) {
        tt_error_restore(&own); /* a failed rank reports its own error, even if the exchange failed */
        bool alike = exchange == TT_OK && blamed != comm->rank && sent.status == status &&
                     strncmp(sent.message, own.message, sizeof own.message) == 0;
        if (alike) tt_error_set_reported_elsewhere(own.cause);
        return status;
    }
    if (exchange != TT_OK) return exchange;
    return blamed < 0 ? TT_OK : tt_comm_fail_peer(blamed, &sent);
}

tt_status tt_comm_poll(struct tt_comm *comm)
{
    struct tt_comm *host = host_of(comm);
    return host->table->poll(host);
}

void tt_comm_set_activity(struct tt_comm *comm, const char *text)
{
    struct tt_comm *host = host_of(comm);
    if (host->table->set_activity != NULL) host->table->set_activity(host, text);
}

void tt_comm_abort(struct tt_comm *comm)
{
    if (comm != NULL) comm->table->abort(comm);
}

tt_status tt_comm_split(struct tt_comm *comm, int color, struct tt_comm **out)
{
    /* MPI has no negative colors, and all transports accept the same calls. */
    if (color < 0) return tt_fail(TT_ERR_INTERNAL, "a communicator cannot be split by color %d", color);
    return comm->table->split(comm, color, out);
}

/* Queued work may use the rows until the end of the communicator. */
void tt_comm_destroy(struct tt_comm *comm)
{
    if (comm == NULL) return;
    struct tt_comm_rows *rows = comm->rows;
    comm->table->destroy(comm);
    tt_comm_rows_destroy(rows);
}
