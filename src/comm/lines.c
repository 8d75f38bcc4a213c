#include "comm/lines.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/number.h"
#include "comm/door.h"

enum {
    CALLS_AT_ONCE = 64, /* connections of this process on their way */
    CALL_SECONDS = 10,  /* of one attempt */
    LINES_SECONDS = 30, /* of all of them */
    ANSWER_SECONDS = 5, /* by which those that wait to be called give up later: the others know more */
    POLL_MS = 250,
    FILES_OF_PROGRAM = 32,  /* descriptors besides the lines */
    BUFFER_BYTES = 1 << 20, /* between ranks of one process */
    /* A line on which nothing travels is asked after this time, that often, and is then cut. */
    IDLE_SECONDS = 8,
    ASK_SECONDS = 4,
    ASK_COUNT = 3,
};
static const double again_seconds = 0.05;

enum call_stage { CALL_WAITS, CALL_CONNECTS, CALL_CHALLENGE, CALL_SUM, CALL_DONE };

/* A line that this process opens. */
struct call {
    int from, to;
    enum call_stage stage;
    int socket; /* -1 unless it is on its way */
    int slot;   /* in files[] */
    struct tt_proof proof;
    unsigned char sum[TT_PROOF_SUM_BYTES];
    size_t have;
    double since; /* CALL_WAITS: not before this time */
};

/* One that another process opens. */
struct guest {
    struct tt_guest base;
    int slot;
    struct tt_line_hello hello;
    size_t have;
};

struct joining {
    const struct tt_lines_config *config;
    int *lines;
    size_t missing; /* of them */
    struct call *calls;
    size_t call_count, on_their_way;
    struct guest *guests; /* [TT_DOOR_GUESTS_MAX] */
    size_t guest_count;
    struct tt_door door;
    struct pollfd *files;
    double now;
    int blamed; /* the rank that was called in vain last, and why */
    char why[160];
};

size_t tt_lines_count(int world_size, int local_count)
{
    return (size_t)local_count * (size_t)(world_size - 1);
}

void tt_lines_close(int *lines, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (lines[i] >= 0) close(lines[i]);
        lines[i] = -1;
    }
}

static int *line_of(struct joining *joining, int local_rank, int other)
{
    const struct tt_lines_config *config = joining->config;
    return &joining->lines[(size_t)(local_rank - config->first_rank) * (size_t)config->world_size +
                           (size_t)other];
}

/* A line is there. Its other end may be gone, or cut off, while nothing travels. */
static void keep(struct joining *joining, int local_rank, int other, int socket)
{
    int idle = IDLE_SECONDS, ask = ASK_SECONDS, count = ASK_COUNT;
    (void)setsockopt(socket, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle);
    (void)setsockopt(socket, IPPROTO_TCP, TCP_KEEPINTVL, &ask, sizeof ask);
    (void)setsockopt(socket, IPPROTO_TCP, TCP_KEEPCNT, &count, sizeof count);
    *line_of(joining, local_rank, other) = socket;
    joining->missing--;
}

static tt_status check_files(size_t lines)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= lines + FILES_OF_PROGRAM) return TT_OK;
    tt_fail(TT_ERR_COMM,
            "the ranks of this process need %zu connections to other ranks, and it may open %llu files",
            lines, (unsigned long long)limit.rlim_cur);
    tt_hint("raise the limit (ulimit -n), or start the run with mpirun");
    return TT_ERR_COMM;
}

static tt_status connect_own(struct joining *joining)
{
    int first = joining->config->first_rank, end = first + joining->config->local_count, size = BUFFER_BYTES;
    for (int a = first; a < end; a++) {
        for (int b = a + 1; b < end; b++) {
            int pair[2];
            if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair) != 0)
                return tt_fail_errno(errno, "cannot connect the ranks of this process");
            for (int i = 0; i < 2; i++) {
                tt_wire_prepare_socket(pair[i]);
                (void)setsockopt(pair[i], SOL_SOCKET, SO_SNDBUF, &size, sizeof size);
            }
            keep(joining, a, b, pair[0]);
            keep(joining, b, a, pair[1]);
        }
    }
    return TT_OK;
}

/* ---- Calling ---- */

static void hang_up(struct joining *joining, struct call *call, const char *why)
{
    if (call->socket >= 0) close(call->socket);
    if (call->stage != CALL_WAITS) joining->on_their_way--;
    call->socket = -1;
    call->stage = CALL_WAITS;
    call->since = joining->now + again_seconds;
    joining->blamed = call->to;
    snprintf(joining->why, sizeof joining->why, "%s", why);
}

static void say(struct joining *joining, struct call *call, const void *data, size_t bytes)
{
    if (send(call->socket, data, bytes, MSG_NOSIGNAL) != (ssize_t)bytes)
        hang_up(joining, call, "it closed the connection");
}

static void place_of(const struct joining *joining, int rank, struct tt_wire_address *place)
{
    const struct tt_wire_address *rank0 = joining->config->rank0;
    *place = joining->config->ranks[rank].place;
    if (place->family == TT_WIRE_SAME) {
        int port = place->port;
        *place = *rank0;
        place->port = port;
    }
    place->scope = rank0->scope; /* of this machine */
}

static void dial(struct joining *joining, struct call *call)
{
    struct tt_wire_address place;
    place_of(joining, call->to, &place);
    call->socket = tt_wire_connect_begin(&place);
    if (call->socket < 0) {
        hang_up(joining, call, tt_errno_text(errno));
        return;
    }
    call->stage = CALL_CONNECTS;
    call->since = joining->now;
    call->have = 0;
    joining->on_their_way++;
}

static void open_proof(struct joining *joining, struct call *call)
{
    int error = 0;
    socklen_t bytes = sizeof error;
    if (getsockopt(call->socket, SOL_SOCKET, SO_ERROR, &error, &bytes) != 0) error = errno;
    if (error != 0) {
        hang_up(joining, call, tt_errno_text(error));
        return;
    }
    tt_proof_open(joining->config->key, TT_PROOF_DATA, &call->proof);
    call->stage = CALL_CHALLENGE;
    say(joining, call, &call->proof.opening, sizeof call->proof.opening);
}

static void take_challenge(struct joining *joining, struct call *call)
{
    unsigned char sum[TT_PROOF_SUM_BYTES];
    if (!tt_proof_is_challenge(&call->proof) || call->proof.challenge.secured != 1) {
        hang_up(joining, call, "what listens there is no rank of this run");
        return;
    }
    tt_proof_sum(joining->config->key, &call->proof, TT_PROOF_OPENER, sum);
    call->stage = CALL_SUM;
    say(joining, call, sum, sizeof sum);
}

static void take_sum(struct joining *joining, struct call *call)
{
    if (!tt_proof_verify(joining->config->key, &call->proof, TT_PROOF_ACCEPTER, call->sum)) {
        hang_up(joining, call, "what listens there is no rank of this run");
        return;
    }
    struct tt_line_hello hello = {.magic = TT_WIRE_MAGIC, .from = call->from, .to = call->to};
    say(joining, call, &hello, sizeof hello);
    if (call->socket < 0) return;
    keep(joining, call->from, call->to, call->socket);
    call->socket = -1;
    call->stage = CALL_DONE;
    joining->on_their_way--;
}

/* What has come for a call, until nothing more is there. */
static void serve_call(struct joining *joining, struct call *call)
{
    if (call->stage == CALL_CONNECTS) open_proof(joining, call);
    while (call->stage == CALL_CHALLENGE || call->stage == CALL_SUM) {
        bool challenge = call->stage == CALL_CHALLENGE;
        char *to = challenge ? (char *)&call->proof.challenge : (char *)call->sum;
        size_t all = challenge ? sizeof call->proof.challenge : sizeof call->sum;
        ssize_t got = recv(call->socket, to + call->have, all - call->have, 0);
        if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) return;
        if (got <= 0) {
            hang_up(joining, call, "it closed the connection");
            return;
        }
        call->have += (size_t)got;
        if (call->have < all) continue;
        call->have = 0;
        if (challenge)
            take_challenge(joining, call);
        else
            take_sum(joining, call);
    }
}

/* ---- Being called ---- */

static void evict(struct joining *joining)
{
    struct tt_guest *guests[TT_DOOR_GUESTS_MAX];
    size_t count = 0;
    for (size_t i = 0; i < joining->guest_count; i++)
        if (joining->guests[i].base.socket >= 0 && !joining->guests[i].base.proven)
            guests[count++] = &joining->guests[i].base;
    struct tt_guest *victim = tt_door_victim(guests, count);
    if (victim == NULL) return;
    tt_door_note(&joining->door, victim, NULL, joining->now);
    tt_guest_close(victim);
}

/* In order of time; the closed ones go. */
static void forget_closed(struct joining *joining)
{
    size_t kept = 0;
    for (size_t i = 0; i < joining->guest_count; i++)
        if (joining->guests[i].base.socket >= 0) joining->guests[kept++] = joining->guests[i];
    joining->guest_count = kept;
}

static void accept_guests(struct joining *joining)
{
    bool full = false;
    for (int taken = 0; taken < TT_DOOR_ACCEPTS_AT_ONCE; taken++) {
        int socket = tt_door_accept(&joining->door, joining->now, &full);
        if (full) evict(joining);
        if (socket < 0) return;
        forget_closed(joining);
        if (joining->guest_count >= joining->door.guests_max) {
            evict(joining);
            forget_closed(joining);
        }
        if (joining->guest_count >= joining->door.guests_max) { /* members, that come back */
            close(socket);
            return;
        }
        struct guest *guest = &joining->guests[joining->guest_count++];
        *guest = (struct guest){0};
        tt_guest_init(&guest->base, socket, joining->now);
    }
}

/* A member names its line, or something that cannot be. */
static void take_line(struct joining *joining, struct guest *guest)
{
    const struct tt_lines_config *config = joining->config;
    const struct tt_line_hello *hello = &guest->hello;
    int end = config->first_rank + config->local_count;
    bool possible = hello->magic == TT_WIRE_MAGIC && hello->to >= config->first_rank && hello->to < end &&
                    hello->from >= end && hello->from < config->world_size &&
                    guest->base.proof.opening.role == TT_PROOF_DATA;
    if (!possible || *line_of(joining, hello->to, hello->from) >= 0) {
        tt_door_note(&joining->door, &guest->base, "it named a line that cannot be", joining->now);
        tt_guest_close(&guest->base);
        return;
    }
    keep(joining, hello->to, hello->from, guest->base.socket);
    guest->base.socket = -1;
}

static void serve_guest(struct joining *joining, struct guest *guest)
{
    while (guest->base.socket >= 0 && guest->base.stage != TT_GUEST_THROUGH) {
        enum tt_guest_result result = tt_guest_read(&joining->door, &guest->base, joining->now);
        if (result == TT_GUEST_UNEQUAL) tt_guest_close(&guest->base);
        if (result != TT_GUEST_MOVED) return;
    }
    while (guest->base.socket >= 0) {
        ssize_t got = recv(guest->base.socket, (char *)&guest->hello + guest->have,
                           sizeof guest->hello - guest->have, 0);
        if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) return;
        if (got <= 0) {
            tt_door_note(&joining->door, &guest->base, NULL, joining->now);
            tt_guest_close(&guest->base);
            return;
        }
        guest->have += (size_t)got;
        if (guest->have == sizeof guest->hello) {
            take_line(joining, guest);
            return;
        }
    }
}

/* ---- All together ---- */

static void look_at_clock(struct joining *joining)
{
    for (size_t i = 0; i < joining->call_count; i++) {
        struct call *call = &joining->calls[i];
        if (call->socket >= 0 && joining->now - call->since > CALL_SECONDS)
            hang_up(joining, call, "it does not answer");
        if (call->stage == CALL_WAITS && joining->on_their_way < CALLS_AT_ONCE && joining->now >= call->since)
            dial(joining, call);
    }
    for (size_t i = 0; i < joining->guest_count; i++) {
        struct tt_guest *guest = &joining->guests[i].base;
        if (guest->socket < 0 || joining->now - guest->since <= TT_DOOR_GUEST_SECONDS) continue;
        tt_door_note(&joining->door, guest, NULL, joining->now);
        tt_guest_close(guest);
    }
}

static tt_status fail_late(struct joining *joining)
{
    const struct tt_lines_config *config = joining->config;
    const struct call *call = joining->calls;
    while (call < joining->calls + joining->call_count && call->stage == CALL_DONE) call++;
    if (call < joining->calls + joining->call_count) {
        struct tt_wire_address place;
        char address[64];
        place_of(joining, call->to, &place);
        tt_wire_address_text(&place, address, sizeof address);
        tt_fail(TT_ERR_COMM, "rank %d cannot reach rank %d at %s port %d: %s", call->from, call->to, address,
                (int)place.port, joining->blamed == call->to ? joining->why : "it does not answer");
    } else {
        int first = config->first_rank, end = first + config->local_count, to = first, from = end;
        while (*line_of(joining, to, from) >= 0 && (to < end - 1 || from < config->world_size - 1)) {
            if (++from < config->world_size) continue;
            from = end;
            to++;
        }
        tt_fail(TT_ERR_COMM, "rank %d did not connect to rank %d at port %d within %d s", from, to,
                config->port, LINES_SECONDS + ANSWER_SECONDS);
    }
    tt_hint(
        "ranks connect to each other directly, at ports that the system chooses: a firewall must let them; "
        "--rendezvous_bind says at which address a process listens, and mpirun takes another way");
    return TT_ERR_COMM;
}

/* Waits for what comes next. */
static void wait_for_events(struct joining *joining)
{
    nfds_t count = 0;
    bool soon = false;
    joining->files[count++] = (struct pollfd){.fd = joining->config->control, .events = POLLIN};
    for (int d = 0; d < joining->door.wire.count; d++) {
        bool accepts = joining->now >= joining->door.again;
        joining->files[count++] =
            (struct pollfd){.fd = accepts ? joining->door.wire.sockets[d] : -1, .events = POLLIN};
    }
    for (size_t i = 0; i < joining->call_count; i++) {
        struct call *call = &joining->calls[i];
        soon |= call->stage == CALL_WAITS;
        if (call->socket < 0) continue;
        call->slot = (int)count;
        joining->files[count++] =
            (struct pollfd){.fd = call->socket, .events = call->stage == CALL_CONNECTS ? POLLOUT : POLLIN};
    }
    for (size_t i = 0; i < joining->guest_count; i++) {
        joining->guests[i].slot = (int)count;
        joining->files[count++] = (struct pollfd){.fd = joining->guests[i].base.socket, .events = POLLIN};
    }
    (void)poll(joining->files, count, soon ? (int)(again_seconds * 1000) : POLL_MS);
    joining->now = tt_clock_seconds();
}

static void serve(struct joining *joining)
{
    for (size_t i = 0; i < joining->call_count; i++) {
        struct call *call = &joining->calls[i];
        if (call->socket >= 0 && joining->files[call->slot].revents != 0) serve_call(joining, call);
    }
    for (size_t i = 0; i < joining->guest_count; i++)
        if (joining->files[joining->guests[i].slot].revents != 0) serve_guest(joining, &joining->guests[i]);
    forget_closed(joining);
    accept_guests(joining);
}

static tt_status join(struct joining *joining)
{
    double end = joining->now + LINES_SECONDS + (joining->call_count > 0 ? 0 : ANSWER_SECONDS);
    while (joining->missing > 0) {
        TT_TRY(joining->config->look(joining->config->context));
        look_at_clock(joining);
        wait_for_events(joining);
        serve(joining);
        if (joining->missing > 0 && joining->now > end) return fail_late(joining);
    }
    return TT_OK;
}

/* Lines to lower ranks, beginning with the next ones: so not all processes call the same one first. */
static void plan_calls(struct joining *joining)
{
    const struct tt_lines_config *config = joining->config;
    for (int to = config->first_rank - 1; to >= 0; to--) {
        for (int r = 0; r < config->local_count; r++)
            joining->calls[joining->call_count++] =
                (struct call){.from = config->first_rank + r, .to = to, .socket = -1};
    }
}

tt_status tt_lines_connect(const struct tt_lines_config *config, int *lines)
{
    tt_status status = TT_OK;
    size_t count = tt_lines_count(config->world_size, config->local_count);
    struct joining joining = {
        .config = config,
        .lines = lines,
        .missing = count,
        .door = {.wire = *config->door,
                 .key = config->key,
                 .no_key = "it is no rank of this run",
                 .other_key = "it is no rank of this run",
                 .port = config->port},
        .now = tt_clock_seconds(),
    };
    for (size_t i = 0; i < (size_t)config->local_count * (size_t)config->world_size; i++) lines[i] = -1;
    joining.door.guests_max = tt_door_room(count);
    TT_TRY(check_files(count));
    joining.calls =
        tt_calloc((size_t)config->local_count * (size_t)config->first_rank + 1, sizeof *joining.calls);
    joining.guests = tt_calloc(TT_DOOR_GUESTS_MAX, sizeof *joining.guests);
    joining.files =
        tt_calloc(1 + TT_WIRE_ADDRESSES_MAX + CALLS_AT_ONCE + TT_DOOR_GUESTS_MAX, sizeof *joining.files);
    if (joining.calls == NULL || joining.guests == NULL || joining.files == NULL) TT_GO(TT_ERR_MEMORY);
    plan_calls(&joining);
    TT_GO(connect_own(&joining));
    if (config->first_rank + config->local_count == config->world_size)
        joining.door.wire.count = 0; /* nobody calls it */
    TT_GO(tt_wire_door_begin(&joining.door.wire));
    TT_GO(join(&joining));
out:
    for (size_t i = 0; i < joining.call_count; i++)
        if (joining.calls[i].socket >= 0) close(joining.calls[i].socket);
    for (size_t i = 0; i < joining.guest_count; i++) tt_guest_close(&joining.guests[i].base);
    tt_free(joining.calls);
    tt_free(joining.guests);
    tt_free(joining.files);
    return status;
}
