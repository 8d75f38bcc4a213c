/* Internals of comm/tcp.c: the endpoint of a rank with its data lines, and its communicators, which share them. */
#ifndef TT_COMM_TCP_IMPL_H
#define TT_COMM_TCP_IMPL_H

#include <poll.h>
#include <pthread.h>

#include "comm/comm_impl.h"
#include "comm/link.h"

enum tt_line_kind {
    TT_LINE_CALL = 1, /* the part of a collective for this receiver */
    TT_LINE_LEAVE, /* this rank makes no more calls in `group`; `parameter` 1: because another rank has failed */
};

/* The header of a frame on a data line; frames follow each other. */
struct tt_line_frame {
    uint32_t magic, kind;
    uint64_t group;
    uint64_t sequence; /* number of the call in the group */
    struct tt_comm_order order;
    uint64_t bytes; /* payload that follows */
};

/* The progress of one exchange on one line. */
struct tt_line_transfer {
    int peer; /* rank of the world */
    int socket;
    const struct tt_comm_part *part;
    struct tt_line_frame out, in;
    size_t sent, send_bytes; /* of frame header and payload */
    size_t in_have;          /* received bytes of `in` */
    uint64_t received;       /* bytes of its payload */
    bool readable, writable; /* false: the last call would have blocked */
};

struct tcp_comm;

/* The connections of one rank. */
struct tt_endpoint {
    struct tt_link *link;
    pthread_mutex_t mutex; /* one call at a time */
    int rank, world_size;
    int users;
    uint32_t groups;        /* number of groups that this rank has named */
    uint64_t calls;         /* number of calls so far, for messages */
    bool failed;            /* an exchange ended with incomplete frames: no further one is possible */
    char activity[60];      /* tt_comm_set_activity */
    struct tcp_comm *comms; /* list of the rank's communicators */
    int *lines;             /* [world_size]; -1: to itself */
    bool *torn;             /* [world_size]: a frame was sent only in part, so no other may follow */
    struct tt_line_transfer *transfers; /* [world_size] */
    struct pollfd *files;               /* [1 + world_size] */
    const void **sources;               /* [world_size]: `from` of a call of `consume` */
    char *staging;                      /* received pieces for `consume`: two slots for each rank */
    size_t slot_bytes;                  /* of one slot */
};

struct tcp_comm {
    struct tt_comm base;
    struct tcp_comm *next; /* in the list of the endpoint */
    struct tt_endpoint *endpoint;
    uint64_t group;
    uint64_t sequence;
    int32_t *members;            /* [world_size]: ranks of the world */
    int departed;                /* a rank of the world that has left the group, or -1 */
    bool departed_after_failure; /* it left because another rank had failed */
};

/* Runs one exchange. Call with the mutex of the endpoint held. */
TT_MUST_USE tt_status tt_endpoint_exchange(struct tcp_comm *comm, const struct tt_comm_exchange *exchange);
/* Sends TT_LINE_LEAVE to the others of the group. Does not wait. */
void tt_endpoint_leave(struct tcp_comm *comm);

#endif
