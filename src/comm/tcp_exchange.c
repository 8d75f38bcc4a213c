/* One exchange over the data lines of a rank. It sends to all and receives from all at once and never waits
 * for one of them alone; so no order of sending can block. A rank sends one frame on each line, also where it
 * has nothing to send: all ranks see all orders, and compare them. Frames of another order are read to their
 * end, so that the next call begins where it should. */
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "base/number.h"
#include "comm/tcp_impl.h"
#include "comm/wire.h"

enum {
    SEND_BYTES = 1 << 20, /* in one call of the system, so that receiving gets its turn */
    POLL_MS = 1000,
    SILENCE_MS = 20000, /* without an answer to what was sent: the line is cut */
    SENT_AGAIN = 3,     /* as often, by then */
};

struct run {
    struct tcp_comm *comm;
    const struct tt_comm_exchange *exchange;
    struct tt_line_way *ways; /* [count] */
    int count;
    bool unequal;    /* not all ranks gave the same order: what comes is dropped */
    uint64_t taken;  /* of what is looked at */
    uint64_t wanted; /* bytes that are looked at, of each rank */
};

static bool is_sent(const struct tt_line_way *way)
{
    return way->sent == way->send_bytes;
}

static bool is_received(const struct tt_line_way *way)
{
    return way->in_have == sizeof way->in && way->received == way->in.bytes;
}

/* How much of what comes on this line has a place now. */
static size_t room_of(const struct run *run, const struct tt_line_way *way)
{
    size_t slot = run->comm->station->slot_bytes;
    uint64_t left = way->in.bytes - way->received;
    if (run->unequal) return left < 2 * slot ? (size_t)left : 2 * slot;
    if (run->exchange->take == NULL) return (size_t)left;
    if (way->received >= run->taken + 2 * slot) return 0;
    size_t in_slot = slot - (size_t)(way->received % slot);
    return left < in_slot ? (size_t)left : in_slot;
}

static bool wants_to_read(const struct run *run, const struct tt_line_way *way)
{
    return way->in_have < sizeof way->in || (way->received < way->in.bytes && room_of(run, way) > 0);
}

static char *slot_of(const struct run *run, int way, uint64_t offset)
{
    const struct tt_station *station = run->comm->station;
    size_t slot = station->slot_bytes;
    return station->staging + ((size_t)way * 2 + (size_t)(offset / slot % 2)) * slot +
           (size_t)(offset % slot);
}

/* ---- What goes wrong ---- */

/* The line has ended: mostly its rank has, and the word of it is on its way. */
static tt_status fail_lost(const struct run *run, const struct tt_line_way *way, const char *why)
{
    const struct tt_station *station = run->comm->station;
    TT_TRY(tt_link_await_word(station->link));
    tt_fail(TT_ERR_COMM, "the connection between rank %d and rank %d is lost: %s", station->rank, way->peer,
            why);
    tt_hint("a machine or its network failed, or something between the two closes connections");
    return TT_ERR_COMM;
}

static tt_status fail_bytes(const struct tt_line_way *way)
{
    return tt_fail(TT_ERR_COMM, "rank %d sent bytes that are no message", way->peer);
}

static tt_status fail_departed(const struct tcp_comm *comm)
{
    struct tt_error none = {0};
    if (comm->departed_for) TT_TRY(tt_link_await_word(comm->station->link));
    return tt_comm_fail_peer(comm->departed, &none);
}

/* Whether what was sent on a line is answered at all. A receiver that has no room answers; then nothing is
 * unanswered. The system waits twice as long before each next attempt: all of it together is as long as it
 * will wait now. */
static tt_status check_line(const struct run *run, const struct tt_line_way *way)
{
    struct tcp_info info;
    socklen_t bytes = sizeof info;
    if (getsockopt(way->socket, IPPROTO_TCP, TCP_INFO, &info, &bytes) != 0) return TT_OK;
    if (info.tcpi_unacked == 0 || info.tcpi_retransmits < SENT_AGAIN ||
        info.tcpi_rto / 1000 + info.tcpi_last_data_sent < SILENCE_MS)
        return TT_OK;
    return fail_lost(run, way, "nothing that is sent there is answered");
}

/* ---- Sending ---- */

/* false: no more can be sent now. */
static bool send_some(struct tt_line_way *way)
{
    struct iovec parts[2];
    int count = 0;
    size_t payload = way->sent > sizeof way->out ? way->sent - sizeof way->out : 0;
    size_t left = way->part->send_bytes - payload;
    if (way->sent < sizeof way->out)
        parts[count++] = (struct iovec){(char *)&way->out + way->sent, sizeof way->out - way->sent};
    if (left > 0)
        parts[count++] = (struct iovec){(char *)(uintptr_t)way->part->send + payload,
                                        left < SEND_BYTES ? left : SEND_BYTES};
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = (size_t)count};
    ssize_t sent = sendmsg(way->socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent > 0) way->sent += (size_t)sent;
    if (sent > 0 || errno == EINTR) return true;
    way->writable = false;
    /* Its rank is gone. What it said before that is still to be read, and says more. */
    if (errno != EAGAIN && errno != EWOULDBLOCK) way->sent = way->send_bytes;
    return false;
}

/* ---- Receiving ---- */

static tt_status take_leave(struct run *run, struct tt_line_way *way)
{
    for (struct tcp_comm *comm = run->comm->station->comms; comm != NULL; comm = comm->next) {
        if (comm->group != way->in.group || comm->departed >= 0) continue;
        comm->departed = way->peer;
        comm->departed_for = way->in.order.parameter != 0;
    }
    way->in_have = 0; /* the next frame */
    return run->comm->departed >= 0 ? fail_departed(run->comm) : TT_OK;
}

static tt_status take_frame(struct run *run, struct tt_line_way *way)
{
    const struct tt_line_frame *in = &way->in;
    if (in->magic != TT_WIRE_MAGIC) return fail_bytes(way);
    if (in->kind == TT_LINE_LEAVE && in->bytes == 0) return take_leave(run, way);
    if (in->kind != TT_LINE_CALL || in->order.call >= TT_CALL_COUNT) return fail_bytes(way);
    if (in->group != run->comm->group || in->sequence != run->comm->sequence)
        return tt_fail(TT_ERR_COMM, "rank %d calls %s in another group than this rank", way->peer,
                       tt_comm_call_name(in->order.call));
    struct tt_error record;
    tt_error_copy(&record);
    if (tt_comm_check_order(&run->exchange->order, &in->order, 0) != TT_OK) {
        (void)!tt_error_restore(&record);
        run->unequal = true;
    } else if (in->bytes != way->part->recv_bytes) {
        return fail_bytes(way);
    }
    return TT_OK;
}

static tt_status receive_some(struct run *run, struct tt_line_way *way, bool *moved)
{
    struct tt_station *station = run->comm->station;
    bool in_frame = way->in_have < sizeof way->in;
    size_t room = in_frame ? sizeof way->in - way->in_have : room_of(run, way);
    char *to = (char *)&way->in + way->in_have;
    if (!in_frame && run->unequal)
        to = station->staging;
    else if (!in_frame && run->exchange->take == NULL)
        to = (char *)way->part->recv + way->received;
    else if (!in_frame)
        to = slot_of(run, (int)(way - run->ways), way->received);
    ssize_t got = recv(way->socket, to, room, MSG_DONTWAIT);
    if (got < 0 && errno == EINTR) return TT_OK;
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
        way->readable = false;
        return TT_OK;
    }
    if (got <= 0) return fail_lost(run, way, got == 0 ? "the other end closed it" : tt_errno_text(errno));
    *moved = true;
    if ((size_t)got < room) way->readable = false;
    if (!in_frame) {
        way->received += (uint64_t)got;
        return TT_OK;
    }
    way->in_have += (size_t)got;
    return way->in_have == sizeof way->in ? take_frame(run, way) : TT_OK;
}

/* Looks at the next pieces that are here of all ranks. */
static void take_pieces(struct run *run)
{
    const struct tt_comm_exchange *exchange = run->exchange;
    struct tt_station *station = run->comm->station;
    while (!run->unequal && run->taken < run->wanted) {
        uint64_t end = run->taken + station->slot_bytes;
        if (end > run->wanted) end = run->wanted;
        for (int i = 0; i < run->count; i++)
            if (run->ways[i].received < end) return;
        for (int i = 0; i < run->count; i++) {
            int q = (int)(run->ways[i].part - exchange->parts);
            station->sources[q] = slot_of(run, i, run->taken);
        }
        int own = run->comm->base.rank;
        station->sources[own] = (const char *)exchange->parts[own].send + run->taken;
        exchange->take(exchange->context, station->sources, (size_t)run->taken, (size_t)(end - run->taken));
        run->taken = end;
    }
}

/* ---- All together ---- */

/* Waits until something can be sent or received, or a rank has failed. */
static tt_status wait_for_events(struct run *run)
{
    struct tt_station *station = run->comm->station;
    struct pollfd *files = station->files;
    files[0] = (struct pollfd){.fd = tt_link_wake(station->link), .events = POLLIN};
    for (int i = 0; i < run->count; i++) {
        const struct tt_line_way *way = &run->ways[i];
        short events = 0;
        if (!is_sent(way)) events |= POLLOUT;
        if (wants_to_read(run, way)) events |= POLLIN;
        files[1 + i] = (struct pollfd){.fd = events != 0 ? way->socket : -1, .events = events};
    }
    int ready = poll(files, (nfds_t)run->count + 1, POLL_MS);
    if (ready < 0 && errno != EINTR) return tt_fail_errno(errno, "cannot wait for the other ranks");
    if (ready > 0 && files[0].revents != 0) TT_TRY(tt_link_poll(station->link));
    for (int i = 0; i < run->count; i++) {
        struct tt_line_way *way = &run->ways[i];
        if (ready > 0) {
            way->writable = way->writable || (files[1 + i].revents & ~POLLIN) != 0;
            way->readable = way->readable || (files[1 + i].revents & ~POLLOUT) != 0;
        } else if (files[1 + i].fd >= 0) {
            TT_TRY(check_line(run, way));
        }
    }
    return TT_OK;
}

static tt_status move(struct run *run)
{
    for (;;) {
        bool moved = false, over = true;
        for (int i = 0; i < run->count; i++) {
            struct tt_line_way *way = &run->ways[i];
            if (way->writable && !is_sent(way)) moved |= send_some(way);
            if (way->readable && wants_to_read(run, way)) TT_TRY(receive_some(run, way, &moved));
        }
        take_pieces(run);
        for (int i = 0; i < run->count && over; i++)
            over = is_sent(&run->ways[i]) && is_received(&run->ways[i]);
        if (over && (run->unequal || run->taken == run->wanted)) return TT_OK;
        if (!moved) TT_TRY(wait_for_events(run));
    }
}

/* Beginning with the next rank and going round, so that not all send to the same one. */
static void begin(struct run *run)
{
    struct tcp_comm *comm = run->comm;
    const struct tt_comm_exchange *exchange = run->exchange;
    for (int step = 1; step < comm->base.world_size; step++) {
        int q = (comm->base.rank + step) % comm->base.world_size;
        const struct tt_comm_part *part = &exchange->parts[q];
        struct tt_line_way *way = &run->ways[run->count++];
        *way = (struct tt_line_way){.peer = comm->members[q],
                                    .socket = comm->station->lines[comm->members[q]],
                                    .part = part,
                                    .out = {.magic = TT_WIRE_MAGIC,
                                            .kind = TT_LINE_CALL,
                                            .group = comm->group,
                                            .sequence = comm->sequence,
                                            .order = exchange->order,
                                            .bytes = part->send_bytes},
                                    .send_bytes = sizeof way->out + part->send_bytes,
                                    .writable = true};
    }
}

/* All frames are here; which orders differ. */
static tt_status check_orders(const struct run *run)
{
    const struct tt_comm *base = &run->comm->base;
    const struct tt_comm_order *first = &run->exchange->order;
    if (base->rank != 0) first = &run->ways[base->world_size - base->rank - 1].in.order;
    for (int q = 1; q < base->world_size; q++) {
        int way = (q - base->rank + base->world_size) % base->world_size - 1;
        TT_TRY(tt_comm_check_order(first, way < 0 ? &run->exchange->order : &run->ways[way].in.order, q));
    }
    return TT_OK;
}

tt_status tt_station_exchange(struct tcp_comm *comm, const struct tt_comm_exchange *exchange)
{
    struct tt_station *station = comm->station;
    struct run run = {.comm = comm, .exchange = exchange, .ways = station->ways};
    TT_TRY(tt_link_poll(station->link));
    if (comm->departed >= 0) return fail_departed(comm);
    if (station->failed)
        return tt_fail(TT_ERR_COMM, "the connections of rank %d are of no more use", station->rank);
    comm->sequence++;
    if (exchange->take != NULL) run.wanted = exchange->parts[comm->base.rank].recv_bytes;
    begin(&run);
    tt_status status = move(&run);
    if (status == TT_OK) return run.unequal ? check_orders(&run) : TT_OK;
    station->failed = true;
    for (int i = 0; i < run.count; i++)
        if (run.ways[i].sent > 0 && !is_sent(&run.ways[i])) station->torn[run.ways[i].peer] = true;
    return status;
}

void tt_station_leave(struct tcp_comm *comm)
{
    struct tt_station *station = comm->station;
    struct tt_error record;
    tt_error_copy(&record);
    struct tt_line_frame frame = {
        .magic = TT_WIRE_MAGIC,
        .kind = TT_LINE_LEAVE,
        .group = comm->group,
        .order = {.parameter = tt_link_poll(station->link) != TT_OK},
    };
    (void)!tt_error_restore(&record);
    for (int q = 0; q < comm->base.world_size; q++) {
        int peer = comm->members[q];
        if (peer == station->rank || station->torn[peer]) continue;
        ssize_t sent = send(station->lines[peer], &frame, sizeof frame, MSG_NOSIGNAL | MSG_DONTWAIT);
        station->torn[peer] = sent >= 0 && sent != (ssize_t)sizeof frame;
    }
}
