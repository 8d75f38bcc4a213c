#include "comm/door.h"

#include <errno.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/log.h"

enum {
    GUESTS_MIN = 16,
    FILES_OF_PROGRAM = 256, /* descriptors that the rest of the program may have open */
    PAUSE_SECONDS = 1,      /* without accepting, when no descriptor is left */
    NOTE_SECONDS = 10,      /* between two lines about connections that were turned away */
};

size_t tt_door_room(size_t members)
{
    struct rlimit limit;
    rlim_t needed = (rlim_t)members + FILES_OF_PROGRAM, wanted = needed + TT_DOOR_GUESTS_MAX;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= wanted) return TT_DOOR_GUESTS_MAX;
    limit.rlim_cur = wanted < limit.rlim_max ? wanted : limit.rlim_max;
    (void)setrlimit(RLIMIT_NOFILE, &limit);
    if (limit.rlim_cur >= wanted) return TT_DOOR_GUESTS_MAX;
    rlim_t left = limit.rlim_cur > needed ? limit.rlim_cur - needed : 0;
    return left > GUESTS_MIN ? (size_t)left : GUESTS_MIN;
}

int tt_door_accept(struct tt_door *door, double now, bool *full)
{
    *full = false;
    for (int d = 0; d < door->wire.count && now >= door->again; d++) {
        int socket, error;
        do {
            socket = accept(door->wire.sockets[d], NULL, NULL);
            error = errno;
        } while (socket < 0 && (error == EINTR || error == ECONNABORTED));
        if (socket >= 0) {
            tt_wire_prepare_socket(socket);
            return socket;
        }
        if (error == EMFILE || error == ENFILE || error == ENOMEM || error == ENOBUFS) {
            *full = true;
            door->again = now + PAUSE_SECONDS;
        }
    }
    return -1;
}

void tt_guest_init(struct tt_guest *guest, int socket, double now)
{
    *guest = (struct tt_guest){.socket = socket, .since = now};
    tt_wire_origin(socket, guest->origin, guest->from, sizeof guest->from);
}

void tt_guest_close(struct tt_guest *guest)
{
    if (guest->socket >= 0) close(guest->socket);
    guest->socket = -1;
}

static bool is_same_origin(const struct tt_guest *a, const struct tt_guest *b)
{
    return memcmp(a->origin, b->origin, sizeof a->origin) == 0;
}

struct tt_guest *tt_door_victim(struct tt_guest *const *guests, size_t count)
{
    struct tt_guest *victim = NULL;
    size_t most = 0;
    for (size_t i = 0; i < count; i++) {
        size_t of_origin = 0;
        for (size_t j = 0; j < count; j++) of_origin += is_same_origin(guests[i], guests[j]);
        bool less_far = victim != NULL && of_origin == most && is_same_origin(victim, guests[i]) &&
                        guests[i]->stage < victim->stage;
        if (of_origin <= most && !less_far) continue;
        victim = guests[i];
        most = of_origin;
    }
    return victim;
}

void tt_door_note(struct tt_door *door, const struct tt_guest *guest, const char *why, double now)
{
    door->strangers++;
    if (why == NULL) return;
    if (door->said > 0 && now - door->said < NOTE_SECONDS) return;
    door->said = now;
    tt_warn("port %d: a connection from %s was turned away: %s (%llu so far that are not of this run)",
            door->port, guest->from, why, (unsigned long long)door->strangers);
}

static enum tt_guest_result turn_away(struct tt_door *door, struct tt_guest *guest, const char *why,
                                      double now)
{
    tt_door_note(door, guest, why, now);
    tt_guest_close(guest);
    return TT_GUEST_CLOSED;
}

/* The buffer of a new connection takes these few bytes, or the connection is of no use. */
static bool say(const struct tt_guest *guest, const void *data, size_t bytes)
{
    return send(guest->socket, data, bytes, MSG_NOSIGNAL) == (ssize_t)bytes;
}

static enum tt_guest_result take_opening(struct tt_door *door, struct tt_guest *guest, double now)
{
    const struct tt_proof_key *key = door->key;
    if (!tt_proof_answer(key, &guest->proof))
        return turn_away(door, guest, "it sent bytes that are no message", now);
    if (!say(guest, &guest->proof.challenge, sizeof guest->proof.challenge))
        return turn_away(door, guest, NULL, now);
    guest->stage = key->is_set ? TT_GUEST_SUM : TT_GUEST_THROUGH;
    if (guest->proof.opening.secured == (uint32_t)key->is_set) return TT_GUEST_MOVED;
    tt_door_note(door, guest, key->is_set ? door->no_key : "it has a job secret, and this process has none",
                 now);
    return TT_GUEST_UNEQUAL;
}

static enum tt_guest_result take_sum(struct tt_door *door, struct tt_guest *guest, double now)
{
    unsigned char own[TT_PROOF_SUM_BYTES];
    if (!tt_proof_verify(door->key, &guest->proof, TT_PROOF_OPENER, guest->sum))
        return turn_away(door, guest, door->other_key, now);
    tt_proof_sum(door->key, &guest->proof, TT_PROOF_ACCEPTER, own);
    if (!say(guest, own, sizeof own)) return turn_away(door, guest, NULL, now);
    guest->proven = true;
    guest->stage = TT_GUEST_THROUGH;
    return TT_GUEST_MOVED;
}

enum tt_guest_result tt_guest_read(struct tt_door *door, struct tt_guest *guest, double now)
{
    bool opening = guest->stage == TT_GUEST_OPENING;
    char *to = opening ? (char *)&guest->proof.opening : (char *)guest->sum;
    size_t all = opening ? sizeof guest->proof.opening : sizeof guest->sum;
    ssize_t got = recv(guest->socket, to + guest->have, all - guest->have, 0);
    if (got < 0 && errno == EINTR) return TT_GUEST_MOVED;
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return TT_GUEST_WAITS;
    if (got <= 0) return turn_away(door, guest, NULL, now);
    guest->have += (size_t)got;
    if (guest->have < all) return TT_GUEST_MOVED;
    guest->have = 0;
    return opening ? take_opening(door, guest, now) : take_sum(door, guest, now);
}
