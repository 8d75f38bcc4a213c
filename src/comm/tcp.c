/* Ranks of processes that have found each other by address, without MPI. A star: every rank has a connection
 * to the hub, which lives in the process of rank 0; a call sends its piece there and waits for the result. So
 * a sum is made in one place, in order of rank, and gives the bits that threads give. It is slow for much
 * data and meant for control: on GPUs data goes over NCCL.
 *
 * Health is kept beside the calls (link.c): a rank that fails, falls silent or is gone ends every wait of
 * every other rank.
 */
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

#include "base/alloc.h"
#include "comm/comm_impl.h"
#include "comm/link.h"
#include "comm/wire.h"

/* The connection of one rank; its communicators share it. */
struct line {
    struct tt_link *link;
    pthread_mutex_t mutex; /* one call at a time */
    int socket;
    int rank; /* in the world */
    int users;
    uint64_t sequence;
    char note[60]; /* tt_comm_note */
};

struct tcp_comm {
    struct tt_comm base;
    struct line *line;
    uint32_t group;
    int32_t *members; /* [world_size]: ranks of the world */
};

static struct tcp_comm *tcp_of(struct tt_comm *comm)
{
    return (struct tcp_comm *)comm;
}

static tt_status fail_wire(struct line *line, enum tt_wire_result result)
{
    if (result == TT_WIRE_WOKEN) return tt_link_poll(line->link);
    return tt_link_lost(line->link);
}

static tt_status take_error(struct tcp_comm *comm, const struct tt_wire_header *header)
{
    struct line *line = comm->line;
    struct tt_error error;
    if (header->bytes != sizeof error) return tt_fail(TT_ERR_COMM, "rank 0 sent bytes that are no message");
    enum tt_wire_result result =
        tt_wire_receive(line->socket, tt_link_wake(line->link), &error, sizeof error, 0);
    if (result != TT_WIRE_OK) return fail_wire(line, result);
    tt_wire_clean_error(&error);
    /* The same frame comes on the control connection, with who tells it, and decides. */
    if (header->kind == TT_WIRE_ABORT) return tt_link_await_cause(line->link, header->parameter, &error);
    if (error.status != TT_OK) return tt_error_restore(&error);
    return tt_comm_fail_peer(header->parameter, &error);
}

/* One piece of a call: sends `parts`, which hold `header->bytes`; on TT_OK `header` is that of the result,
 * whose payload comes next. */
static tt_status exchange(struct tcp_comm *comm, struct tt_wire_header *header, struct iovec *parts,
                          int count)
{
    struct line *line = comm->line;
    int wake = tt_link_wake(line->link);
    header->magic = TT_WIRE_MAGIC;
    header->kind = TT_WIRE_CALL;
    header->group = comm->group;
    header->sequence = ++line->sequence;
    struct iovec head = {header, sizeof *header};
    TT_TRY(tt_link_poll(line->link));
    enum tt_wire_result result = tt_wire_send_parts(line->socket, wake, &head, 1, 0);
    if (result == TT_WIRE_OK && count > 0) result = tt_wire_send_parts(line->socket, wake, parts, count, 0);
    if (result == TT_WIRE_OK) result = tt_wire_receive(line->socket, wake, header, sizeof *header, 0);
    if (result != TT_WIRE_OK) return fail_wire(line, result);
    if (header->magic != TT_WIRE_MAGIC || header->sequence != line->sequence)
        return tt_fail(TT_ERR_COMM, "rank 0 sent bytes that are no message");
    if (header->kind == TT_WIRE_ERROR || header->kind == TT_WIRE_ABORT) return take_error(comm, header);
    if (header->kind != TT_WIRE_RESULT)
        return tt_fail(TT_ERR_COMM, "rank 0 answers a call with a frame of kind %u", header->kind);
    return TT_OK;
}

static tt_status expect(const struct tt_wire_header *header, size_t bytes)
{
    if (header->bytes == bytes) return TT_OK;
    return tt_fail(TT_ERR_COMM, "rank 0 answers a call with %llu bytes instead of %zu",
                   (unsigned long long)header->bytes, bytes);
}

static tt_status receive(struct tcp_comm *comm, void *to, size_t bytes)
{
    struct line *line = comm->line;
    enum tt_wire_result result = tt_wire_receive(line->socket, tt_link_wake(line->link), to, bytes, 0);
    return result == TT_WIRE_OK ? TT_OK : fail_wire(line, result);
}

/* Before the pieces of a call; what the rank does is known when it falls silent. */
static void begin(struct tcp_comm *comm, enum tt_wire_call call, size_t size)
{
    char doing[160];
    pthread_mutex_lock(&comm->line->mutex);
    const struct line *line = comm->line;
    snprintf(doing, sizeof doing, "rank %d, %s%s%s of %zu (message %llu)", line->rank, line->note,
             line->note[0] != '\0' ? ", " : "", tt_wire_call_name(call), size,
             (unsigned long long)line->sequence + 1);
    tt_link_say(comm->line->link, doing);
}

static tt_status end(struct tcp_comm *comm, tt_status status)
{
    pthread_mutex_unlock(&comm->line->mutex);
    return status;
}

static tt_status gather_pieces(struct tcp_comm *comm, const char *send, char *recv, size_t bytes)
{
    size_t world_size = (size_t)comm->base.world_size;
    size_t most = TT_WIRE_PIECE_BYTES / world_size;
    for (size_t done = 0; done < bytes; done += most) {
        size_t part = bytes - done < most ? bytes - done : most;
        struct tt_wire_header header = {
            .call = TT_WIRE_ALL_GATHER, .size = bytes, .offset = done, .bytes = part};
        struct iovec parts[1] = {{(void *)(uintptr_t)(send + done), part}};
        TT_TRY(exchange(comm, &header, parts, 1));
        TT_TRY(expect(&header, part * world_size));
        for (size_t q = 0; q < world_size; q++) TT_TRY(receive(comm, recv + q * bytes + done, part));
    }
    return TT_OK;
}

static tt_status tcp_all_gather(struct tt_comm *base, struct tt_stream *stream, const void *send, void *recv,
                                size_t bytes)
{
    (void)stream;
    begin(tcp_of(base), TT_WIRE_ALL_GATHER, bytes);
    return end(tcp_of(base), gather_pieces(tcp_of(base), send, recv, bytes));
}

static tt_status scatter_pieces(struct tcp_comm *comm, const char *send, char *recv, size_t count,
                                tt_dtype dtype)
{
    size_t world_size = (size_t)comm->base.world_size, element = tt_dtype_bytes(dtype);
    size_t most = TT_WIRE_PIECE_BYTES / world_size / element;
    struct iovec *parts = tt_calloc(world_size, sizeof *parts);
    tt_status status = parts != NULL ? TT_OK : TT_ERR_MEMORY;
    for (size_t done = 0; status == TT_OK && done < count; done += most) {
        size_t part = count - done < most ? count - done : most;
        struct tt_wire_header header = {.call = TT_WIRE_REDUCE_SCATTER,
                                        .size = count,
                                        .offset = done,
                                        .parameter = (int)dtype,
                                        .bytes = part * element * world_size};
        for (size_t q = 0; q < world_size; q++)
            parts[q] =
                (struct iovec){(void *)(uintptr_t)(send + (q * count + done) * element), part * element};
        status = exchange(comm, &header, parts, (int)world_size);
        if (status == TT_OK) status = expect(&header, part * element);
        if (status == TT_OK) status = receive(comm, recv + done * element, part * element);
    }
    tt_free(parts);
    return status;
}

static tt_status tcp_reduce_scatter(struct tt_comm *base, struct tt_stream *stream, const void *send,
                                    void *recv, size_t count, tt_dtype dtype)
{
    (void)stream;
    begin(tcp_of(base), TT_WIRE_REDUCE_SCATTER, count);
    return end(tcp_of(base), scatter_pieces(tcp_of(base), send, recv, count, dtype));
}

static tt_status reduce_pieces(struct tcp_comm *comm, char *data, size_t count, tt_dtype dtype,
                               enum tt_reduce reduce)
{
    size_t element = tt_dtype_bytes(dtype);
    size_t most = TT_WIRE_PIECE_BYTES / (size_t)comm->base.world_size / element;
    for (size_t done = 0; done < count; done += most) {
        size_t part = count - done < most ? count - done : most;
        struct tt_wire_header header = {.call = TT_WIRE_ALL_REDUCE,
                                        .size = count,
                                        .offset = done,
                                        .parameter = (int)dtype,
                                        .reduce = (int)reduce,
                                        .bytes = part * element};
        struct iovec parts[1] = {{data + done * element, part * element}};
        TT_TRY(exchange(comm, &header, parts, 1));
        TT_TRY(expect(&header, part * element));
        TT_TRY(receive(comm, data + done * element, part * element));
    }
    return TT_OK;
}

static tt_status tcp_all_reduce(struct tt_comm *base, struct tt_stream *stream, void *data, size_t count,
                                tt_dtype dtype, enum tt_reduce reduce)
{
    (void)stream;
    begin(tcp_of(base), TT_WIRE_ALL_REDUCE, count);
    return end(tcp_of(base), reduce_pieces(tcp_of(base), data, count, dtype, reduce));
}

static tt_status broadcast_pieces(struct tcp_comm *comm, char *data, size_t bytes, int root)
{
    bool sends = comm->base.rank == root;
    size_t most = TT_WIRE_PIECE_BYTES / (size_t)comm->base.world_size;
    for (size_t done = 0; done < bytes; done += most) {
        size_t part = bytes - done < most ? bytes - done : most;
        struct tt_wire_header header = {.call = TT_WIRE_BROADCAST,
                                        .size = bytes,
                                        .offset = done,
                                        .parameter = root,
                                        .bytes = sends ? part : 0};
        struct iovec parts[1] = {{data + done, part}};
        TT_TRY(exchange(comm, &header, parts, sends ? 1 : 0));
        TT_TRY(expect(&header, sends ? 0 : part));
        if (!sends) TT_TRY(receive(comm, data + done, part));
    }
    return TT_OK;
}

static tt_status tcp_broadcast(struct tt_comm *base, struct tt_stream *stream, void *data, size_t bytes,
                               int root)
{
    (void)stream;
    begin(tcp_of(base), TT_WIRE_BROADCAST, bytes);
    return end(tcp_of(base), broadcast_pieces(tcp_of(base), data, bytes, root));
}

static tt_status tcp_barrier(struct tt_comm *base)
{
    struct tt_wire_header header = {.call = TT_WIRE_BARRIER};
    begin(tcp_of(base), TT_WIRE_BARRIER, 0);
    tt_status status = exchange(tcp_of(base), &header, NULL, 0);
    return end(tcp_of(base), status == TT_OK ? expect(&header, 0) : status);
}

static void tcp_note(struct tt_comm *base, const char *text)
{
    struct line *line = tcp_of(base)->line;
    char doing[120];
    pthread_mutex_lock(&line->mutex);
    snprintf(line->note, sizeof line->note, "%s", text);
    snprintf(doing, sizeof doing, "rank %d, %s", line->rank, line->note);
    pthread_mutex_unlock(&line->mutex);
    tt_link_say(line->link, doing);
}

static tt_status tcp_poll(struct tt_comm *base)
{
    return tt_link_poll(tcp_of(base)->line->link);
}

static void tcp_abort(struct tt_comm *base)
{
    tt_link_abort(tcp_of(base)->line->link, tcp_of(base)->line->rank);
}

/* A farewell may not wait long: it is for the others' messages. */
static void take_leave(struct line *line, enum tt_wire_kind kind, uint32_t group)
{
    struct tt_wire_header header = {.magic = TT_WIRE_MAGIC, .kind = kind, .group = group};
    (void)tt_wire_send(line->socket, tt_link_wake(line->link), &header, NULL, 0);
}

static void line_release(struct line *line)
{
    if (--line->users > 0) return;
    take_leave(line, TT_WIRE_BYE, 0);
    close(line->socket);
    pthread_mutex_destroy(&line->mutex);
    tt_link_release(line->link);
    tt_free(line);
}

static void tcp_destroy(struct tt_comm *base)
{
    struct tcp_comm *comm = tcp_of(base);
    take_leave(comm->line, TT_WIRE_LEAVE, comm->group);
    line_release(comm->line);
    tt_free(comm->members);
    tt_free(comm);
}

static tt_status tcp_split(struct tt_comm *base, int color, struct tt_comm **out);

static const struct tt_comm_table tcp_table = {
    .kind = "tcp",
    .all_gather = tcp_all_gather,
    .reduce_scatter = tcp_reduce_scatter,
    .all_reduce = tcp_all_reduce,
    .broadcast = tcp_broadcast,
    .barrier = tcp_barrier,
    .poll = tcp_poll,
    .note = tcp_note,
    .split = tcp_split,
    .abort = tcp_abort,
    .destroy = tcp_destroy,
};

static struct tcp_comm *comm_create(struct line *line, int world_size)
{
    struct tcp_comm *comm = tt_calloc(1, sizeof *comm);
    if (comm == NULL) return NULL;
    comm->members = tt_calloc((size_t)world_size, sizeof *comm->members);
    if (comm->members == NULL) {
        tt_free(comm);
        return NULL;
    }
    comm->base = (struct tt_comm){.table = &tcp_table, .world_size = world_size};
    comm->line = line;
    line->users++;
    return comm;
}

/* From members[]: the own rank, and how many share this machine. */
static tt_status describe(struct tcp_comm *comm, const int *machines, int world_ranks)
{
    int own = comm->line->rank;
    comm->base.rank = -1;
    for (int i = 0; i < comm->base.world_size; i++) {
        int member = comm->members[i];
        if (member < 0 || member >= world_ranks) break;
        if (member == own) comm->base.rank = i;
        comm->base.local_size += machines[member] == machines[own];
    }
    return comm->base.rank >= 0 ? TT_OK : tt_fail(TT_ERR_COMM, "rank 0 sent a group without rank %d", own);
}

static tt_status split_group(struct tcp_comm *parent, int color, struct tcp_comm **out)
{
    struct tt_wire_header header = {.call = TT_WIRE_SPLIT, .parameter = color};
    TT_TRY(exchange(parent, &header, NULL, 0));
    if (header.bytes == 0 || header.bytes % sizeof(int32_t) != 0 ||
        header.bytes > (uint64_t)parent->base.world_size * sizeof(int32_t))
        return expect(&header, sizeof(int32_t));
    struct tcp_comm *comm = comm_create(parent->line, (int)(header.bytes / sizeof(int32_t)));
    if (comm == NULL) return TT_ERR_MEMORY;
    comm->group = (uint32_t)header.parameter;
    *out = comm;
    return receive(parent, comm->members, (size_t)header.bytes);
}

static tt_status tcp_split(struct tt_comm *base, int color, struct tt_comm **out)
{
    struct tcp_comm *parent = tcp_of(base), *comm = NULL;
    begin(parent, TT_WIRE_SPLIT, 0);
    tt_status status = end(parent, split_group(parent, color, &comm));
    int world_ranks = 0;
    for (int i = 0; i < base->world_size; i++)
        if (parent->members[i] >= world_ranks) world_ranks = parent->members[i] + 1;
    if (status == TT_OK) status = describe(comm, tt_link_machines(parent->line->link), world_ranks);
    if (status != TT_OK) {
        if (comm != NULL) tcp_destroy(&comm->base);
        return status;
    }
    *out = &comm->base;
    return TT_OK;
}

/* Takes `socket`, also on failure, and on success one use of the link. */
static tt_status create_rank(const struct tt_tcp_config *config, struct tt_link *link, int rank, int socket,
                             struct tt_comm **out)
{
    struct line *line = tt_calloc(1, sizeof *line);
    struct tcp_comm *comm = line != NULL ? comm_create(line, config->world_size) : NULL;
    if (comm == NULL) {
        close(socket);
        tt_free(line);
        return TT_ERR_MEMORY;
    }
    pthread_mutex_init(&line->mutex, NULL);
    line->link = link;
    line->socket = socket;
    line->rank = rank;
    tt_link_use(link);
    for (int q = 0; q < config->world_size; q++) comm->members[q] = q;
    tt_status status = describe(comm, tt_link_machines(link), config->world_size);
    if (status != TT_OK) {
        tcp_destroy(&comm->base);
        return status;
    }
    *out = &comm->base;
    return TT_OK;
}

tt_status tt_comm_create_tcp(const struct tt_tcp_config *config, struct tt_comm **out, int *machines)
{
    struct tt_link *link = NULL;
    struct tt_tcp_config full = *config;
    int made = 0;
    if (full.timeout_seconds <= 0) full.timeout_seconds = 300;
    if (full.local_count < 1 || full.first_rank < 0 || full.world_size < full.first_rank + full.local_count ||
        full.world_size > TT_WIRE_PIECE_BYTES / 64)
        return tt_fail(TT_ERR_USAGE, "%d ranks from rank %d in a world of %d cannot be", full.local_count,
                       full.first_rank, full.world_size);
    int *sockets = tt_calloc((size_t)full.local_count, sizeof *sockets);
    if (sockets == NULL) return TT_ERR_MEMORY;
    tt_status status = tt_link_create(&full, &link, sockets);
    if (status == TT_OK) {
        for (; made < full.local_count && status == TT_OK; made++)
            status = create_rank(&full, link, full.first_rank + made, sockets[made], &out[made]);
        for (int r = made; r < full.local_count; r++) close(sockets[r]);
        for (int r = 0; r < made - 1 && status != TT_OK; r++) tt_comm_destroy(out[r]);
        if (status == TT_OK)
            memcpy(machines, tt_link_machines(link), (size_t)full.world_size * sizeof *machines);
        tt_link_release(link);
    }
    if (status != TT_OK) tt_while("meeting the other processes of the run");
    tt_free(sockets);
    return status;
}
