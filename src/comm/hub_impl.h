/* Inside the hub: hub.c has the connections, hub_door.c decides who is a member. All of it is touched by the
 * hub's thread only. */
#ifndef TT_COMM_HUB_IMPL_H
#define TT_COMM_HUB_IMPL_H

#include <poll.h>
#include <stdatomic.h>

#include "base/str.h"
#include "comm/door.h"
#include "comm/hub.h"
#include "comm/wire.h"

enum peer_kind {
    PEER_NEW,     /* has not said who it is */
    PEER_CONTROL, /* of a process */
    PEER_REFUSED, /* gets its refusal and is closed */
};

/* A connection. */
struct peer {
    struct tt_guest guest; /* its socket, and who it was before it became a member */
    enum peer_kind kind;
    struct tt_wire_hello hello;
    struct tt_wire_address address; /* where it comes from */
    struct tt_wire_address place;   /* where it listens for data lines; port 0: it has not said so yet */
    char doing[160];                /* what it said last */
    double heard;                   /* when something last came */
    double gone;                    /* when a member closed without leave; 0: it did not */
    bool left;                      /* it took leave */
    struct tt_wire_header header;
    size_t header_have;
    char *payload; /* of header.bytes */
    size_t payload_have;
    struct tt_str out;
    size_t out_sent;
};

struct tt_hub {
    struct tt_hub_config config;
    char *settings;
    struct tt_door door; /* closed when all ranks have come */
    int wake;            /* an eventfd that tt_hub_stop writes to */
    atomic_bool stop;
    struct tt_thread *thread;
    struct peer **peers;
    size_t peer_count, peer_capacity;
    struct pollfd *files; /* that the thread waits for */
    size_t file_capacity;
    int64_t hello_bytes_max;
    bool begun;   /* all ranks were here */
    bool aborted; /* all have been told of a failure: */
    struct tt_wire_header abort_header;
    struct tt_error abort_error;
    double now, started, said, beaten, stopping; /* tt_clock_seconds; stopping: 0 until then */
};

/* ---- hub.c ---- */

/* Queues a frame, and sends what can be sent. */
void tt_hub_send(struct tt_hub *hub, struct peer *peer, struct tt_wire_header header, const void *payload);
/* Tells all processes that `rank` failed. `teller`: see TT_WIRE_ABORT. Only the first failure counts. */
void tt_hub_abort(struct tt_hub *hub, int rank, const struct tt_error *error, uint64_t teller);
/* The same from the error record of this thread; the hub's own process tells it. */
void tt_hub_fail(struct tt_hub *hub, int rank);
/* A connection sent bytes that are no message: a stranger's is closed, a member's ends the run. */
void tt_hub_reject(struct tt_hub *hub, struct peer *peer);
const struct peer *tt_hub_control_of_rank(const struct tt_hub *hub, int rank);

/* ---- hub_door.c: from the connection to the member ---- */

TT_MUST_USE tt_status tt_hub_door_open(struct tt_hub *hub, const char *bind);
/* Takes new connections. When there are too many strangers, one of those of the busiest origin makes room. */
void tt_hub_door_accept(struct tt_hub *hub);
/* A frame TT_WIRE_HELLO that has come in. */
void tt_hub_door_hello(struct tt_hub *hub, struct peer *peer);
/* A frame TT_WIRE_PLACE of a member that has come in. */
void tt_hub_door_place(struct tt_hub *hub, struct peer *peer);
/* All ranks are here: nobody else is let in, and the strangers go. */
void tt_hub_door_shut(struct tt_hub *hub);

#endif
