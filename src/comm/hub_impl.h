/* Inside the hub: hub.c has the connections, hub_calls.c the groups of ranks and what they compute. All of it
 * is touched by the hub's thread only. */
#ifndef TT_COMM_HUB_IMPL_H
#define TT_COMM_HUB_IMPL_H

#include <stdatomic.h>

#include "base/str.h"
#include "comm/hub.h"
#include "comm/wire.h"

enum peer_kind {
    PEER_NEW,     /* has not said who it is */
    PEER_CONTROL, /* of a process */
    PEER_DATA,    /* of a rank */
    PEER_REFUSED, /* gets its refusal and is closed */
};

/* A connection. */
struct peer {
    int socket; /* -1: closed */
    enum peer_kind kind;
    struct tt_wire_hello hello;
    char doing[160]; /* control: what it said last */
    double since;    /* of PEER_NEW and PEER_REFUSED */
    double heard;    /* when something last came */
    double gone;     /* control, data: when it closed without leave; 0: it did not */
    bool left;       /* it took leave */
    struct tt_wire_header header;
    size_t header_have;
    char *payload; /* of header.bytes */
    size_t payload_have;
    struct tt_str out;
    size_t out_sent;
};

struct hub_group;

struct tt_hub {
    struct tt_hub_config config;
    char *settings;
    int listener, wake; /* wake: an eventfd that tt_hub_stop writes to */
    atomic_bool stop;
    struct tt_thread *thread;
    struct peer **peers;
    size_t peer_count, peer_capacity;
    struct hub_group *groups;
    uint32_t group_ids;
    bool begun;                                  /* all ranks were here */
    bool aborted; /* all have been told of a failure: */
    struct tt_wire_header abort_header;
    struct tt_error abort_error;
    double now, started, said, beaten, stopping; /* tt_clock_seconds; stopping: 0 until then */
};

/* Queues a frame and sends what can be sent. */
void tt_hub_send(struct tt_hub *hub, struct peer *peer, struct tt_wire_header header, const void *payload);
/* Tells all processes that `rank` failed. `teller`: see TT_WIRE_ABORT. Only the first failure counts. */
void tt_hub_abort(struct tt_hub *hub, int rank, const struct tt_error *error, uint64_t teller);
/* The same from the error record of this thread; the hub's own process tells it. */
void tt_hub_fail(struct tt_hub *hub, int rank);
struct peer *tt_hub_peer_of_rank(struct tt_hub *hub, int rank);
const struct peer *tt_hub_control_of_rank(const struct tt_hub *hub, int rank);

/* The group of all ranks. */
TT_MUST_USE tt_status tt_hub_groups_init(struct tt_hub *hub);
void tt_hub_groups_deinit(struct tt_hub *hub);
/* A frame TT_WIRE_CALL that has come in; takes peer->payload. */
void tt_hub_call(struct tt_hub *hub, struct peer *peer);
/* The rank calls nothing more in group `id`; UINT32_MAX: in any. */
void tt_hub_leave(struct tt_hub *hub, const struct peer *peer, uint32_t id);

#endif
