/* The hub's connections. Its thread sleeps in poll, serves what has come, and twice a second looks at the
 * clock: who has not come yet, who is silent, who went without leave.
 *
 * A stranger may connect: until a connection has said hello in the right way it may send little, and has
 * seconds for it. */
#include "comm/hub_impl.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/thread.h"

enum {
    POLL_MS = 500,
    STRANGERS_MAX = 256,   /* connections that have not said hello */
    HELLO_SECONDS = 10,    /* that they have for it */
    REFUSED_SECONDS = 5,   /* for a refusal to be read */
    REMINDER_SECONDS = 10, /* between lines about who is missing */
    GONE_SECONDS = 1,      /* a process that failed may close before its message is read */
    FAREWELL_SECONDS = 2,  /* how long the hub waits for the others to close at its end */
    AWAY_SECONDS = 4,      /* the hub itself was stopped: the others' silence means nothing */
};

/* ---- Sending ---- */

static void close_peer(struct peer *peer)
{
    if (peer->socket >= 0) close(peer->socket);
    peer->socket = -1;
}

static void flush(struct peer *peer)
{
    while (peer->socket >= 0 && peer->out_sent < peer->out.bytes) {
        ssize_t sent = send(peer->socket, peer->out.data + peer->out_sent, peer->out.bytes - peer->out_sent,
                            MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR) continue;
        if (sent <= 0) return; /* full, or gone: then the next read says so */
        peer->out_sent += (size_t)sent;
    }
    if (peer->out_sent == peer->out.bytes) {
        tt_str_clear(&peer->out);
        peer->out_sent = 0;
    }
}

void tt_hub_send(struct tt_hub *hub, struct peer *peer, struct tt_wire_header header, const void *payload)
{
    header.magic = TT_WIRE_MAGIC;
    if (peer->socket < 0) return;
    tt_status status = tt_str_append(&peer->out, (const char *)&header, sizeof header);
    if (status == TT_OK && header.bytes > 0)
        status = tt_str_append(&peer->out, payload, (size_t)header.bytes);
    if (status != TT_OK && !hub->aborted) {
        close_peer(peer); /* half a frame must not be sent */
        tt_hub_fail(hub, 0);
        return;
    }
    flush(peer);
}

static bool is_member(const struct peer *peer)
{
    return peer->kind == PEER_CONTROL || peer->kind == PEER_DATA;
}

static void send_to_processes(struct tt_hub *hub, struct tt_wire_header header, const void *payload)
{
    for (size_t i = 0; i < hub->peer_count; i++)
        if (hub->peers[i]->kind == PEER_CONTROL) tt_hub_send(hub, hub->peers[i], header, payload);
}

void tt_hub_abort(struct tt_hub *hub, int rank, const struct tt_error *error, uint64_t teller)
{
    if (hub->aborted) return;
    hub->aborted = true;
    hub->abort_error = *error;
    hub->abort_header = (struct tt_wire_header){
        .kind = TT_WIRE_ABORT, .parameter = rank, .offset = teller, .bytes = sizeof *error};
    send_to_processes(hub, hub->abort_header, &hub->abort_error);
}

void tt_hub_fail(struct tt_hub *hub, int rank)
{
    struct tt_error error;
    tt_error_copy(&error);
    tt_hub_abort(hub, rank, &error, 0);
}

struct peer *tt_hub_peer_of_rank(struct tt_hub *hub, int rank)
{
    for (size_t i = 0; i < hub->peer_count; i++)
        if (hub->peers[i]->kind == PEER_DATA && hub->peers[i]->hello.rank == rank) return hub->peers[i];
    return NULL;
}

const struct peer *tt_hub_control_of_rank(const struct tt_hub *hub, int rank)
{
    for (size_t i = 0; i < hub->peer_count; i++) {
        const struct peer *peer = hub->peers[i];
        if (peer->kind == PEER_CONTROL && peer->hello.first_rank <= rank &&
            rank - peer->hello.first_rank < peer->hello.local_count)
            return peer;
    }
    return NULL;
}

/* ---- Hello ---- */

static void refuse(struct tt_hub *hub, struct peer *peer, const char *text)
{
    tt_hub_send(hub, peer, (struct tt_wire_header){.kind = TT_WIRE_REFUSE, .bytes = strlen(text)}, text);
    peer->kind = PEER_REFUSED;
    peer->since = hub->now;
}

/* The first line in which two texts differ. */
static void find_difference(const char *a, const char *b, char line_a[120], char line_b[120])
{
    for (;;) {
        size_t bytes_a = strcspn(a, "\n"), bytes_b = strcspn(b, "\n");
        if (bytes_a != bytes_b || memcmp(a, b, bytes_a) != 0 || *a == '\0') {
            tt_wire_clean_text(a, bytes_a, line_a, 120);
            tt_wire_clean_text(b, bytes_b, line_b, 120);
            return;
        }
        a += bytes_a + (a[bytes_a] == '\n');
        b += bytes_b + (b[bytes_b] == '\n');
    }
}

/* Whether the hello makes sense here; otherwise why not. */
static bool accepts(struct tt_hub *hub, const struct peer *peer, char *why, size_t why_bytes)
{
    const struct tt_wire_hello *hello = &peer->hello;
    int world_size = hub->config.world_size;
    if (strcmp(hello->version, TT_VERSION) != 0 || hello->byte_order != TT_WIRE_MAGIC ||
        hello->error_bytes != sizeof(struct tt_error))
        snprintf(why, why_bytes, "rank 0 runs trimtab %s, this process %s%s", TT_VERSION, hello->version,
                 strcmp(hello->version, TT_VERSION) != 0 ? "" : " of another build");
    else if (hello->world_size != world_size)
        snprintf(why, why_bytes, "rank 0 was started for %d ranks, this process for %d", world_size,
                 (int)hello->world_size);
    else if (hello->first_rank < 0 || hello->local_count < 1 || hello->first_rank >= world_size ||
             hello->local_count > world_size - hello->first_rank || hello->rank < -1 ||
             (hello->rank >= 0 &&
              (hello->rank < hello->first_rank || hello->rank >= hello->first_rank + hello->local_count)))
        snprintf(why, why_bytes, "there is no rank %d of %d", (int)hello->first_rank, world_size);
    else if (hub->begun)
        snprintf(why, why_bytes, "the run has begun without this process");
    else
        return true;
    return false;
}

/* Two processes that claim one rank. */
static bool is_taken(struct tt_hub *hub, const struct peer *peer, char *why, size_t why_bytes)
{
    const struct tt_wire_hello *hello = &peer->hello;
    const struct peer *other = hello->rank >= 0 ? tt_hub_peer_of_rank(hub, hello->rank) : NULL;
    for (int r = 0; r < hello->local_count && hello->rank < 0 && other == NULL; r++)
        other = tt_hub_control_of_rank(hub, hello->first_rank + r);
    if (other == NULL) return false;
    snprintf(why, why_bytes, "rank %d is process %lld on %s already; this is process %lld on %s",
             hello->rank >= 0 ? (int)hello->rank : (int)other->hello.first_rank,
             (long long)other->hello.process, other->hello.host, (long long)hello->process, hello->host);
    return true;
}

static void compare_settings(struct tt_hub *hub, struct peer *peer, const char *settings)
{
    char ours[120], theirs[120], text[600];
    if (strcmp(hub->settings, settings) == 0) return;
    find_difference(hub->settings, settings, ours, theirs);
    int rank = peer->hello.first_rank;
    snprintf(text, sizeof text, "the settings of rank %d differ: '%s', where rank 0 has '%s'", rank, theirs,
             ours);
    tt_fail(TT_ERR_USAGE, "%s", text);
    struct tt_error error;
    tt_error_copy(&error);
    tt_hub_abort(hub, rank, &error, UINT64_MAX); /* before the refusal: that process tells it */
    refuse(hub, peer, text);
}

static void take_hello(struct tt_hub *hub, struct peer *peer)
{
    char why[400];
    struct tt_wire_hello *hello = &peer->hello;
    memcpy(hello, peer->payload, sizeof *hello);
    tt_wire_clean_text(hello->version, sizeof hello->version, hello->version, sizeof hello->version);
    tt_wire_clean_text(hello->machine, sizeof hello->machine, hello->machine, sizeof hello->machine);
    tt_wire_clean_text(hello->host, sizeof hello->host, hello->host, sizeof hello->host);
    if (!accepts(hub, peer, why, sizeof why) || is_taken(hub, peer, why, sizeof why)) {
        refuse(hub, peer, why);
        return;
    }
    peer->kind = hello->rank >= 0 ? PEER_DATA : PEER_CONTROL;
    if (peer->kind == PEER_DATA) return;
    if (hub->aborted)
        tt_hub_send(hub, peer, hub->abort_header, &hub->abort_error); /* it came after the word was spread */
    else
        compare_settings(hub, peer, peer->payload + sizeof *hello);
}

/* ---- Receiving ---- */

/* The most that a connection may send in one frame of this kind; -1: it may not send it. */
static int64_t payload_max(const struct peer *peer)
{
    switch (peer->header.kind) {
    case TT_WIRE_HELLO:
        return peer->kind == PEER_NEW ? (int64_t)sizeof(struct tt_wire_hello) + TT_WIRE_HELLO_BYTES_MAX : -1;
    case TT_WIRE_CALL:
        return peer->kind == PEER_DATA ? TT_WIRE_FRAME_BYTES_MAX : -1;
    case TT_WIRE_LEAVE:
        return peer->kind == PEER_DATA ? 0 : -1;
    case TT_WIRE_BYE:
        return is_member(peer) ? 0 : -1;
    case TT_WIRE_BEAT:
        return peer->kind == PEER_CONTROL ? TT_WIRE_TEXT_BYTES_MAX : -1;
    case TT_WIRE_ABORT:
        return peer->kind == PEER_CONTROL ? (int64_t)sizeof(struct tt_error) : -1;
    default:
        return -1;
    }
}

static void take_frame(struct tt_hub *hub, struct peer *peer)
{
    size_t bytes = (size_t)peer->header.bytes;
    struct tt_error error;
    switch (peer->header.kind) {
    case TT_WIRE_HELLO:
        take_hello(hub, peer);
        break;
    case TT_WIRE_CALL:
        if (!hub->aborted) tt_hub_call(hub, peer);
        break;
    case TT_WIRE_LEAVE:
        tt_hub_leave(hub, peer, peer->header.group);
        break;
    case TT_WIRE_BYE:
        peer->left = true;
        if (peer->kind == PEER_DATA) tt_hub_leave(hub, peer, UINT32_MAX);
        break;
    case TT_WIRE_BEAT:
        tt_wire_clean_text(peer->payload, bytes, peer->doing, sizeof peer->doing);
        break;
    case TT_WIRE_ABORT:
        if (bytes != sizeof error) break;
        memcpy(&error, peer->payload, sizeof error);
        tt_wire_clean_error(&error);
        tt_hub_abort(hub, peer->header.parameter, &error, UINT64_MAX);
        break;
    }
}

/* Bytes that are no message: a stranger's are dropped, a member's end the run. */
static void reject_bytes(struct tt_hub *hub, struct peer *peer)
{
    bool member = is_member(peer);
    close_peer(peer);
    if (!member || hub->aborted) return;
    tt_fail(TT_ERR_COMM, "rank %d (%s) sent bytes that are no message", (int)peer->hello.first_rank,
            peer->hello.host);
    tt_hub_fail(hub, peer->hello.first_rank);
}

/* false: nothing more is there. */
static bool read_some(struct tt_hub *hub, struct peer *peer)
{
    bool in_header = peer->header_have < sizeof peer->header;
    char *to = in_header ? (char *)&peer->header + peer->header_have : peer->payload + peer->payload_have;
    size_t want =
        in_header ? sizeof peer->header - peer->header_have : (size_t)peer->header.bytes - peer->payload_have;
    ssize_t got = want > 0 ? recv(peer->socket, to, want, 0) : 0;
    if (want > 0 && got < 0 && errno == EINTR) return true;
    if (want > 0 && got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return false;
    if (want > 0 && got <= 0) {
        close_peer(peer);
        return false;
    }
    peer->heard = hub->now;
    if (in_header) {
        peer->header_have += (size_t)got;
        if (peer->header_have >= sizeof peer->header.magic && peer->header.magic != TT_WIRE_MAGIC)
            reject_bytes(hub, peer);
        if (peer->socket < 0 || peer->header_have < sizeof peer->header) return peer->socket >= 0;
        int64_t most = payload_max(peer);
        bool hello = peer->header.kind == TT_WIRE_HELLO;
        if (most < 0 || peer->header.bytes > (uint64_t)most ||
            (hello && peer->header.bytes < sizeof(struct tt_wire_hello))) {
            reject_bytes(hub, peer);
            return false;
        }
        peer->payload = tt_alloc_aligned((size_t)peer->header.bytes + 1);
        if (peer->payload == NULL) {
            close_peer(peer);
            tt_hub_fail(hub, 0);
            return false;
        }
    } else {
        peer->payload_have += (size_t)got;
    }
    if (peer->payload_have < peer->header.bytes) return true;
    peer->payload[peer->payload_have] = '\0';
    take_frame(hub, peer);
    tt_free(peer->payload);
    peer->payload = NULL;
    peer->header_have = peer->payload_have = 0;
    return peer->socket >= 0;
}

static void serve(struct tt_hub *hub, enum peer_kind kind)
{
    for (size_t i = 0; i < hub->peer_count; i++) {
        struct peer *peer = hub->peers[i];
        if (peer->kind != kind || peer->socket < 0) continue;
        while (peer->kind == kind && read_some(hub, peer)) continue;
        flush(peer);
    }
}

static void accept_all(struct tt_hub *hub)
{
    for (;;) {
        int socket = accept(hub->listener, NULL, NULL);
        if (socket < 0) return;
        size_t strangers = 0;
        for (size_t i = 0; i < hub->peer_count; i++) strangers += hub->peers[i]->kind == PEER_NEW;
        struct peer *peer = strangers < STRANGERS_MAX ? tt_calloc(1, sizeof *peer) : NULL;
        if (peer == NULL ||
            tt_grow((void **)&hub->peers, hub->peer_count, &hub->peer_capacity, sizeof *hub->peers) != 0) {
            tt_free(peer);
            close(socket);
            continue;
        }
        tt_wire_prepare_socket(socket);
        *peer = (struct peer){.socket = socket, .kind = PEER_NEW, .since = hub->now, .heard = hub->now};
        hub->peers[hub->peer_count++] = peer;
    }
}

/* ---- Looking at the clock ---- */

static void missing_ranks(struct tt_hub *hub, char *text, size_t text_bytes)
{
    int missing = 0;
    size_t at = 0;
    text[0] = '\0';
    for (int q = 0; q < hub->config.world_size; q++) {
        if (tt_hub_peer_of_rank(hub, q) != NULL && tt_hub_control_of_rank(hub, q) != NULL) continue;
        if (missing++ < 8) at += (size_t)snprintf(text + at, text_bytes - at, "%s%d", at > 0 ? ", " : "", q);
    }
    if (missing > 8) snprintf(text + at, text_bytes - at, " and %d more", missing - 8);
}

/* All are here: they are told, and where each of them is. */
static void begin(struct tt_hub *hub)
{
    int world_size = hub->config.world_size, count = 0;
    int32_t *machines = tt_calloc((size_t)world_size, sizeof *machines);
    if (machines == NULL) {
        tt_hub_fail(hub, 0);
        return;
    }
    for (int q = 0; q < world_size; q++) {
        const char *machine = tt_hub_control_of_rank(hub, q)->hello.machine;
        int same = 0;
        while (same < q && strcmp(tt_hub_control_of_rank(hub, same)->hello.machine, machine) != 0) same++;
        machines[q] = same < q ? machines[same] : count++;
    }
    hub->begun = true;
    send_to_processes(
        hub,
        (struct tt_wire_header){.kind = TT_WIRE_WELCOME, .bytes = (uint64_t)world_size * sizeof *machines},
        machines);
    tt_free(machines);
}

static void look_for_missing(struct tt_hub *hub)
{
    char missing[200];
    missing_ranks(hub, missing, sizeof missing);
    if (missing[0] == '\0') {
        begin(hub);
    } else if (hub->now - hub->started > hub->config.timeout_seconds) {
        tt_fail(TT_ERR_COMM, "rank %s of %d did not come to port %d within %.0f s", missing,
                hub->config.world_size, hub->config.port, hub->config.timeout_seconds);
        tt_hint("look at their messages; --rendezvous_timeout says how long to wait");
        tt_hub_fail(hub, 0);
    } else if (hub->now - hub->said > REMINDER_SECONDS) {
        tt_info("waiting at port %d for rank %s of %d", hub->config.port, missing, hub->config.world_size);
        hub->said = hub->now;
    }
}

static void declare_dead(struct tt_hub *hub, const struct peer *peer, const char *what)
{
    const struct peer *control = tt_hub_control_of_rank(hub, peer->hello.first_rank);
    const char *doing = control != NULL && control->doing[0] != '\0' ? control->doing : "nothing yet";
    char ranks[40];
    int first = peer->hello.first_rank, last = first + peer->hello.local_count - 1;
    snprintf(ranks, sizeof ranks, last > first ? "ranks %d to %d" : "rank %d", first, last);
    tt_fail(TT_ERR_PEER, "%s (process %lld on %s) %s; it was last in: %s", ranks,
            (long long)peer->hello.process, peer->hello.host, what, doing);
    tt_hint("it was stopped or killed, or its machine or network failed");
    tt_hub_fail(hub, first);
}

/* Connections that closed before the run began: the process may come again. */
static void forget_process(struct tt_hub *hub, const struct tt_wire_hello *hello)
{
    for (size_t i = 0; i < hub->peer_count; i++) {
        struct peer *peer = hub->peers[i];
        if (is_member(peer) && peer->hello.process == hello->process &&
            peer->hello.first_rank == hello->first_rank) {
            close_peer(peer);
            peer->kind = PEER_NEW; /* swept away as any that is closed */
        }
    }
}

static void look_at_peer(struct tt_hub *hub, struct peer *peer)
{
    char what[80];
    double now = hub->now;
    if (peer->kind == PEER_NEW && now - peer->since > HELLO_SECONDS) close_peer(peer);
    if (peer->kind == PEER_REFUSED && now - peer->since > REFUSED_SECONDS) close_peer(peer);
    if (!is_member(peer) || hub->aborted || hub->stopping > 0) return;
    if (peer->socket < 0 && !peer->left) {
        if (!hub->begun) {
            struct tt_wire_hello hello = peer->hello;
            forget_process(hub, &hello);
            return;
        }
        if (peer->gone == 0) peer->gone = now;
        if (now - peer->gone > GONE_SECONDS) declare_dead(hub, peer, "is gone without a word");
    } else if (peer->kind == PEER_CONTROL && hub->begun && !peer->left &&
               now - peer->heard > TT_WIRE_SILENCE_SECONDS) {
        snprintf(what, sizeof what, "has been silent for %.0f s", now - peer->heard);
        declare_dead(hub, peer, what);
    }
}

static void peer_free(struct peer *peer)
{
    close_peer(peer);
    tt_free(peer->payload);
    tt_str_deinit(&peer->out);
    tt_free(peer);
}

static void look_at_clock(struct tt_hub *hub, double before)
{
    if (hub->now - before > AWAY_SECONDS)
        for (size_t i = 0; i < hub->peer_count; i++) hub->peers[i]->heard += hub->now - before;
    for (size_t i = 0; i < hub->peer_count; i++) look_at_peer(hub, hub->peers[i]);
    if (!hub->begun && !hub->aborted && hub->stopping == 0) look_for_missing(hub);
    if (hub->now - hub->beaten > TT_WIRE_BEAT_SECONDS) {
        hub->beaten = hub->now;
        send_to_processes(hub, (struct tt_wire_header){.kind = TT_WIRE_BEAT}, NULL);
    }
    size_t kept = 0;
    for (size_t i = 0; i < hub->peer_count; i++) {
        struct peer *peer = hub->peers[i];
        if (peer->socket < 0 && !is_member(peer))
            peer_free(peer);
        else
            hub->peers[kept++] = peer;
    }
    hub->peer_count = kept;
}

/* At the hub's end: no more to send or to hear. */
static bool is_over(struct tt_hub *hub)
{
    if (hub->stopping == 0 && atomic_load(&hub->stop)) {
        hub->stopping = hub->now;
        send_to_processes(hub, (struct tt_wire_header){.kind = TT_WIRE_BYE}, NULL);
    }
    if (hub->stopping == 0) return false;
    bool open = false;
    for (size_t i = 0; i < hub->peer_count; i++) open |= hub->peers[i]->socket >= 0;
    return !open || hub->now - hub->stopping > FAREWELL_SECONDS;
}

static tt_status hub_main(void *argument)
{
    struct tt_hub *hub = argument;
    struct pollfd *files = NULL;
    size_t capacity = 0;
    tt_status status = TT_OK;
    while (!is_over(hub)) {
        if (capacity < hub->peer_count + 2) {
            capacity = 2 * hub->peer_count + 16;
            struct pollfd *more = tt_realloc(files, capacity, sizeof *files);
            if (more == NULL) TT_GO(TT_ERR_MEMORY);
            files = more;
        }
        /* The wish to stop is heard once; after it only the clock counts. */
        files[0] = (struct pollfd){.fd = hub->stopping > 0 ? -1 : hub->wake, .events = POLLIN};
        files[1] = (struct pollfd){.fd = hub->listener, .events = POLLIN};
        for (size_t i = 0; i < hub->peer_count; i++) {
            const struct peer *peer = hub->peers[i];
            short events = peer->out.bytes > 0 ? POLLIN | POLLOUT : POLLIN;
            files[i + 2] = (struct pollfd){.fd = peer->socket, .events = events};
        }
        double before = hub->now;
        (void)poll(files, (nfds_t)hub->peer_count + 2, hub->stopping > 0 ? 50 : POLL_MS);
        hub->now = tt_clock_seconds();
        serve(hub, PEER_CONTROL); /* first: a process that fails says so here before it closes the others */
        serve(hub, PEER_DATA);
        serve(hub, PEER_NEW);
        serve(hub, PEER_REFUSED);
        accept_all(hub);
        look_at_clock(hub, before);
    }
out:
    tt_free(files);
    return status;
}

/* ---- Beginning and end ---- */

static void hub_free(struct tt_hub *hub)
{
    for (size_t i = 0; i < hub->peer_count; i++) peer_free(hub->peers[i]);
    tt_hub_groups_deinit(hub);
    if (hub->listener >= 0) close(hub->listener);
    if (hub->wake >= 0) close(hub->wake);
    tt_free(hub->peers);
    tt_free(hub->settings);
    tt_free(hub);
}

/* Two connections a rank at most, and what the program has open besides. What cannot be raised shows when a
 * rank connects. */
static void raise_file_limit(int world_size)
{
    struct rlimit limit;
    rlim_t wanted = 2 * (rlim_t)world_size + 512;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= wanted) return;
    limit.rlim_cur = wanted < limit.rlim_max ? wanted : limit.rlim_max;
    (void)setrlimit(RLIMIT_NOFILE, &limit);
}

tt_status tt_hub_start(const struct tt_hub_config *config, struct tt_hub **out)
{
    tt_status status = TT_OK;
    struct tt_hub *hub = tt_calloc(1, sizeof *hub);
    if (hub == NULL) return TT_ERR_MEMORY;
    hub->config = *config;
    hub->listener = hub->wake = -1;
    hub->now = hub->started = hub->said = hub->beaten = tt_clock_seconds();
    hub->settings = tt_strdup(config->settings != NULL ? config->settings : "");
    if (hub->settings == NULL) TT_GO(TT_ERR_MEMORY);
    raise_file_limit(config->world_size);
    TT_GO(tt_hub_groups_init(hub));
    TT_GO(tt_wire_listen(config->port, &hub->listener));
    hub->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (hub->wake < 0) TT_GO(tt_fail_errno(errno, "cannot make an eventfd"));
    TT_GO(tt_thread_start("hub", hub_main, hub, &hub->thread));
    *out = hub;
out:
    if (status != TT_OK) hub_free(hub);
    return status;
}

void tt_hub_stop(struct tt_hub *hub)
{
    if (hub == NULL) return;
    struct tt_error record;
    tt_error_copy(&record);
    atomic_store(&hub->stop, true);
    uint64_t one = 1;
    (void)!write(hub->wake, &one, sizeof one);
    (void)!tt_thread_join(hub->thread);
    (void)tt_error_restore(&record);
    hub_free(hub);
}
