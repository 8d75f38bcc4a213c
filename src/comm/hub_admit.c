/* Admission of members: from a new connection (listener.h limits what strangers can use) to a member of the run. The
 * hub stops listening when all ranks have joined. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/log.h"
#include "comm/hub_impl.h"

/* ---- Listening ---- */

tt_status tt_hub_listen(struct tt_hub *hub, const char *bind)
{
    hub->listener.key = &hub->config.key;
    hub->listener.port = hub->config.port;
    hub->listener.no_key = "it has no job secret";
    hub->listener.other_key = "its job secret differs";
    hub->listener.candidates_max = tt_listener_capacity((size_t)hub->config.world_size + hub->config.lines);
    TT_TRY(tt_wire_listen(bind, hub->config.local, hub->config.port, &hub->listener.wire));
    if (!hub->config.key.is_set && !hub->listener.wire.local)
        tt_warn("port %d accepts connections from other machines, and no job secret is set: anyone who "
                "reaches it and knows the settings can join the run (TRIMTAB_JOB_SECRET_FILE, "
                "--rendezvous_bind: docs/sharding.md)",
                hub->config.port);
    return TT_OK;
}

static bool is_stranger(const struct peer *peer)
{
    return peer->candidate.socket >= 0 && !peer->candidate.proven && peer->kind != PEER_CONTROL;
}

static size_t count_strangers(const struct tt_hub *hub)
{
    size_t count = 0;
    for (size_t i = 0; i < hub->peer_count; i++) count += is_stranger(hub->peers[i]);
    return count;
}

static void evict(struct tt_hub *hub)
{
    struct tt_candidate *candidates[TT_CANDIDATES_MAX];
    size_t count = 0;
    for (size_t i = 0; i < hub->peer_count && count < TT_CANDIDATES_MAX; i++)
        if (is_stranger(hub->peers[i])) candidates[count++] = &hub->peers[i]->candidate;
    struct tt_candidate *victim = tt_listener_choose_victim(candidates, count);
    if (victim == NULL) return;
    tt_listener_log_stranger(&hub->listener, victim, NULL, hub->now);
    tt_candidate_close(victim);
}

static void add_peer(struct tt_hub *hub, int socket)
{
    if (count_strangers(hub) >= hub->listener.candidates_max) evict(hub);
    struct peer *peer = tt_calloc(1, sizeof *peer);
    if (peer == NULL || tt_grow(&hub->peers, hub->peer_count, &hub->peer_capacity) != 0) {
        tt_free(peer);
        close(socket);
        return;
    }
    *peer = (struct peer){.kind = PEER_NEW, .received_at = hub->now};
    tt_candidate_init(&peer->candidate, socket, hub->now);
    tt_wire_address_of(socket, true, &peer->address);
    hub->peers[hub->peer_count++] = peer;
}

void tt_hub_accept(struct tt_hub *hub)
{
    bool full = false;
    for (int taken = 0; taken < TT_LISTENER_ACCEPTS_AT_ONCE; taken++) {
        int socket = tt_listener_accept(&hub->listener, hub->now, &full);
        if (full) evict(hub);
        if (socket < 0) return;
        add_peer(hub, socket);
    }
}

void tt_hub_end_joining(struct tt_hub *hub)
{
    if (!hub->config.key.is_set) tt_hub_close_listener(hub);
}

void tt_hub_close_listener(struct tt_hub *hub)
{
    tt_wire_listener_close(&hub->listener.wire);
    for (size_t i = 0; i < hub->peer_count; i++)
        if (hub->peers[i]->kind == PEER_NEW) tt_candidate_close(&hub->peers[i]->candidate);
    if (hub->listener.strangers > 0)
        tt_info("port %d is closed; %llu connections came from outside the run", hub->config.port,
                (unsigned long long)hub->listener.strangers);
}

/* ---- Hello ---- */

/* Sends a refusal of this kind (enum tt_wire_refusal). The receiver may be a stranger: `text` must not disclose
 * settings. */
static void refuse(struct tt_hub *hub, struct peer *peer, int kind, const char *text)
{
    tt_hub_send(hub, peer,
                (struct tt_wire_header){.kind = TT_WIRE_REFUSE, .parameter = kind, .bytes = strlen(text)},
                text);
    peer->kind = PEER_REFUSED;
    peer->candidate.since = hub->now;
}

/* Copies the first line in which two texts differ. */
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

/* Checks the version of a hello. false: the reason is in `why`. */
static bool is_same_program(const struct peer *peer, char *why, size_t why_bytes)
{
    const struct tt_wire_hello *hello = &peer->hello;
    if (strcmp(hello->version, TT_VERSION) == 0 && hello->byte_order == TT_WIRE_MAGIC &&
        hello->error_bytes == sizeof(struct tt_error))
        return true;
    snprintf(why, why_bytes, "rank 0 runs trimtab %s, this process %s%s", TT_VERSION, hello->version,
             strcmp(hello->version, TT_VERSION) != 0 ? "" : " of another build");
    return false;
}

/* The same for its ranks. */
static bool has_valid_ranks(const struct tt_hub *hub, const struct peer *peer, char *why, size_t why_bytes)
{
    const struct tt_wire_hello *hello = &peer->hello;
    int world_size = hub->config.world_size;
    if (hello->world_size != world_size)
        snprintf(why, why_bytes, "rank 0 was started for %d ranks, this process for %d", world_size,
                 (int)hello->world_size);
    else if (hello->first_rank < 0 || hello->local_count < 1 || hello->first_rank >= world_size ||
             hello->local_count > world_size - hello->first_rank)
        snprintf(why, why_bytes, "rank %d of %d does not exist", (int)hello->first_rank, world_size);
    else
        return true;
    return false;
}

/* True for a process of another run, or of another attempt of this one. If a member of the run is of a later attempt,
 * this process is the one that came back, and ends. */
static bool is_of_other_start(struct tt_hub *hub, struct peer *peer)
{
    const struct tt_wire_hello *hello = &peer->hello;
    const struct tt_hub_config *own = &hub->config;
    char text[400];
    int kind = TT_WIRE_REFUSAL_TWIN | TT_WIRE_REFUSAL_FINAL;
    bool known = own->attempt >= 0 && hello->attempt >= 0;
    bool other_run = own->run[0] != '\0' && hello->run[0] != '\0' && strcmp(own->run, hello->run) != 0;
    if (other_run) {
        snprintf(text, sizeof text, "rank 0 is of run '%.79s', rank %d on %s of run '%s'", own->run,
                 (int)hello->first_rank, hello->host, hello->run);
    } else if (known && hello->attempt < own->attempt) {
        snprintf(text, sizeof text, "rank %d on %s is of attempt %lld, which has ended: attempt %lld runs",
                 (int)hello->first_rank, hello->host, (long long)hello->attempt, (long long)own->attempt);
    } else if (known && hello->attempt > own->attempt) {
        snprintf(text, sizeof text,
                 "rank 0 is of attempt %lld, and attempt %lld has begun with rank %d on %s",
                 (long long)own->attempt, (long long)hello->attempt, (int)hello->first_rank, hello->host);
        kind = TT_WIRE_REFUSAL_TWIN; /* until that attempt's rank 0 is at the address */
        if (peer->candidate.proven) {
            tt_fail(TT_ERR_PEER, "%s", text);
            tt_hub_fail(hub, 0);
        }
    } else {
        return false;
    }
    tt_listener_log_stranger(&hub->listener, &peer->candidate, text, hub->now);
    if (other_run && !peer->candidate.proven)
        snprintf(text, sizeof text, "rank %d is of another run than rank 0, whose log names both",
                 (int)hello->first_rank);
    refuse(hub, peer, kind, text);
    return true;
}

/* True if another process has one of the ranks already. */
static bool is_taken(const struct tt_hub *hub, const struct peer *peer, char *why, size_t why_bytes)
{
    const struct tt_wire_hello *hello = &peer->hello;
    const struct peer *other = NULL;
    for (int r = 0; r < hello->local_count && other == NULL; r++)
        other = tt_hub_control_of_rank(hub, hello->first_rank + r);
    if (other == NULL) return false;
    snprintf(why, why_bytes, "%srank %d is process %lld on %s already; this is process %lld on %s",
             hub->begun ? "the run has begun, and " : "", (int)other->hello.first_rank,
             (long long)other->hello.process, other->hello.host, (long long)hello->process, hello->host);
    return true;
}

/* Different settings of a process that certainly belongs to the run abort the run. A possible stranger, on this machine
 * or another one, is only refused, and does not learn rank 0's settings. */
static bool check_settings(struct tt_hub *hub, struct peer *peer, const char *settings)
{
    char ours[120], theirs[120], text[600], host[80];
    if (strcmp(hub->settings, settings) == 0) return true;
    find_difference(hub->settings, settings, ours, theirs);
    int rank = peer->hello.first_rank;
    snprintf(host, sizeof host, "%s", peer->hello.host);
    snprintf(text, sizeof text, "the settings of rank %d differ: '%s', where rank 0 has '%s'", rank, theirs,
             ours);
    if (peer->candidate.proven) {
        tt_fail(TT_ERR_USAGE, "%s", text);
        struct tt_error error;
        tt_error_copy(&error);
        tt_hub_abort(hub, rank, &error, UINT64_MAX); /* before the refusal: that process reports it */
    } else {
        tt_listener_log_stranger(&hub->listener, &peer->candidate, text, hub->now);
        snprintf(hub->refused, sizeof hub->refused, "%s", text);
        snprintf(text, sizeof text,
                 "the settings of rank %d differ from rank 0's in '%.*s'; the log of rank 0 has both", rank,
                 (int)strcspn(theirs, ":"), theirs);
    }
    refuse(hub, peer, TT_WIRE_REFUSAL_FINAL, text);
    return false;
}

static void accept_member(struct tt_hub *hub, struct peer *peer)
{
    struct tt_wire_accept accept = {.process = getpid()};
    tt_wire_host(accept.host, sizeof accept.host);
    peer->kind = PEER_CONTROL;
    tt_hub_send(hub, peer, (struct tt_wire_header){.kind = TT_WIRE_ACCEPT, .bytes = sizeof accept}, &accept);
}

void tt_hub_handle_hello(struct tt_hub *hub, struct peer *peer)
{
    char why[400];
    struct tt_wire_hello *hello = &peer->hello;
    memcpy(hello, peer->payload, sizeof *hello);
    tt_wire_clean_text(hello->version, sizeof hello->version, hello->version, sizeof hello->version);
    tt_wire_clean_text(hello->machine, sizeof hello->machine, hello->machine, sizeof hello->machine);
    tt_wire_clean_text(hello->host, sizeof hello->host, hello->host, sizeof hello->host);
    tt_wire_clean_text(hello->run, sizeof hello->run, hello->run, sizeof hello->run);
    bool possible = is_same_program(peer, why, sizeof why);
    if (possible && is_of_other_start(hub, peer)) return;
    possible = possible && has_valid_ranks(hub, peer, why, sizeof why);
    if (possible && peer->candidate.proof.opening.role != TT_PROOF_CONTROL) {
        possible = false;
        snprintf(why, sizeof why, "this connection was opened for another purpose");
    }
    if (!possible) {
        tt_listener_log_stranger(&hub->listener, &peer->candidate, why, hub->now);
        refuse(hub, peer, TT_WIRE_REFUSAL_FINAL, why);
        return;
    }
    if (hub->aborted) { /* it connected after the abort was sent to the others */
        tt_hub_send(hub, peer, hub->abort_header, &hub->abort_error);
        peer->kind = PEER_REFUSED;
        peer->candidate.since = hub->now;
        return;
    }
    if (!is_taken(hub, peer, why, sizeof why)) {
        if (check_settings(hub, peer, peer->payload + sizeof *hello)) accept_member(hub, peer);
        return;
    }
    tt_listener_log_stranger(&hub->listener, &peer->candidate, why, hub->now);
    refuse(hub, peer, TT_WIRE_REFUSAL_TWIN | (hub->begun ? TT_WIRE_REFUSAL_FINAL : 0), why);
}

/* TT_WIRE_SAME stands for the address that the process connects from. If that is a loopback address while other
 * machines may join, the process is on rank 0's machine, and the others reach it at rank 0's address. */
void tt_hub_handle_place(struct tt_hub *hub, struct peer *peer)
{
    struct tt_wire_address place;
    if (peer->header.bytes != sizeof place || peer->place.port > 0) {
        tt_hub_reject(hub, peer);
        return;
    }
    memcpy(&place, peer->payload, sizeof place);
    if (place.port < 1 || place.port > 65535 ||
        (place.family != TT_WIRE_SAME && place.family != 4 && place.family != 6)) {
        tt_hub_reject(hub, peer);
        return;
    }
    if (place.family == TT_WIRE_SAME) {
        int port = place.port;
        place = peer->address;
        place.port = port;
        if (!hub->config.local && tt_wire_is_loopback(&place)) place.family = TT_WIRE_SAME;
    }
    peer->place = place;
}
