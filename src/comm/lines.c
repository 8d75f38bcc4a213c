#include "comm/lines.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/number.h"
#include "comm/listener.h"
#include "comm/local_line.h"

enum {
    OPENERS_AT_ONCE = 64, /* connections that this process opens at the same time */
    OPENER_SECONDS = 10,  /* for one attempt */
    LINES_SECONDS = 30,   /* for all lines */
    /* A process that only accepts gives up this much later: the errors of the openers say more. */
    ACCEPTER_EXTRA_SECONDS = 5,
    POLL_MS = 250,
    CONTROL_ROUNDS_MAX = 1000,
    FILES_OF_PROGRAM = 32,  /* descriptors besides the lines */
    BUFFER_BYTES = 1 << 20, /* of a Unix socket; the system sizes those of TCP */
    /* TCP keep-alive of idle lines: a line is closed when its other end answers none of the probes. */
    KEEPALIVE_IDLE_SECONDS = 8,
    KEEPALIVE_INTERVAL_SECONDS = 4,
    KEEPALIVE_PROBES = 3,
};
static const double retry_seconds = 0.05;
/* So long an opener waits for the Unix socket of a process of its machine, whose name appears as that process begins to
 * join. In another network namespace it never does, and the line goes over TCP. */
static const double local_seconds = 1.0;

enum opener_stage { OPENER_WAITS, OPENER_CONNECTS, OPENER_CHALLENGE, OPENER_SUM, OPENER_DONE };

/* A line that this process opens. */
struct opener {
    int from, to;
    enum opener_stage stage;
    int socket;    /* -1: OPENER_WAITS or OPENER_DONE */
    int slot;      /* index in files[] */
    bool over_tcp; /* a connection by a Unix socket failed */
    struct tt_proof proof;
    unsigned char sum[TT_PROOF_SUM_BYTES];
    size_t have;
    double since; /* start of the attempt; OPENER_WAITS: time of the next attempt */
};

/* A connection that another process opened. */
struct candidate {
    struct tt_candidate base;
    int slot;
    struct tt_line_hello hello;
    size_t have;
};

struct joining {
    const struct tt_lines_config *config;
    int *lines;
    size_t missing; /* number of lines that are not connected */
    struct opener *openers;
    size_t opener_count, connecting_count;
    struct candidate *candidates; /* [TT_CANDIDATES_MAX], in order of time */
    size_t candidate_count;
    struct tt_listener listener;
    struct pollfd *files;
    int control_rounds; /* waits in a row that the control connection ended */
    double now, begun;
    int blamed;    /* rank of the last failed attempt */
    char why[160]; /* its reason */
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

/* Stores a connected line. Keep-alive detects an other end that ends, or is cut off, while the line is idle. */
static void store_line(struct joining *joining, int local_rank, int other, int socket)
{
    int idle = KEEPALIVE_IDLE_SECONDS, ask = KEEPALIVE_INTERVAL_SECONDS, count = KEEPALIVE_PROBES;
    int buffer = BUFFER_BYTES;
    if (tt_local_line_is(socket)) (void)setsockopt(socket, SOL_SOCKET, SO_SNDBUF, &buffer, sizeof buffer);
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
    int first = joining->config->first_rank, end = first + joining->config->local_count;
    for (int a = first; a < end; a++) {
        for (int b = a + 1; b < end; b++) {
            int pair[2];
            if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair) != 0)
                return tt_fail_errno(errno, "cannot connect the ranks of this process");
            for (int i = 0; i < 2; i++) tt_wire_prepare_socket(pair[i]);
            store_line(joining, a, b, pair[0]);
            store_line(joining, b, a, pair[1]);
        }
    }
    return TT_OK;
}

/* ---- Openers ---- */

static void retry_later(struct joining *joining, struct opener *opener, const char *why)
{
    if (opener->socket >= 0) {
        opener->over_tcp |= tt_local_line_is(opener->socket);
        close(opener->socket);
    }
    if (opener->stage != OPENER_WAITS) joining->connecting_count--;
    opener->socket = -1;
    opener->stage = OPENER_WAITS;
    opener->since = joining->now + retry_seconds;
    joining->blamed = opener->to;
    snprintf(joining->why, sizeof joining->why, "%s", why);
}

static void send_or_retry(struct joining *joining, struct opener *opener, const void *data, size_t bytes)
{
    if (send(opener->socket, data, bytes, MSG_NOSIGNAL) != (ssize_t)bytes)
        retry_later(joining, opener, "it closed the connection");
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
    place->scope = rank0->scope; /* scopes are numbers of this machine */
}

static void start_connect(struct joining *joining, struct opener *opener)
{
    const struct tt_lines_config *config = joining->config;
    const struct tt_wire_rank *to = &config->ranks[opener->to];
    struct tt_wire_address place;
    place_of(joining, opener->to, &place);
    if (!opener->over_tcp && !config->at_address && to->machine == config->ranks[opener->from].machine) {
        opener->socket = tt_local_line_connect(config->key, to);
        if (opener->socket < 0 && joining->now < joining->begun + local_seconds) {
            retry_later(joining, opener, "its Unix socket is not there yet");
            return;
        }
    }
    if (opener->socket < 0) opener->socket = tt_wire_connect_begin(&place);
    if (opener->socket < 0) {
        retry_later(joining, opener, tt_errno_text(errno));
        return;
    }
    opener->stage = OPENER_CONNECTS;
    opener->since = joining->now;
    opener->have = 0;
    joining->connecting_count++;
}

static void open_proof(struct joining *joining, struct opener *opener)
{
    int error = 0;
    socklen_t bytes = sizeof error;
    if (getsockopt(opener->socket, SOL_SOCKET, SO_ERROR, &error, &bytes) != 0) error = errno;
    if (error != 0) {
        retry_later(joining, opener, tt_errno_text(error));
        return;
    }
    tt_proof_open(joining->config->key, TT_PROOF_DATA, &opener->proof);
    opener->stage = OPENER_CHALLENGE;
    send_or_retry(joining, opener, &opener->proof.opening, sizeof opener->proof.opening);
}

static void handle_challenge(struct joining *joining, struct opener *opener)
{
    unsigned char sum[TT_PROOF_SUM_BYTES];
    if (!tt_proof_is_challenge(&opener->proof) || opener->proof.challenge.secured != 1) {
        retry_later(joining, opener, "the listener there is not a rank of this run");
        return;
    }
    tt_proof_sum(joining->config->key, &opener->proof, TT_PROOF_OPENER, sum);
    opener->stage = OPENER_SUM;
    send_or_retry(joining, opener, sum, sizeof sum);
}

static void handle_sum(struct joining *joining, struct opener *opener)
{
    if (!tt_proof_verify(joining->config->key, &opener->proof, TT_PROOF_ACCEPTER, opener->sum)) {
        retry_later(joining, opener, "the listener there is not a rank of this run");
        return;
    }
    struct tt_line_hello hello = {.magic = TT_WIRE_MAGIC, .from = opener->from, .to = opener->to};
    send_or_retry(joining, opener, &hello, sizeof hello);
    if (opener->socket < 0) return;
    store_line(joining, opener->from, opener->to, opener->socket);
    opener->socket = -1;
    opener->stage = OPENER_DONE;
    joining->connecting_count--;
}

/* Reads and handles everything that has arrived for an opener. */
static void serve_opener(struct joining *joining, struct opener *opener)
{
    if (opener->stage == OPENER_CONNECTS) open_proof(joining, opener);
    while (opener->stage == OPENER_CHALLENGE || opener->stage == OPENER_SUM) {
        bool challenge = opener->stage == OPENER_CHALLENGE;
        char *to = challenge ? (char *)&opener->proof.challenge : (char *)opener->sum;
        size_t all = challenge ? sizeof opener->proof.challenge : sizeof opener->sum;
        ssize_t got = recv(opener->socket, to + opener->have, all - opener->have, 0);
        if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) return;
        if (got <= 0) {
            retry_later(joining, opener, "it closed the connection");
            return;
        }
        opener->have += (size_t)got;
        if (opener->have < all) continue;
        opener->have = 0;
        if (challenge)
            handle_challenge(joining, opener);
        else
            handle_sum(joining, opener);
    }
}

/* ---- Candidates ---- */

static void evict(struct joining *joining)
{
    struct tt_candidate *candidates[TT_CANDIDATES_MAX];
    size_t count = 0;
    for (size_t i = 0; i < joining->candidate_count; i++)
        if (joining->candidates[i].base.socket >= 0 && !joining->candidates[i].base.proven)
            candidates[count++] = &joining->candidates[i].base;
    struct tt_candidate *victim = tt_listener_choose_victim(candidates, count);
    if (victim == NULL) return;
    tt_listener_log_stranger(&joining->listener, victim, NULL, joining->now);
    tt_candidate_close(victim);
}

/* Keeps the order of time. */
static void remove_closed(struct joining *joining)
{
    size_t kept = 0;
    for (size_t i = 0; i < joining->candidate_count; i++)
        if (joining->candidates[i].base.socket >= 0) joining->candidates[kept++] = joining->candidates[i];
    joining->candidate_count = kept;
}

static void accept_candidates(struct joining *joining)
{
    bool full = false;
    for (int taken = 0; taken < TT_LISTENER_ACCEPTS_AT_ONCE; taken++) {
        int socket = tt_listener_accept(&joining->listener, joining->now, &full);
        if (full) evict(joining);
        if (socket < 0) return;
        remove_closed(joining);
        if (joining->candidate_count >= joining->listener.candidates_max) {
            evict(joining);
            remove_closed(joining);
        }
        /* all of them are proven, so none may be evicted */
        if (joining->candidate_count >= joining->listener.candidates_max) {
            close(socket);
            return;
        }
        struct candidate *candidate = &joining->candidates[joining->candidate_count++];
        *candidate = (struct candidate){0};
        tt_candidate_init(&candidate->base, socket, joining->now);
    }
}

/* Checks the two ranks that a member sent, and stores the line. */
static void handle_line_hello(struct joining *joining, struct candidate *candidate)
{
    const struct tt_lines_config *config = joining->config;
    const struct tt_line_hello *hello = &candidate->hello;
    int end = config->first_rank + config->local_count;
    bool possible = hello->magic == TT_WIRE_MAGIC && hello->to >= config->first_rank && hello->to < end &&
                    hello->from >= end && hello->from < config->world_size &&
                    candidate->base.proof.opening.role == TT_PROOF_DATA;
    if (!possible || *line_of(joining, hello->to, hello->from) >= 0) {
        tt_listener_log_stranger(&joining->listener, &candidate->base, "it named an invalid line",
                                 joining->now);
        tt_candidate_close(&candidate->base);
        return;
    }
    store_line(joining, hello->to, hello->from, candidate->base.socket);
    candidate->base.socket = -1;
}

static void serve_candidate(struct joining *joining, struct candidate *candidate)
{
    while (candidate->base.socket >= 0 && candidate->base.stage != TT_CANDIDATE_READY) {
        enum tt_candidate_result result =
            tt_candidate_read(&joining->listener, &candidate->base, joining->now);
        if (result == TT_CANDIDATE_KEY_MISMATCH) tt_candidate_close(&candidate->base);
        if (result != TT_CANDIDATE_PROGRESS) return;
    }
    while (candidate->base.socket >= 0) {
        ssize_t got = recv(candidate->base.socket, (char *)&candidate->hello + candidate->have,
                           sizeof candidate->hello - candidate->have, 0);
        if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) return;
        if (got <= 0) {
            tt_listener_log_stranger(&joining->listener, &candidate->base, NULL, joining->now);
            tt_candidate_close(&candidate->base);
            return;
        }
        candidate->have += (size_t)got;
        if (candidate->have == sizeof candidate->hello) {
            handle_line_hello(joining, candidate);
            return;
        }
    }
}

/* ---- All together ---- */

static void check_timeouts(struct joining *joining)
{
    for (size_t i = 0; i < joining->opener_count; i++) {
        struct opener *opener = &joining->openers[i];
        if (opener->socket >= 0 && joining->now - opener->since > OPENER_SECONDS)
            retry_later(joining, opener, "it does not answer");
        if (opener->stage == OPENER_WAITS && joining->connecting_count < OPENERS_AT_ONCE &&
            joining->now >= opener->since)
            start_connect(joining, opener);
    }
    for (size_t i = 0; i < joining->candidate_count; i++) {
        struct tt_candidate *candidate = &joining->candidates[i].base;
        if (candidate->socket < 0 || joining->now - candidate->since <= TT_CANDIDATE_SECONDS) continue;
        tt_listener_log_stranger(&joining->listener, candidate, NULL, joining->now);
        tt_candidate_close(candidate);
    }
}

static tt_status fail_late(struct joining *joining)
{
    const struct tt_lines_config *config = joining->config;
    const struct opener *opener = joining->openers;
    while (opener < joining->openers + joining->opener_count && opener->stage == OPENER_DONE) opener++;
    if (opener < joining->openers + joining->opener_count) {
        struct tt_wire_address place;
        char address[64];
        place_of(joining, opener->to, &place);
        tt_wire_address_text(&place, address, sizeof address);
        tt_fail(TT_ERR_COMM, "rank %d cannot reach rank %d at %s port %d: %s", opener->from, opener->to,
                address, (int)place.port,
                joining->blamed == opener->to ? joining->why : "it does not answer");
    } else {
        int first = config->first_rank, end = first + config->local_count, to = first, from = end;
        while (*line_of(joining, to, from) >= 0 && (to < end - 1 || from < config->world_size - 1)) {
            if (++from < config->world_size) continue;
            from = end;
            to++;
        }
        tt_fail(TT_ERR_COMM, "rank %d did not connect to rank %d at port %d within %d s", from, to,
                config->port, LINES_SECONDS + ACCEPTER_EXTRA_SECONDS);
    }
    tt_hint(
        "ranks connect to each other directly, at ports that the system chooses: a firewall must allow that; "
        "--rendezvous_bind sets the address at which a process listens, and mpirun uses MPI's connections");
    return TT_ERR_COMM;
}

static void wait_for_events(struct joining *joining)
{
    nfds_t count = 0;
    bool soon = false;
    /* `check` leaves a farewell unread, which would end every wait at once: after many in a row, one is without it. */
    joining->control_rounds = joining->files[0].revents != 0 ? joining->control_rounds + 1 : 0;
    bool skips = joining->control_rounds >= CONTROL_ROUNDS_MAX;
    joining->files[count++] = (struct pollfd){.fd = skips ? -1 : joining->config->control, .events = POLLIN};
    for (int d = 0; d < joining->listener.wire.count; d++) {
        bool accepts = joining->now >= joining->listener.retry_at;
        joining->files[count++] =
            (struct pollfd){.fd = accepts ? joining->listener.wire.sockets[d] : -1, .events = POLLIN};
    }
    for (size_t i = 0; i < joining->opener_count; i++) {
        struct opener *opener = &joining->openers[i];
        soon |= opener->stage == OPENER_WAITS;
        if (opener->socket < 0) continue;
        opener->slot = (int)count;
        joining->files[count++] = (struct pollfd){
            .fd = opener->socket, .events = opener->stage == OPENER_CONNECTS ? POLLOUT : POLLIN};
    }
    for (size_t i = 0; i < joining->candidate_count; i++) {
        joining->candidates[i].slot = (int)count;
        joining->files[count++] = (struct pollfd){.fd = joining->candidates[i].base.socket, .events = POLLIN};
    }
    (void)poll(joining->files, count, soon ? (int)(retry_seconds * 1000) : POLL_MS);
    joining->now = tt_clock_seconds();
}

static void serve(struct joining *joining)
{
    for (size_t i = 0; i < joining->opener_count; i++) {
        struct opener *opener = &joining->openers[i];
        if (opener->socket >= 0 && joining->files[opener->slot].revents != 0) serve_opener(joining, opener);
    }
    for (size_t i = 0; i < joining->candidate_count; i++)
        if (joining->files[joining->candidates[i].slot].revents != 0)
            serve_candidate(joining, &joining->candidates[i]);
    remove_closed(joining);
    accept_candidates(joining);
}

static tt_status join(struct joining *joining)
{
    double end = joining->now + LINES_SECONDS + (joining->opener_count > 0 ? 0 : ACCEPTER_EXTRA_SECONDS);
    while (joining->missing > 0) {
        TT_TRY(joining->config->check(joining->config->context));
        check_timeouts(joining);
        wait_for_events(joining);
        serve(joining);
        if (joining->missing > 0 && joining->now > end) return fail_late(joining);
    }
    return TT_OK;
}

/* Lists the lines to lower ranks, beginning with the nearest, so that processes do not all connect to the same one
 * first. */
static void plan_openers(struct joining *joining)
{
    const struct tt_lines_config *config = joining->config;
    for (int to = config->first_rank - 1; to >= 0; to--) {
        for (int r = 0; r < config->local_count; r++)
            joining->openers[joining->opener_count++] =
                (struct opener){.from = config->first_rank + r, .to = to, .socket = -1};
    }
}

tt_status tt_lines_connect(const struct tt_lines_config *config, int *lines)
{
    tt_status status = TT_OK;
    int local = -1;
    size_t count = tt_lines_count(config->world_size, config->local_count);
    struct joining joining = {
        .config = config,
        .lines = lines,
        .missing = count,
        .listener = {.wire = *config->listener,
                     .key = config->key,
                     .no_key = "it is not a rank of this run",
                     .other_key = "it is not a rank of this run",
                     .port = config->port},
        .now = tt_clock_seconds(),
    };
    joining.begun = joining.now;
    for (size_t i = 0; i < (size_t)config->local_count * (size_t)config->world_size; i++) lines[i] = -1;
    joining.listener.candidates_max = tt_listener_capacity(count);
    TT_TRY(check_files(count));
    joining.openers =
        tt_calloc((size_t)config->local_count * (size_t)config->first_rank + 1, sizeof *joining.openers);
    joining.candidates = tt_calloc(TT_CANDIDATES_MAX, sizeof *joining.candidates);
    joining.files =
        tt_calloc(1 + TT_WIRE_SOCKETS_MAX + OPENERS_AT_ONCE + TT_CANDIDATES_MAX, sizeof *joining.files);
    if (joining.openers == NULL || joining.candidates == NULL || joining.files == NULL) TT_GO(TT_ERR_MEMORY);
    plan_openers(&joining);
    TT_GO(connect_own(&joining));
    /* no process has higher ranks, so none connects */
    if (config->first_rank + config->local_count == config->world_size)
        joining.listener.wire.count = 0;
    else if (!config->at_address)
        local = tt_local_line_listen(config->key, &config->ranks[config->first_rank]);
    if (local >= 0) joining.listener.wire.sockets[joining.listener.wire.count++] = local;
    TT_GO(tt_wire_listener_start(&joining.listener.wire));
    TT_GO(join(&joining));
out:
    if (local >= 0) close(local);
    for (size_t i = 0; i < joining.opener_count; i++)
        if (joining.openers[i].socket >= 0) close(joining.openers[i].socket);
    for (size_t i = 0; i < joining.candidate_count; i++) tt_candidate_close(&joining.candidates[i].base);
    tt_free(joining.openers);
    tt_free(joining.candidates);
    tt_free(joining.files);
    return status;
}
