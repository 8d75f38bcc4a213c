/* Inside comm/tcp.c: the lines of one rank, and its communicators, which share them. */
#ifndef TT_COMM_TCP_IMPL_H
#define TT_COMM_TCP_IMPL_H

#include <poll.h>
#include <pthread.h>

#include "comm/comm_impl.h"
#include "comm/link.h"

enum tt_line_kind {
    TT_LINE_CALL = 1, /* what this rank sends in a call; the payload is for the receiver alone */
    TT_LINE_LEAVE, /* this rank calls nothing more in `group`; `parameter` 1: since another one has failed */
};

/* What goes over a data line: frames, of which the next begins when one is whole. */
struct tt_line_frame {
    uint32_t magic, kind;
    uint64_t group;
    uint64_t sequence; /* of the calls in the group */
    struct tt_comm_order order;
    uint64_t bytes; /* payload that follows */
};

/* What one exchange does on one line. */
struct tt_line_way {
    int peer; /* rank of the world */
    int socket;
    const struct tt_comm_part *part;
    struct tt_line_frame out, in;
    size_t sent, send_bytes; /* frame and payload */
    size_t in_have;          /* of the frame that comes */
    uint64_t received;       /* of its payload */
    bool readable, writable; /* as far as is known */
};

struct tcp_comm;

/* Of one rank. */
struct tt_station {
    struct tt_link *link;
    pthread_mutex_t mutex; /* one call at a time */
    int rank, world_size;
    int users;
    uint32_t groups; /* that this rank has named */
    uint64_t calls;
    bool failed;   /* an exchange ended amid its frames: there is no next one */
    char note[60]; /* tt_comm_note */
    struct tcp_comm *comms;
    int *lines;               /* [world_size]; -1: to itself */
    bool *torn;               /* [world_size]: a frame was sent in part only */
    struct tt_line_way *ways; /* [world_size] */
    struct pollfd *files;     /* [1 + world_size] */
    const void **sources;     /* [world_size] */
    char *staging;            /* received pieces that are looked at */
    size_t slot_bytes;        /* of one of the two slots that each rank has in it */
};

struct tcp_comm {
    struct tt_comm base;
    struct tcp_comm *next; /* of the station */
    struct tt_station *station;
    uint64_t group;
    uint64_t sequence;
    int32_t *members;  /* [world_size]: ranks of the world */
    int departed;      /* a rank of the world that has left, or -1 */
    bool departed_for; /* since another one had failed */
};

/* With the mutex held. */
TT_MUST_USE tt_status tt_station_exchange(struct tcp_comm *comm, const struct tt_comm_exchange *exchange);
/* Tells the others of the group that this rank leaves it; waits for nobody. */
void tt_station_leave(struct tcp_comm *comm);

#endif
