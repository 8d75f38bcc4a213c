/* The listening sockets of a run and their candidates: accepted connections that have not proved yet that they belong
 * to a member of the run. A candidate that turns out not to is a stranger.
 *
 * Strangers may connect, send any bytes, send them slowly, send nothing, and connect again. Their use of resources is
 * bounded: a maximal number of connections, a few hundred bytes and ten seconds for each. When the maximum is reached,
 * the origin with the most connections loses its oldest one. A process of the run finishes its proof within
 * milliseconds, so it still gets through. With a key, all bytes before the proof are ignored (comm/proof.h).
 *
 * No function waits: the owner of the listener polls its sockets and those of its candidates. */
#ifndef TT_COMM_LISTENER_H
#define TT_COMM_LISTENER_H

#include <stddef.h>

#include "comm/proof.h"
#include "comm/wire.h"

enum {
    TT_CANDIDATES_MAX = 256,          /* connections that are not members' */
    TT_LISTENER_ACCEPTS_AT_ONCE = 64, /* new connections before existing ones are served again */
    TT_CANDIDATE_SECONDS = 10,        /* time for the proof and the first message */
};

struct tt_listener {
    struct tt_wire_listener wire;
    const struct tt_proof_key *key; /* lent */
    const char *no_key, *other_key; /* log texts for candidates without a key and with another key */
    int port;                       /* for messages */
    size_t candidates_max;
    uint64_t strangers; /* connections that ended without becoming a member's */
    double logged_at;   /* time of the last log line about a stranger */
    double retry_at;    /* no accept before this time, after the process ran out of descriptors */
};

enum tt_candidate_stage {
    TT_CANDIDATE_OPENING, /* waits for its opening (comm/proof.h) */
    TT_CANDIDATE_SUM,     /* with a key: waits for its sum */
    TT_CANDIDATE_READY,   /* the proof is complete; the owner reads the next bytes */
};

struct tt_candidate {
    int socket; /* -1: closed */
    enum tt_candidate_stage stage;
    bool proven; /* has proved the key */
    struct tt_proof proof;
    unsigned char sum[TT_PROOF_SUM_BYTES];
    size_t have;              /* received bytes of the current message */
    unsigned char origin[16]; /* of base/crowd.h */
    char from[64];            /* its address, for messages */
    double since;             /* time of the accept */
};

/* Returns the number of candidates to allow if the process needs `members` descriptors for members of the run. Raises
 * the limit of open files as far as possible. */
size_t tt_listener_capacity(size_t members);
/* Accepts the next connection without blocking and returns its socket; -1: there is none. *full: the process ran out of
 * descriptors, and the caller should close a candidate. */
int tt_listener_accept(struct tt_listener *listener, double now, bool *full);
void tt_candidate_init(struct tt_candidate *candidate, int socket, double now);
void tt_candidate_close(struct tt_candidate *candidate);
/* Chooses the candidate to close, by the rule of base/crowd.h. candidates[count] are in order of time, none of them
 * proven or closed, at most TT_CANDIDATES_MAX. NULL: there is none. */
struct tt_candidate *tt_listener_choose_victim(struct tt_candidate *const *candidates, size_t count);
/* Counts a stranger and logs the reason `why`, at most once in ten seconds. `why` NULL: it closed the connection, which
 * is not logged. Does not close the candidate. */
void tt_listener_log_stranger(struct tt_listener *listener, const struct tt_candidate *candidate,
                              const char *why, double now);

enum tt_candidate_result {
    TT_CANDIDATE_WAITS,        /* no more bytes have arrived */
    TT_CANDIDATE_PROGRESS,     /* more bytes may have arrived */
    TT_CANDIDATE_CLOSED,       /* closed, and counted as a stranger */
    TT_CANDIDATE_KEY_MISMATCH, /* only one side has a key; the other side knows from the challenge */
};
/* Receives bytes of the proof of a candidate that is not TT_CANDIDATE_READY, and answers whole messages. */
enum tt_candidate_result tt_candidate_read(struct tt_listener *listener, struct tt_candidate *candidate,
                                           double now);

#endif
