/* From a new connection to a member of the run.
 *
 * Strangers may connect, send anything, send it slowly, send nothing, and come back. What they get: room for
 * a bounded number of connections, a few hundred bytes and ten seconds each; when the room is full, the
 * origin with the most connections loses its oldest one, so that a process of the run, which says what it has
 * to say in milliseconds, gets through. With a job secret nothing that a connection says counts before its
 * proof. When all ranks have come, nobody is let in any more. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/log.h"
#include "comm/hub_impl.h"

enum {
    STRANGERS_MAX = 256, /* connections that are no members */
    STRANGERS_MIN = 16,
    FILES_OF_PROGRAM = 256, /* descriptors that the rest of the program may have open */
    ACCEPTS_AT_ONCE = 64,   /* then those that are here are served */
    ACCEPT_PAUSE_SECONDS = 1,
    REFUSAL_SECONDS = 10, /* between two lines about connections that were turned away */
};

/* ---- Opening ---- */

/* Two connections a rank at most, strangers, and what the program has open besides. */
static void raise_file_limit(struct tt_hub *hub)
{
    struct rlimit limit;
    rlim_t members = 2 * (rlim_t)hub->config.world_size + FILES_OF_PROGRAM, wanted = members + STRANGERS_MAX;
    hub->strangers_max = STRANGERS_MAX;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= wanted) return;
    limit.rlim_cur = wanted < limit.rlim_max ? wanted : limit.rlim_max;
    (void)setrlimit(RLIMIT_NOFILE, &limit);
    if (limit.rlim_cur >= wanted) return;
    rlim_t left = limit.rlim_cur > members ? limit.rlim_cur - members : 0;
    hub->strangers_max = left > STRANGERS_MIN ? (size_t)left : STRANGERS_MIN;
}

tt_status tt_hub_door_open(struct tt_hub *hub, const char *bind)
{
    raise_file_limit(hub);
    TT_TRY(tt_wire_listen(bind, hub->config.local, hub->config.port, &hub->door));
    if (!hub->config.key.is_set && !hub->door.local)
        tt_warn("port %d takes connections from other machines, and no job secret is set: whoever reaches it "
                "and knows the "
                "settings can take part in the run (TRIMTAB_JOB_SECRET_FILE, --rendezvous_bind: "
                "docs/sharding.md)",
                hub->config.port);
    return TT_OK;
}

void tt_hub_door_note(struct tt_hub *hub, const struct peer *peer, const char *why)
{
    hub->strangers_gone++;
    if (why == NULL) return;
    if (hub->said_refusal > 0 && hub->now - hub->said_refusal < REFUSAL_SECONDS) return;
    hub->said_refusal = hub->now;
    tt_warn("port %d: a connection from %s was turned away: %s (%llu so far that are not of this run)",
            hub->config.port, peer->from, why, (unsigned long long)hub->strangers_gone);
}

/* ---- New connections ---- */

static bool is_stranger(const struct peer *peer)
{
    return peer->socket >= 0 && !peer->proven && (peer->kind == PEER_NEW || peer->kind == PEER_REFUSED);
}

static size_t count_of_origin(const struct tt_hub *hub, const struct peer *peer)
{
    size_t count = 0;
    for (size_t i = 0; i < hub->peer_count; i++)
        count += is_stranger(hub->peers[i]) &&
                 memcmp(hub->peers[i]->origin, peer->origin, sizeof peer->origin) == 0;
    return count;
}

/* Of the busiest origin the one that has got least far, and of those the oldest: peers[] is in order of time.
 */
static void evict(struct tt_hub *hub)
{
    struct peer *victim = NULL;
    size_t most = 0;
    for (size_t i = 0; i < hub->peer_count; i++) {
        struct peer *peer = hub->peers[i];
        if (!is_stranger(peer)) continue;
        size_t count = count_of_origin(hub, peer);
        bool less_far = victim != NULL && count == most &&
                        memcmp(victim->origin, peer->origin, sizeof peer->origin) == 0 &&
                        peer->stage < victim->stage;
        if (count <= most && !less_far) continue;
        victim = peer;
        most = count;
    }
    if (victim == NULL) return;
    if (victim->kind == PEER_NEW) tt_hub_door_note(hub, victim, NULL);
    tt_hub_close_peer(victim);
}

static void admit(struct tt_hub *hub, int socket)
{
    size_t strangers = 0;
    for (size_t i = 0; i < hub->peer_count; i++) strangers += is_stranger(hub->peers[i]);
    if (strangers >= hub->strangers_max) evict(hub);
    struct peer *peer = tt_calloc(1, sizeof *peer);
    if (peer == NULL ||
        tt_grow((void **)&hub->peers, hub->peer_count, &hub->peer_capacity, sizeof *hub->peers) != 0) {
        tt_free(peer);
        close(socket);
        return;
    }
    tt_wire_prepare_socket(socket);
    *peer = (struct peer){.socket = socket, .kind = PEER_NEW, .since = hub->now, .heard = hub->now};
    tt_wire_origin(socket, peer->origin, peer->from, sizeof peer->from);
    hub->peers[hub->peer_count++] = peer;
}

void tt_hub_door_accept(struct tt_hub *hub)
{
    for (int d = 0; d < hub->door.count; d++) {
        for (int taken = 0; taken < ACCEPTS_AT_ONCE; taken++) {
            int socket = accept(hub->door.sockets[d], NULL, NULL);
            if (socket < 0 && (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS)) {
                evict(hub);
                hub->accept_again = hub->now + ACCEPT_PAUSE_SECONDS;
                return;
            }
            if (socket < 0 && (errno == EINTR || errno == ECONNABORTED)) continue;
            if (socket < 0) break;
            admit(hub, socket);
        }
    }
}

void tt_hub_door_shut(struct tt_hub *hub)
{
    tt_wire_door_close(&hub->door);
    for (size_t i = 0; i < hub->peer_count; i++)
        if (hub->peers[i]->kind == PEER_NEW) tt_hub_close_peer(hub->peers[i]);
    if (hub->strangers_gone > 0)
        tt_info("port %d is closed; %llu connections were not of this run", hub->config.port,
                (unsigned long long)hub->strangers_gone);
}

/* ---- Proof ---- */

/* `final`: trying again does not help. What is said to a stranger must be fit for strangers. */
static void refuse(struct tt_hub *hub, struct peer *peer, bool final, const char *text)
{
    tt_hub_send(hub, peer,
                (struct tt_wire_header){.kind = TT_WIRE_REFUSE, .parameter = final, .bytes = strlen(text)},
                text);
    peer->kind = PEER_REFUSED;
    peer->since = hub->now;
}

static void take_opening(struct tt_hub *hub, struct peer *peer)
{
    const struct tt_proof_key *key = &hub->config.key;
    if (!tt_proof_answer(key, &peer->proof)) {
        tt_hub_door_note(hub, peer, "it sent bytes that are no message");
        tt_hub_close_peer(peer);
        return;
    }
    tt_hub_send_raw(hub, peer, &peer->proof.challenge, sizeof peer->proof.challenge);
    bool same = peer->proof.opening.secured == (uint32_t)key->is_set;
    if (!same) {
        tt_hub_door_note(hub, peer,
                         key->is_set ? "it has no job secret"
                                     : "it has a job secret, and this process has none");
        peer->kind = PEER_REFUSED; /* the challenge tells it */
        peer->since = hub->now;
    }
    peer->stage = key->is_set ? STAGE_SUM : STAGE_HELLO;
}

static void take_sum(struct tt_hub *hub, struct peer *peer)
{
    unsigned char own[TT_PROOF_SUM_BYTES];
    const struct tt_proof_key *key = &hub->config.key;
    if (!tt_proof_verify(key, &peer->proof, TT_PROOF_OPENER, peer->sum)) {
        tt_hub_door_note(hub, peer, "its job secret is another one");
        tt_hub_close_peer(peer);
        return;
    }
    tt_proof_sum(key, &peer->proof, TT_PROOF_ACCEPTER, own);
    peer->proven = true;
    peer->stage = STAGE_HELLO;
    tt_hub_send_raw(hub, peer, own, sizeof own);
}

bool tt_hub_door_read(struct tt_hub *hub, struct peer *peer)
{
    bool opening = peer->stage == STAGE_OPENING;
    char *to = opening ? (char *)&peer->proof.opening : (char *)peer->sum;
    size_t all = opening ? sizeof peer->proof.opening : sizeof peer->sum;
    ssize_t got = recv(peer->socket, to + peer->proof_have, all - peer->proof_have, 0);
    if (got < 0 && errno == EINTR) return true;
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return false;
    if (got <= 0) {
        tt_hub_door_note(hub, peer, NULL);
        tt_hub_close_peer(peer);
        return false;
    }
    peer->proof_have += (size_t)got;
    if (peer->proof_have < all) return true;
    peer->proof_have = 0;
    if (opening)
        take_opening(hub, peer);
    else
        take_sum(hub, peer);
    return peer->socket >= 0;
}

/* ---- Hello ---- */

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
static bool accepts(const struct tt_hub *hub, const struct peer *peer, char *why, size_t why_bytes)
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

/* A rank's connection comes from the process whose control connection was accepted: it shows that one's
 * token. */
static bool belongs(const struct tt_hub *hub, const struct peer *peer)
{
    const struct tt_wire_hello *hello = &peer->hello;
    const struct peer *control = tt_hub_control_of_rank(hub, hello->rank);
    return control != NULL && control->hello.first_rank == hello->first_rank &&
           control->hello.local_count == hello->local_count && control->hello.process == hello->process &&
           tt_proof_same(control->token, hello->token, sizeof hello->token);
}

/* Other settings end the run when they come from a process that belongs to it for certain; a stranger's cost
 * him his connection, and he does not learn ours. */
static bool has_our_settings(struct tt_hub *hub, struct peer *peer, const char *settings)
{
    char ours[120], theirs[120], text[600], host[80];
    if (strcmp(hub->settings, settings) == 0) return true;
    find_difference(hub->settings, settings, ours, theirs);
    int rank = peer->hello.first_rank;
    snprintf(host, sizeof host, "%s", peer->hello.host);
    snprintf(text, sizeof text, "the settings of rank %d differ: '%s', where rank 0 has '%s'", rank, theirs,
             ours);
    if (peer->proven || hub->door.local) {
        tt_fail(TT_ERR_USAGE, "%s", text);
        struct tt_error error;
        tt_error_copy(&error);
        tt_hub_abort(hub, rank, &error, UINT64_MAX); /* before the refusal: that process tells it */
    } else {
        tt_hub_door_note(hub, peer, text);
        snprintf(text, sizeof text,
                 "the settings of rank %d differ from rank 0's in '%.*s'; the log of rank 0 has both", rank,
                 (int)strcspn(theirs, ":"), theirs);
    }
    refuse(hub, peer, true, text);
    return false;
}

static void accept_member(struct tt_hub *hub, struct peer *peer)
{
    struct tt_wire_accept accept = {.process = getpid()};
    bool control = peer->hello.rank < 0;
    tt_wire_host(accept.host, sizeof accept.host);
    if (control) {
        tt_proof_random(peer->token, sizeof peer->token);
        memcpy(accept.token, peer->token, sizeof accept.token);
    }
    peer->kind = control ? PEER_CONTROL : PEER_DATA;
    tt_hub_send(hub, peer, (struct tt_wire_header){.kind = TT_WIRE_ACCEPT, .bytes = sizeof accept}, &accept);
}

void tt_hub_door_hello(struct tt_hub *hub, struct peer *peer)
{
    char why[400];
    struct tt_wire_hello *hello = &peer->hello;
    memcpy(hello, peer->payload, sizeof *hello);
    tt_wire_clean_text(hello->version, sizeof hello->version, hello->version, sizeof hello->version);
    tt_wire_clean_text(hello->machine, sizeof hello->machine, hello->machine, sizeof hello->machine);
    tt_wire_clean_text(hello->host, sizeof hello->host, hello->host, sizeof hello->host);
    bool control = hello->rank < 0, possible = accepts(hub, peer, why, sizeof why);
    if (possible && (control ? TT_PROOF_CONTROL : TT_PROOF_DATA) != peer->proof.opening.role) {
        possible = false;
        snprintf(why, sizeof why, "this connection was opened for something else");
    }
    if (!possible) {
        tt_hub_door_note(hub, peer, why);
        refuse(hub, peer, true, why);
        return;
    }
    if (control && hub->aborted) { /* it came after the word was spread */
        tt_hub_send(hub, peer, hub->abort_header, &hub->abort_error);
        peer->kind = PEER_REFUSED;
        peer->since = hub->now;
        return;
    }
    if (!control && !belongs(hub, peer))
        snprintf(why, sizeof why, "rank %d belongs to another process", (int)hello->rank);
    else if (!is_taken(hub, peer, why, sizeof why)) {
        if (!control || has_our_settings(hub, peer, peer->payload + sizeof *hello)) accept_member(hub, peer);
        return;
    }
    tt_hub_door_note(hub, peer, why);
    refuse(hub, peer, false, why);
}
