/* One exchange over the data lines of a rank. It sends to all ranks and receives from all ranks at the same time and
 * never waits for one of them alone, so it cannot deadlock. A rank sends one frame on each line, even without payload:
 * all ranks receive all orders and compare them. A frame with another order is read to its end, so that the next call
 * starts at a frame. */
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include "base/number.h"
#include "comm/tcp_impl.h"
#include "comm/wire.h"

enum {
    SEND_BYTES = 1 << 20, /* in one system call, so that sends and receives alternate */
    POLL_MS = 1000,
    SILENCE_MS = 20000, /* a line without acknowledgements for this long is lost */
    SENT_AGAIN = 3,     /* retransmissions before a line counts as silent */
};

/* The progress of one exchange. */
struct progress {
    struct tcp_comm *comm;
    const struct tt_comm_exchange *exchange;
    struct tt_line_transfer *transfers; /* [count] */
    int count;
    bool unequal;      /* the ranks' orders differ: received payloads are dropped */
    uint64_t consumed; /* bytes of each rank that `consume` has seen */
    uint64_t wanted;   /* bytes of each rank for `consume` */
};

static bool is_sent(const struct tt_line_transfer *transfer)
{
    return transfer->sent == transfer->send_bytes;
}

static bool is_received(const struct tt_line_transfer *transfer)
{
    return transfer->in_have == sizeof transfer->in && transfer->received == transfer->in.bytes;
}

/* Bytes of the payload that can be stored now. */
static size_t bytes_acceptable(const struct progress *progress, const struct tt_line_transfer *transfer)
{
    size_t slot = progress->comm->endpoint->slot_bytes;
    uint64_t left = transfer->in.bytes - transfer->received;
    if (progress->unequal) return left < 2 * slot ? (size_t)left : 2 * slot;
    if (progress->exchange->consume == NULL) return (size_t)left;
    if (transfer->received >= progress->consumed + 2 * slot) return 0;
    size_t in_slot = slot - (size_t)(transfer->received % slot);
    return left < in_slot ? (size_t)left : in_slot;
}

static bool wants_to_read(const struct progress *progress, const struct tt_line_transfer *transfer)
{
    return transfer->in_have < sizeof transfer->in ||
           (transfer->received < transfer->in.bytes && bytes_acceptable(progress, transfer) > 0);
}

static char *slot_of(const struct progress *progress, int transfer, uint64_t offset)
{
    const struct tt_endpoint *endpoint = progress->comm->endpoint;
    size_t slot = endpoint->slot_bytes;
    return endpoint->staging + ((size_t)transfer * 2 + (size_t)(offset / slot % 2)) * slot +
           (size_t)(offset % slot);
}

/* ---- Failures ---- */

/* Error of a closed line. Usually its rank has failed, and its error arrives soon over the control connection. */
static tt_status fail_lost(const struct progress *progress, const struct tt_line_transfer *transfer,
                           const char *why)
{
    const struct tt_endpoint *endpoint = progress->comm->endpoint;
    TT_TRY(tt_link_await_cause(endpoint->link));
    tt_fail(TT_ERR_COMM, "the connection between rank %d and rank %d is lost: %s", endpoint->rank,
            transfer->peer, why);
    tt_hint("a machine or its network failed, or something between the two closes connections");
    return TT_ERR_COMM;
}

static tt_status fail_bytes(const struct tt_line_transfer *transfer)
{
    return tt_fail(TT_ERR_COMM, "rank %d sent bytes that are not a message", transfer->peer);
}

static tt_status fail_departed(const struct tcp_comm *comm)
{
    struct tt_error none = {0};
    if (comm->departed_after_failure) TT_TRY(tt_link_await_cause(comm->endpoint->link));
    return tt_comm_fail_peer(comm->departed, &none);
}

/* Checks that the other end acknowledges sent bytes. A slow receiver with a full buffer does acknowledge. The system
 * doubles its wait before each retransmission, so the waits so far add up to the current one (tcpi_rto). */
static tt_status check_line(const struct progress *progress, const struct tt_line_transfer *transfer)
{
    struct tcp_info info;
    socklen_t bytes = sizeof info;
    if (getsockopt(transfer->socket, IPPROTO_TCP, TCP_INFO, &info, &bytes) != 0) return TT_OK;
    if (info.tcpi_unacked == 0 || info.tcpi_retransmits < SENT_AGAIN ||
        info.tcpi_rto / 1000 + info.tcpi_last_data_sent < SILENCE_MS)
        return TT_OK;
    return fail_lost(progress, transfer, "the other end acknowledges nothing");
}

/* ---- Sending ---- */

/* false: the socket accepts no more bytes now. */
static bool send_some(struct tt_line_transfer *transfer)
{
    struct iovec parts[2];
    int count = 0;
    size_t payload = transfer->sent > sizeof transfer->out ? transfer->sent - sizeof transfer->out : 0;
    size_t left = transfer->part->send_bytes - payload;
    if (transfer->sent < sizeof transfer->out)
        parts[count++] =
            (struct iovec){(char *)&transfer->out + transfer->sent, sizeof transfer->out - transfer->sent};
    if (left > 0)
        parts[count++] = (struct iovec){(char *)(uintptr_t)transfer->part->send + payload,
                                        left < SEND_BYTES ? left : SEND_BYTES};
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = (size_t)count};
    ssize_t sent = sendmsg(transfer->socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent > 0) transfer->sent += (size_t)sent;
    if (sent > 0 || errno == EINTR) return true;
    transfer->writable = false;
    /* The rank has closed the line. Its last frames are still to be read, and explain more. */
    if (errno != EAGAIN && errno != EWOULDBLOCK) transfer->sent = transfer->send_bytes;
    return false;
}

/* ---- Receiving ---- */

static tt_status handle_leave(struct progress *progress, struct tt_line_transfer *transfer)
{
    for (struct tcp_comm *comm = progress->comm->endpoint->comms; comm != NULL; comm = comm->next) {
        if (comm->group != transfer->in.group || comm->departed >= 0) continue;
        comm->departed = transfer->peer;
        comm->departed_after_failure = transfer->in.order.parameter != 0;
    }
    transfer->in_have = 0; /* the next frame follows */
    return progress->comm->departed >= 0 ? fail_departed(progress->comm) : TT_OK;
}

static tt_status handle_frame(struct progress *progress, struct tt_line_transfer *transfer)
{
    const struct tt_line_frame *in = &transfer->in;
    if (in->magic != TT_WIRE_MAGIC) return fail_bytes(transfer);
    if (in->kind == TT_LINE_LEAVE && in->bytes == 0) return handle_leave(progress, transfer);
    if (in->kind != TT_LINE_CALL || in->order.call >= TT_CALL_COUNT) return fail_bytes(transfer);
    if (in->group != progress->comm->group || in->sequence != progress->comm->sequence)
        return tt_fail(TT_ERR_COMM, "rank %d calls %s in another group than this rank", transfer->peer,
                       tt_comm_call_name(in->order.call));
    struct tt_error record;
    tt_error_copy(&record);
    if (tt_comm_check_order(&progress->exchange->order, &in->order, 0) != TT_OK) {
        (void)!tt_error_restore(&record);
        progress->unequal = true;
    } else if (in->bytes != transfer->part->recv_bytes) {
        const struct tt_comm_part theirs = {.send_bytes = (size_t)in->bytes};
        if (in->order.call != TT_CALL_EXCHANGE) return fail_bytes(transfer);
        return tt_comm_check_sizes(progress->comm->endpoint->rank, transfer->part, &theirs, transfer->peer);
    }
    return TT_OK;
}

static tt_status receive_some(struct progress *progress, struct tt_line_transfer *transfer, bool *moved)
{
    struct tt_endpoint *endpoint = progress->comm->endpoint;
    bool in_frame = transfer->in_have < sizeof transfer->in;
    size_t room = in_frame ? sizeof transfer->in - transfer->in_have : bytes_acceptable(progress, transfer);
    char *to = (char *)&transfer->in + transfer->in_have;
    if (!in_frame && progress->unequal)
        to = endpoint->staging;
    else if (!in_frame && progress->exchange->consume == NULL)
        to = (char *)transfer->part->recv + transfer->received;
    else if (!in_frame)
        to = slot_of(progress, (int)(transfer - progress->transfers), transfer->received);
    ssize_t got = recv(transfer->socket, to, room, MSG_DONTWAIT);
    if (got < 0 && errno == EINTR) return TT_OK;
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
        transfer->readable = false;
        return TT_OK;
    }
    if (got <= 0)
        return fail_lost(progress, transfer, got == 0 ? "the other end closed it" : tt_errno_text(errno));
    *moved = true;
    if ((size_t)got < room) transfer->readable = false;
    if (!in_frame) {
        transfer->received += (uint64_t)got;
        return TT_OK;
    }
    transfer->in_have += (size_t)got;
    return transfer->in_have == sizeof transfer->in ? handle_frame(progress, transfer) : TT_OK;
}

/* Passes the pieces that have arrived from all ranks to `consume`. */
static void consume_pieces(struct progress *progress)
{
    const struct tt_comm_exchange *exchange = progress->exchange;
    struct tt_endpoint *endpoint = progress->comm->endpoint;
    while (!progress->unequal && progress->consumed < progress->wanted) {
        uint64_t end = progress->consumed + endpoint->slot_bytes;
        if (end > progress->wanted) end = progress->wanted;
        for (int i = 0; i < progress->count; i++)
            if (progress->transfers[i].received < end) return;
        for (int i = 0; i < progress->count; i++) {
            int q = (int)(progress->transfers[i].part - exchange->parts);
            endpoint->sources[q] = slot_of(progress, i, progress->consumed);
        }
        int own = progress->comm->base.rank;
        endpoint->sources[own] = (const char *)exchange->parts[own].send + progress->consumed;
        exchange->consume(exchange->context, endpoint->sources, (size_t)progress->consumed,
                          (size_t)(end - progress->consumed));
        progress->consumed = end;
    }
}

/* ---- All together ---- */

/* Waits until something can be sent or received, or a rank has failed. */
static tt_status wait_for_events(struct progress *progress)
{
    struct tt_endpoint *endpoint = progress->comm->endpoint;
    struct pollfd *files = endpoint->files;
    files[0] = (struct pollfd){.fd = tt_link_wake(endpoint->link), .events = POLLIN};
    for (int i = 0; i < progress->count; i++) {
        const struct tt_line_transfer *transfer = &progress->transfers[i];
        short events = 0;
        if (!is_sent(transfer)) events |= POLLOUT;
        if (wants_to_read(progress, transfer)) events |= POLLIN;
        files[1 + i] = (struct pollfd){.fd = events != 0 ? transfer->socket : -1, .events = events};
    }
    int ready = poll(files, (nfds_t)progress->count + 1, POLL_MS);
    if (ready < 0 && errno != EINTR) return tt_fail_errno(errno, "cannot wait for the other ranks");
    if (ready > 0 && files[0].revents != 0) TT_TRY(tt_link_poll(endpoint->link));
    for (int i = 0; i < progress->count; i++) {
        struct tt_line_transfer *transfer = &progress->transfers[i];
        if (ready > 0) {
            transfer->writable = transfer->writable || (files[1 + i].revents & ~POLLIN) != 0;
            transfer->readable = transfer->readable || (files[1 + i].revents & ~POLLOUT) != 0;
        } else if (files[1 + i].fd >= 0) {
            TT_TRY(check_line(progress, transfer));
        }
    }
    return TT_OK;
}

static tt_status move(struct progress *progress)
{
    for (;;) {
        bool moved = false, over = true;
        for (int i = 0; i < progress->count; i++) {
            struct tt_line_transfer *transfer = &progress->transfers[i];
            if (transfer->writable && !is_sent(transfer)) moved |= send_some(transfer);
            if (transfer->readable && wants_to_read(progress, transfer))
                TT_TRY(receive_some(progress, transfer, &moved));
        }
        consume_pieces(progress);
        for (int i = 0; i < progress->count && over; i++)
            over = is_sent(&progress->transfers[i]) && is_received(&progress->transfers[i]);
        if (over && (progress->unequal || progress->consumed == progress->wanted)) return TT_OK;
        if (!moved) TT_TRY(wait_for_events(progress));
    }
}

/* Lists the transfers, beginning with the next rank, so that ranks do not all send to the same one first. */
static void begin(struct progress *progress)
{
    struct tcp_comm *comm = progress->comm;
    const struct tt_comm_exchange *exchange = progress->exchange;
    for (int step = 1; step < comm->base.world_size; step++) {
        int q = (comm->base.rank + step) % comm->base.world_size;
        const struct tt_comm_part *part = &exchange->parts[q];
        struct tt_line_transfer *transfer = &progress->transfers[progress->count++];
        *transfer = (struct tt_line_transfer){.peer = comm->members[q],
                                              .socket = comm->endpoint->lines[comm->members[q]],
                                              .part = part,
                                              .out = {.magic = TT_WIRE_MAGIC,
                                                      .kind = TT_LINE_CALL,
                                                      .group = comm->group,
                                                      .sequence = comm->sequence,
                                                      .order = exchange->order,
                                                      .bytes = part->send_bytes},
                                              .send_bytes = sizeof transfer->out + part->send_bytes,
                                              .writable = true};
    }
}

/* Reports the differing orders, when all frames have arrived. */
static tt_status check_orders(const struct progress *progress)
{
    const struct tt_comm *base = &progress->comm->base;
    const struct tt_comm_order *first = &progress->exchange->order;
    if (base->rank != 0) first = &progress->transfers[base->world_size - base->rank - 1].in.order;
    for (int q = 1; q < base->world_size; q++) {
        int transfer = (q - base->rank + base->world_size) % base->world_size - 1;
        TT_TRY(tt_comm_check_order(
            first, transfer < 0 ? &progress->exchange->order : &progress->transfers[transfer].in.order, q));
    }
    return TT_OK;
}

tt_status tt_endpoint_exchange(struct tcp_comm *comm, const struct tt_comm_exchange *exchange)
{
    struct tt_endpoint *endpoint = comm->endpoint;
    struct progress progress = {.comm = comm, .exchange = exchange, .transfers = endpoint->transfers};
    TT_TRY(tt_link_poll(endpoint->link));
    if (comm->departed >= 0) return fail_departed(comm);
    if (endpoint->failed)
        return tt_fail(TT_ERR_COMM, "the connections of rank %d are unusable after a failed call",
                       endpoint->rank);
    comm->sequence++;
    if (exchange->consume != NULL) progress.wanted = exchange->parts[comm->base.rank].recv_bytes;
    begin(&progress);
    tt_status status = move(&progress);
    if (status == TT_OK) return progress.unequal ? check_orders(&progress) : TT_OK;
    endpoint->failed = true;
    for (int i = 0; i < progress.count; i++)
        if (progress.transfers[i].sent > 0 && !is_sent(&progress.transfers[i]))
            endpoint->torn[progress.transfers[i].peer] = true;
    return status;
}

void tt_endpoint_leave(struct tcp_comm *comm)
{
    struct tt_endpoint *endpoint = comm->endpoint;
    struct tt_error record;
    tt_error_copy(&record);
    struct tt_line_frame frame = {
        .magic = TT_WIRE_MAGIC,
        .kind = TT_LINE_LEAVE,
        .group = comm->group,
        .order = {.parameter = tt_link_poll(endpoint->link) != TT_OK},
    };
    (void)!tt_error_restore(&record);
    for (int q = 0; q < comm->base.world_size; q++) {
        int peer = comm->members[q];
        if (peer == endpoint->rank || endpoint->torn[peer]) continue;
        ssize_t sent = send(endpoint->lines[peer], &frame, sizeof frame, MSG_NOSIGNAL | MSG_DONTWAIT);
        endpoint->torn[peer] = sent >= 0 && sent != (ssize_t)sizeof frame;
    }
}
