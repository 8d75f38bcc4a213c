/* The hub's connections. Its thread sleeps in poll, reads received frames, and twice a second checks for processes that
 * have not joined, are silent or have closed without TT_WIRE_BYE. hub_admit.c decides which connections are members. */
#include "comm/hub_impl.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/number.h"
#include "base/thread.h"

enum {
    POLL_MS = 500,
    REFUSED_SECONDS = 5,      /* time for a refused process to read its refusal */
    REMINDER_SECONDS = 10,    /* between log lines about missing ranks */
    GONE_SECONDS = 1,         /* after a close: a failed process may close before its message is read */
    FAREWELL_SECONDS = 2,     /* the hub waits for the others to close, when it stops */
    HELLO_SLACK_BYTES = 4096, /* another process's settings may be longer than twice rank 0's by this */
    AWAY_SECONDS = 4, /* a longer pause means that the hub itself was stopped, not that others are silent */
};

/* ---- Sending ---- */

static bool is_member(const struct peer *peer)
{
    return peer->kind == PEER_CONTROL;
}

static void flush(struct peer *peer)
{
    while (peer->candidate.socket >= 0 && peer->out_sent < peer->out.bytes) {
        ssize_t sent = send(peer->candidate.socket, peer->out.data + peer->out_sent,
                            peer->out.bytes - peer->out_sent, MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR) continue;
        /* the buffer is full, or the connection is closed, which the next read reports */
        if (sent <= 0) return;
        peer->out_sent += (size_t)sent;
    }
    if (peer->out_sent == peer->out.bytes) {
        tt_str_clear(&peer->out);
        peer->out_sent = 0;
    }
}

/* Memory does not suffice for a frame: the connection ends, since a part of a frame must not be sent. */
static void drop_peer(struct tt_hub *hub, struct peer *peer)
{
    tt_candidate_close(&peer->candidate);
    if (is_member(peer)) tt_hub_fail(hub, 0);
}

void tt_hub_send(struct tt_hub *hub, struct peer *peer, struct tt_wire_header header, const void *payload)
{
    header.magic = TT_WIRE_MAGIC;
    if (peer->candidate.socket < 0) return;
    tt_status status = tt_str_append(&peer->out, (const char *)&header, sizeof header);
    if (status == TT_OK && header.bytes > 0)
        status = tt_str_append(&peer->out, payload, (size_t)header.bytes);
    if (status != TT_OK && !hub->aborted) {
        drop_peer(hub, peer);
        return;
    }
    flush(peer);
}

static void send_to_processes(struct tt_hub *hub, struct tt_wire_header header, const void *payload)
{
    for (size_t i = 0; i < hub->peer_count; i++)
        if (hub->peers[i]->kind == PEER_CONTROL) tt_hub_send(hub, hub->peers[i], header, payload);
}

void tt_hub_abort(struct tt_hub *hub, int rank, const struct tt_error *error, uint64_t reporter)
{
    if (hub->aborted) return;
    hub->aborted = true;
    hub->abort_error = *error;
    hub->abort_header = (struct tt_wire_header){
        .kind = TT_WIRE_ABORT, .parameter = rank, .offset = reporter, .bytes = sizeof *error};
    send_to_processes(hub, hub->abort_header, &hub->abort_error);
}

void tt_hub_fail(struct tt_hub *hub, int rank)
{
    struct tt_error error;
    tt_error_copy(&error);
    tt_hub_abort(hub, rank, &error, 0);
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

/* ---- Receiving ---- */

/* The largest payload that a connection may send in a frame of this kind; -1: it may not send this kind. */
static int64_t payload_max(const struct tt_hub *hub, const struct peer *peer)
{
    switch (peer->header.kind) {
    case TT_WIRE_HELLO:
        return peer->kind == PEER_NEW ? hub->hello_bytes_max : -1;
    case TT_WIRE_PLACE:
        return is_member(peer) && !hub->begun ? (int64_t)sizeof(struct tt_wire_address) : -1;
    case TT_WIRE_BYE:
        return is_member(peer) ? 0 : -1;
    case TT_WIRE_BEAT:
        return is_member(peer) ? TT_WIRE_TEXT_BYTES_MAX : -1;
    case TT_WIRE_ABORT:
        return is_member(peer) ? (int64_t)sizeof(struct tt_error) : -1;
    default:
        return -1;
    }
}

static void handle_frame(struct tt_hub *hub, struct peer *peer)
{
    size_t bytes = (size_t)peer->header.bytes;
    struct tt_error error;
    switch (peer->header.kind) {
    case TT_WIRE_HELLO:
        tt_hub_handle_hello(hub, peer);
        break;
    case TT_WIRE_PLACE:
        tt_hub_handle_place(hub, peer);
        break;
    case TT_WIRE_BYE:
        peer->left = true;
        break;
    case TT_WIRE_BEAT:
        tt_wire_clean_text(peer->payload, bytes, peer->activity, sizeof peer->activity);
        break;
    case TT_WIRE_ABORT:
        if (bytes != sizeof error) break;
        memcpy(&error, peer->payload, sizeof error);
        tt_wire_clean_error(&error);
        tt_hub_abort(hub, peer->header.parameter, &error, UINT64_MAX);
        break;
    }
}

void tt_hub_reject(struct tt_hub *hub, struct peer *peer)
{
    if (peer->kind == PEER_NEW)
        tt_listener_log_stranger(&hub->listener, &peer->candidate, "it sent bytes that are not a message",
                                 hub->now);
    tt_candidate_close(&peer->candidate);
    if (!is_member(peer) || hub->aborted) return;
    tt_fail(TT_ERR_COMM, "rank %d (%s) sent bytes that are not a message", (int)peer->hello.first_rank,
            peer->hello.host);
    tt_hub_fail(hub, peer->hello.first_rank);
}

/* Checks a complete header and allocates the payload. */
static bool accept_header(struct tt_hub *hub, struct peer *peer)
{
    int64_t most = payload_max(hub, peer);
    bool hello = peer->header.kind == TT_WIRE_HELLO;
    if (most < 0 || peer->header.bytes > (uint64_t)most ||
        (hello && peer->header.bytes < sizeof(struct tt_wire_hello))) {
        tt_hub_reject(hub, peer);
        return false;
    }
    peer->payload = tt_alloc_aligned((size_t)peer->header.bytes + 1);
    if (peer->payload == NULL) drop_peer(hub, peer);
    return peer->payload != NULL;
}

/* false: no more bytes to read. */
static bool read_proof(struct tt_hub *hub, struct peer *peer)
{
    enum tt_candidate_result result = tt_candidate_read(&hub->listener, &peer->candidate, hub->now);
    if (result == TT_CANDIDATE_KEY_MISMATCH) {
        peer->kind = PEER_REFUSED;
        peer->candidate.since = hub->now;
    }
    return result == TT_CANDIDATE_PROGRESS;
}

/* Reads a part of a frame and handles the frame when it is complete. false: no more bytes to read. */
static bool read_some(struct tt_hub *hub, struct peer *peer)
{
    if (peer->kind == PEER_NEW && peer->candidate.stage != TT_CANDIDATE_READY) return read_proof(hub, peer);
    bool in_header = peer->header_have < sizeof peer->header;
    char *to = in_header ? (char *)&peer->header + peer->header_have : peer->payload + peer->payload_have;
    size_t want =
        in_header ? sizeof peer->header - peer->header_have : (size_t)peer->header.bytes - peer->payload_have;
    ssize_t got = want > 0 ? recv(peer->candidate.socket, to, want, 0) : 0;
    if (want > 0 && got < 0 && errno == EINTR) return true;
    if (want > 0 && got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return false;
    if (want > 0 && got <= 0) {
        if (peer->kind == PEER_NEW)
            tt_listener_log_stranger(&hub->listener, &peer->candidate, NULL, hub->now);
        tt_candidate_close(&peer->candidate);
        return false;
    }
    peer->received_at = hub->now;
    if (in_header) {
        peer->header_have += (size_t)got;
        if (peer->header_have >= sizeof peer->header.magic && peer->header.magic != TT_WIRE_MAGIC)
            tt_hub_reject(hub, peer);
        if (peer->candidate.socket < 0 || peer->header_have < sizeof peer->header)
            return peer->candidate.socket >= 0;
        if (!accept_header(hub, peer)) return false;
    } else {
        peer->payload_have += (size_t)got;
    }
    if (peer->payload_have < peer->header.bytes) return true;
    peer->payload[peer->payload_have] = '\0';
    handle_frame(hub, peer);
    tt_free(peer->payload);
    peer->payload = NULL;
    peer->header_have = peer->payload_have = 0;
    return peer->candidate.socket >= 0;
}

static void serve_peers(struct tt_hub *hub, enum peer_kind kind)
{
    for (size_t i = 0; i < hub->peer_count; i++) {
        struct peer *peer = hub->peers[i];
        if (peer->kind != kind || peer->candidate.socket < 0) continue;
        while (peer->kind == kind && read_some(hub, peer)) continue;
        flush(peer);
    }
}

/* ---- Timeouts ---- */

static void missing_ranks(struct tt_hub *hub, char *text, size_t text_bytes)
{
    int missing = 0;
    size_t at = 0;
    text[0] = '\0';
    for (int q = 0; q < hub->config.world_size; q++) {
        const struct peer *control = tt_hub_control_of_rank(hub, q);
        if (control != NULL && control->place.port > 0) continue;
        if (missing++ < 8) at += (size_t)snprintf(text + at, text_bytes - at, "%s%d", at > 0 ? ", " : "", q);
    }
    if (missing > 8) snprintf(text + at, text_bytes - at, " and %d more", missing - 8);
}

/* Fills ranks[world_size] with the number of each rank's machine, from 0, and its address. Returns the number of
 * machines. */
static int list_ranks(const struct tt_hub *hub, struct tt_wire_rank *ranks)
{
    int count = 0;
    for (int q = 0; q < hub->config.world_size; q++) {
        const struct peer *control = tt_hub_control_of_rank(hub, q);
        int same = 0;
        while (same < q &&
               strcmp(tt_hub_control_of_rank(hub, same)->hello.machine, control->hello.machine) != 0)
            same++;
        ranks[q].machine = same < q ? ranks[same].machine : count++;
        ranks[q].place = control->place;
    }
    return count;
}

static void name_ranks(const struct tt_wire_hello *hello, char *text, size_t bytes)
{
    int first = hello->first_rank, last = first + hello->local_count - 1;
    snprintf(text, bytes, last > first ? "ranks %d to %d" : "rank %d", first, last);
}

/* The counterpart of the line of every other process (meet.c): who this one is and whom it has met. */
static void log_members(const struct tt_hub *hub, int machines)
{
    enum { NAMED_MAX = 8 };
    char text[1024] = "", own[40], ranks[40];
    const struct peer *rank0 = tt_hub_control_of_rank(hub, 0), *peer;
    int named = 0, others = 0;
    size_t at = 0;
    for (int q = rank0->hello.local_count; q < hub->config.world_size; q += peer->hello.local_count) {
        peer = tt_hub_control_of_rank(hub, q);
        others++;
        if (named == NAMED_MAX || at >= sizeof text) continue;
        named++;
        name_ranks(&peer->hello, ranks, sizeof ranks);
        at += (size_t)snprintf(text + at, sizeof text - at, "%s%s, process %lld on %s", at > 0 ? "; " : "",
                               ranks, (long long)peer->hello.process, peer->hello.host);
    }
    name_ranks(&rank0->hello, own, sizeof own);
    tt_notice("%s of %d: process %lld on %s (%d machine%s); met %s%s", own, hub->config.world_size,
              (long long)rank0->hello.process, rank0->hello.host, machines, machines == 1 ? "" : "s", text,
              others > named ? "; ..." : "");
}

/* Called when all ranks have joined: sends everybody's address to all. */
static void begin(struct tt_hub *hub)
{
    int world_size = hub->config.world_size;
    size_t bytes = sizeof(struct tt_wire_welcome) + (size_t)world_size * sizeof(struct tt_wire_rank);
    struct tt_wire_welcome *welcome = tt_calloc(1, bytes);
    if (welcome == NULL) {
        tt_hub_fail(hub, 0);
        return;
    }
    tt_proof_random(welcome->key, sizeof welcome->key);
    int machines = list_ranks(hub, welcome->ranks);
    hub->begun = true;
    /* Processes beat from now on: those that joined early have been silent until now. */
    for (size_t i = 0; i < hub->peer_count; i++) hub->peers[i]->received_at = hub->now;
    tt_hub_end_joining(hub);
    tt_info("all %d ranks have joined, on %d machine%s, after %.1f s", world_size, machines,
            machines == 1 ? "" : "s", hub->now - hub->started);
    log_members(hub, machines);
    send_to_processes(hub, (struct tt_wire_header){.kind = TT_WIRE_WELCOME, .bytes = bytes}, welcome);
    tt_proof_wipe(welcome, bytes);
    tt_free(welcome);
}

static void check_missing(struct tt_hub *hub)
{
    char missing[200];
    missing_ranks(hub, missing, sizeof missing);
    if (missing[0] == '\0') {
        begin(hub);
    } else if (hub->now - hub->started > hub->config.timeout_seconds) {
        tt_fail(TT_ERR_COMM, "rank %s of %d did not connect to port %d within %.0f s", missing,
                hub->config.world_size, hub->config.port, hub->config.timeout_seconds);
        if (hub->refused[0] != '\0')
            tt_hint("a process was refused: %s", hub->refused);
        else if (tt_wire_is_elsewhere(hub->config.host))
            tt_hint("no interface of this machine has the address '%s', at which the other ranks look for "
                    "rank 0: "
                    "MASTER_ADDR or --main_process_ip is that of another machine, unless it leads here (a "
                    "Service)",
                    hub->config.host);
        else
            tt_hint("see the logs of these ranks; --rendezvous_timeout sets the time to wait");
        tt_hub_fail(hub, 0);
    } else if (hub->now - hub->logged_at > REMINDER_SECONDS) {
        tt_info("waiting at port %d for rank %s of %d; %llu connections from outside the run so far",
                hub->config.port, missing, hub->config.world_size,
                (unsigned long long)hub->listener.strangers);
        hub->logged_at = hub->now;
    }
}

static void declare_dead(struct tt_hub *hub, const struct peer *peer, const char *what)
{
    const struct peer *control = tt_hub_control_of_rank(hub, peer->hello.first_rank);
    const char *activity = control != NULL && control->activity[0] != '\0' ? control->activity : "none yet";
    char ranks[40];
    int first = peer->hello.first_rank;
    name_ranks(&peer->hello, ranks, sizeof ranks);
    tt_fail(TT_ERR_PEER, "%s (process %lld on %s) %s; its last activity: %s", ranks,
            (long long)peer->hello.process, peer->hello.host, what, activity);
    tt_hint("it was stopped or killed, or its machine or network failed");
    tt_hub_fail(hub, first);
}

/* Members only. Before the run has begun, a process that leaves has failed, too: the others wait for it. */
static void check_member(struct tt_hub *hub, struct peer *peer)
{
    char what[80];
    if (peer->candidate.socket < 0 && (!peer->left || !hub->begun)) {
        if (peer->closed_at == 0) peer->closed_at = hub->now;
        if (hub->now - peer->closed_at > GONE_SECONDS)
            declare_dead(hub, peer,
                         hub->begun ? "closed its connection unexpectedly"
                                    : "closed its connection before all ranks had joined");
    } else if (hub->begun && !peer->left && hub->now - peer->received_at > TT_WIRE_SILENCE_SECONDS) {
        tt_snprintf(what, sizeof what, "has been silent for %.0f s", hub->now - peer->received_at);
        declare_dead(hub, peer, what);
    }
}

static void check_peer(struct tt_hub *hub, struct peer *peer)
{
    if (is_member(peer)) {
        if (!hub->aborted && hub->stopping == 0) check_member(hub, peer);
    } else if (peer->candidate.socket >= 0 &&
               hub->now - peer->candidate.since >
                   (peer->kind == PEER_NEW ? TT_CANDIDATE_SECONDS : REFUSED_SECONDS)) {
        if (peer->kind == PEER_NEW)
            tt_listener_log_stranger(&hub->listener, &peer->candidate, NULL, hub->now);
        tt_candidate_close(&peer->candidate);
    }
}

static void peer_free(struct peer *peer)
{
    tt_candidate_close(&peer->candidate);
    tt_free(peer->payload);
    tt_str_deinit(&peer->out);
    tt_free(peer);
}

static void check_timeouts(struct tt_hub *hub, double before)
{
    if (hub->now - before > AWAY_SECONDS)
        for (size_t i = 0; i < hub->peer_count; i++) hub->peers[i]->received_at += hub->now - before;
    for (size_t i = 0; i < hub->peer_count; i++) check_peer(hub, hub->peers[i]);
    if (!hub->begun && !hub->aborted && hub->stopping == 0) check_missing(hub);
    if (hub->now - hub->beat_at > TT_WIRE_BEAT_SECONDS) {
        hub->beat_at = hub->now;
        send_to_processes(hub, (struct tt_wire_header){.kind = TT_WIRE_BEAT}, NULL);
    }
    size_t kept = 0;
    for (size_t i = 0; i < hub->peer_count; i++) {
        struct peer *peer = hub->peers[i];
        if (peer->candidate.socket < 0 && !is_member(peer))
            peer_free(peer);
        else
            hub->peers[kept++] = peer;
    }
    hub->peer_count = kept;
}

/* True when the hub is stopped and all connections are closed, or FAREWELL_SECONDS later. */
static bool is_over(struct tt_hub *hub)
{
    if (hub->stopping == 0 && atomic_load(&hub->stop)) {
        hub->stopping = hub->now;
        tt_wire_listener_close(&hub->listener.wire);
        send_to_processes(hub, (struct tt_wire_header){.kind = TT_WIRE_BYE}, NULL);
    }
    if (hub->stopping == 0) return false;
    bool open = false;
    for (size_t i = 0; i < hub->peer_count; i++) open |= hub->peers[i]->candidate.socket >= 0;
    return !open || hub->now - hub->stopping > FAREWELL_SECONDS;
}

/* Fills hub->files[0 .. *count - 1] for poll. */
static tt_status list_files(struct tt_hub *hub, bool accepts, nfds_t *count)
{
    size_t fixed = 1 + TT_WIRE_ADDRESSES_MAX;
    if (hub->file_capacity < hub->peer_count + fixed) {
        size_t capacity = 2 * hub->peer_count + 2 * fixed;
        struct pollfd *more = tt_realloc(hub->files, capacity, sizeof *more);
        if (more == NULL) return TT_ERR_MEMORY;
        hub->files = more;
        hub->file_capacity = capacity;
    }
    /* The wake event stays readable, so it is polled only until the hub begins to stop. */
    hub->files[0] = (struct pollfd){.fd = hub->stopping > 0 ? -1 : hub->wake, .events = POLLIN};
    for (int i = 0; i < TT_WIRE_ADDRESSES_MAX; i++)
        hub->files[1 + i] = (struct pollfd){
            .fd = accepts && i < hub->listener.wire.count ? hub->listener.wire.sockets[i] : -1,
            .events = POLLIN};
    for (size_t i = 0; i < hub->peer_count; i++) {
        const struct peer *peer = hub->peers[i];
        short events = peer->out.bytes > 0 ? POLLIN | POLLOUT : POLLIN;
        hub->files[fixed + i] = (struct pollfd){.fd = peer->candidate.socket, .events = events};
    }
    *count = (nfds_t)(fixed + hub->peer_count);
    return TT_OK;
}

static tt_status hub_main(void *argument)
{
    struct tt_hub *hub = argument;
    nfds_t count;
    while (!is_over(hub)) {
        bool accepts = hub->now >= hub->listener.retry_at;
        double before = hub->now;
        TT_TRY(list_files(hub, accepts, &count));
        (void)poll(hub->files, count, hub->stopping > 0 ? 50 : POLL_MS);
        hub->now = tt_clock_seconds();
        serve_peers(hub, PEER_CONTROL);
        serve_peers(hub, PEER_NEW);
        serve_peers(hub, PEER_REFUSED);
        if (accepts) tt_hub_accept(hub);
        check_timeouts(hub, before);
    }
    return TT_OK;
}

/* ---- Beginning and end ---- */

static void hub_free(struct tt_hub *hub)
{
    for (size_t i = 0; i < hub->peer_count; i++) peer_free(hub->peers[i]);
    tt_wire_listener_close(&hub->listener.wire);
    tt_proof_wipe(&hub->config.key, sizeof hub->config.key);
    if (hub->wake >= 0) close(hub->wake);
    tt_free(hub->files);
    tt_free(hub->peers);
    tt_free(hub->settings);
    tt_free(hub);
}

tt_status tt_hub_start(const struct tt_hub_config *config, struct tt_hub **out)
{
    tt_status status = TT_OK;
    struct tt_hub *hub = tt_calloc(1, sizeof *hub);
    if (hub == NULL) return TT_ERR_MEMORY;
    hub->config = *config;
    hub->config.bind = NULL; /* borrowed only until this function returns */
    hub->wake = -1;
    hub->now = hub->started = hub->logged_at = hub->beat_at = tt_clock_seconds();
    hub->settings = tt_strdup(config->settings != NULL ? config->settings : "");
    if (hub->settings == NULL) TT_GO(TT_ERR_MEMORY);
    hub->hello_bytes_max =
        (int64_t)(sizeof(struct tt_wire_hello) + 2 * strlen(hub->settings)) + HELLO_SLACK_BYTES;
    TT_GO(tt_hub_listen(hub, config->bind));
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
