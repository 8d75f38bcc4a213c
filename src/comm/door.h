/* A listening socket of the run, and whoever comes to it: strangers until they have proved that they are
 * members.
 *
 * Strangers may connect, send anything, send it slowly, send nothing, and come back. What they get: room for
 * a bounded number of connections, a few hundred bytes and ten seconds each; when the room is full, the
 * origin with the most connections loses its oldest one, so that a process of the run, which says what it has
 * to say in milliseconds, gets through. With a key nothing that a connection says counts before its proof
 * (comm/proof.h).
 *
 * Nothing here waits: the owner of the door polls its sockets and those of its guests. */
#ifndef TT_COMM_DOOR_H
#define TT_COMM_DOOR_H

#include <stddef.h>

#include "comm/proof.h"
#include "comm/wire.h"

enum {
    TT_DOOR_GUESTS_MAX = 256,     /* connections that are no members */
    TT_DOOR_ACCEPTS_AT_ONCE = 64, /* then those that are here are served */
    TT_DOOR_GUEST_SECONDS = 10,   /* that a guest has to say who he is */
};

struct tt_door {
    struct tt_wire_door wire;
    const struct tt_proof_key *key; /* lent */
    const char *no_key, *other_key; /* for the log: what a stranger is without the key, or with another one */
    int port;                       /* for messages */
    size_t guests_max;
    uint64_t strangers; /* connections that ended without becoming a member's */
    double said;        /* when the log last named one */
    double again;       /* no descriptor was left: not before this time */
};

/* How far a guest has come. */
enum tt_guest_stage {
    TT_GUEST_OPENING, /* its opening is awaited, */
    TT_GUEST_SUM,     /* its sum, where there is a key, */
    TT_GUEST_THROUGH, /* or nothing more: what it is wanted for comes next */
};

struct tt_guest {
    int socket; /* -1: closed */
    enum tt_guest_stage stage;
    bool proven; /* it has the key */
    struct tt_proof proof;
    unsigned char sum[TT_PROOF_SUM_BYTES];
    size_t have;
    unsigned char origin[16]; /* tt_wire_origin */
    char from[64];
    double since;
};

/* How many guests there may be when the process needs `members` descriptors for members of the run; raises
 * the limit of open files as far as that is possible. */
size_t tt_door_room(size_t members);
/* The next new connection, not blocking; -1: there is none. *full: no descriptor was left, a guest should
 * make room. */
int tt_door_accept(struct tt_door *door, double now, bool *full);
void tt_guest_init(struct tt_guest *guest, int socket, double now);
void tt_guest_close(struct tt_guest *guest);
/* Of the busiest origin the one that has got least far, and of those the first: guests[] are in order of
 * time, none of them proven or closed. NULL: there is none. */
struct tt_guest *tt_door_victim(struct tt_guest *const *guests, size_t count);
/* A stranger is closed or leaves: counts it, and logs why, not too often. `why` NULL: it only went. */
void tt_door_note(struct tt_door *door, const struct tt_guest *guest, const char *why, double now);

enum tt_guest_result {
    TT_GUEST_WAITS,   /* nothing more is there */
    TT_GUEST_MOVED,   /* more may be there */
    TT_GUEST_CLOSED,  /* it is closed, and noted */
    TT_GUEST_UNEQUAL, /* one side has a key and the other has none; the challenge tells it */
};
/* Reads for the proof of a guest that is not through, and answers. */
enum tt_guest_result tt_guest_read(struct tt_door *door, struct tt_guest *guest, double now);

#endif
