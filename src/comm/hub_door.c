/* From a new connection to a member of the run: door.h says what strangers get. When all ranks have come,
 * nobody is let in any more. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/log.h"
#include "comm/hub_impl.h"

/* ---- Coming in ---- */

tt_status tt_hub_door_open(struct tt_hub *hub, const char *bind)
{
    hub->door.key = &hub->config.key;
    hub->door.port = hub->config.port;
    hub->door.no_key = "it has no job secret";
    hub->door.other_key = "its job secret is another one";
    hub->door.guests_max = tt_door_room((size_t)hub->config.world_size + hub->config.lines);
    TT_TRY(tt_wire_listen(bind, hub->config.local, hub->config.port, &hub->door.wire));
    if (!hub->config.key.is_set && !hub->door.wire.local)
        tt_warn("port %d takes connections from other machines, and no job secret is set: whoever reaches it "
                "and knows the "
                "settings can take part in the run (TRIMTAB_JOB_SECRET_FILE, --rendezvous_bind: "
                "docs/sharding.md)",
                hub->config.port);
    return TT_OK;
}

static bool is_stranger(const struct peer *peer)
{
    return peer->guest.socket >= 0 && !peer->guest.proven && peer->kind != PEER_CONTROL;
}

static size_t count_strangers(const struct tt_hub *hub)
{
    size_t count = 0;
    for (size_t i = 0; i < hub->peer_count; i++) count += is_stranger(hub->peers[i]);
    return count;
}

static void evict(struct tt_hub *hub)
{
    struct tt_guest *guests[TT_DOOR_GUESTS_MAX];
    size_t count = 0;
    for (size_t i = 0; i < hub->peer_count && count < TT_DOOR_GUESTS_MAX; i++)
        if (is_stranger(hub->peers[i])) guests[count++] = &hub->peers[i]->guest;
    struct tt_guest *victim = tt_door_victim(guests, count);
    if (victim == NULL) return;
    tt_door_note(&hub->door, victim, NULL, hub->now);
    tt_guest_close(victim);
}

static void admit(struct tt_hub *hub, int socket)
{
    if (count_strangers(hub) >= hub->door.guests_max) evict(hub);
    struct peer *peer = tt_calloc(1, sizeof *peer);
    if (peer == NULL ||
        tt_grow((void **)&hub->peers, hub->peer_count, &hub->peer_capacity, sizeof *hub->peers) != 0) {
        tt_free(peer);
        close(socket);
        return;
    }
    *peer = (struct peer){.kind = PEER_NEW, .heard = hub->now};
    tt_guest_init(&peer->guest, socket, hub->now);
    tt_wire_address_of(socket, true, &peer->address);
    hub->peers[hub->peer_count++] = peer;
}

void tt_hub_door_accept(struct tt_hub *hub)
{
    bool full = false;
    for (int taken = 0; taken < TT_DOOR_ACCEPTS_AT_ONCE; taken++) {
        int socket = tt_door_accept(&hub->door, hub->now, &full);
        if (full) evict(hub);
        if (socket < 0) return;
        admit(hub, socket);
    }
}

void tt_hub_door_shut(struct tt_hub *hub)
{
    tt_wire_door_close(&hub->door.wire);
    for (size_t i = 0; i < hub->peer_count; i++)
        if (hub->peers[i]->kind == PEER_NEW) tt_guest_close(&hub->peers[i]->guest);
    if (hub->door.strangers > 0)
        tt_info("port %d is closed; %llu connections were not of this run", hub->config.port,
                (unsigned long long)hub->door.strangers);
}

/* ---- Hello ---- */

/* `final`: trying again does not help. What is said to a stranger must be fit for strangers. */
static void refuse(struct tt_hub *hub, struct peer *peer, bool final, const char *text)
{
    tt_hub_send(hub, peer,
                (struct tt_wire_header){.kind = TT_WIRE_REFUSE, .parameter = final, .bytes = strlen(text)},
                text);
    peer->kind = PEER_REFUSED;
    peer->guest.since = hub->now;
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
             hello->local_count > world_size - hello->first_rank)
        snprintf(why, why_bytes, "there is no rank %d of %d", (int)hello->first_rank, world_size);
    else
        return true;
    return false;
}

/* Two processes that claim one rank. */
static bool is_taken(const struct tt_hub *hub, const struct peer *peer, char *why, size_t why_bytes)
{
    const struct tt_wire_hello *hello = &peer->hello;
    const struct peer *other = NULL;
    for (int r = 0; r < hello->local_count && other == NULL; r++)
        other = tt_hub_control_of_rank(hub, hello->first_rank + r);
    if (other == NULL) return false;
    snprintf(why, why_bytes, "rank %d is process %lld on %s already; this is process %lld on %s",
             (int)other->hello.first_rank, (long long)other->hello.process, other->hello.host,
             (long long)hello->process, hello->host);
    return true;
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
    if (peer->guest.proven || hub->door.wire.local) {
        tt_fail(TT_ERR_USAGE, "%s", text);
        struct tt_error error;
        tt_error_copy(&error);
        tt_hub_abort(hub, rank, &error, UINT64_MAX); /* before the refusal: that process tells it */
    } else {
        tt_door_note(&hub->door, &peer->guest, text, hub->now);
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
    tt_wire_host(accept.host, sizeof accept.host);
    peer->kind = PEER_CONTROL;
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
    bool possible = accepts(hub, peer, why, sizeof why);
    if (possible && peer->guest.proof.opening.role != TT_PROOF_CONTROL) {
        possible = false;
        snprintf(why, sizeof why, "this connection was opened for something else");
    }
    if (!possible) {
        tt_door_note(&hub->door, &peer->guest, why, hub->now);
        refuse(hub, peer, true, why);
        return;
    }
    if (hub->aborted) { /* it came after the word was spread */
        tt_hub_send(hub, peer, hub->abort_header, &hub->abort_error);
        peer->kind = PEER_REFUSED;
        peer->guest.since = hub->now;
        return;
    }
    if (!is_taken(hub, peer, why, sizeof why)) {
        if (has_our_settings(hub, peer, peer->payload + sizeof *hello)) accept_member(hub, peer);
        return;
    }
    tt_door_note(&hub->door, &peer->guest, why, hub->now);
    refuse(hub, peer, false, why);
}

/* A process that does not say at which of its addresses it listens listens at the one that it comes from. One
 * that comes over loopback, though others come from elsewhere, is on the machine of rank 0, and is reached
 * where rank 0 is. */
void tt_hub_door_place(struct tt_hub *hub, struct peer *peer)
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
