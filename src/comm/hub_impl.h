/* Internals of the hub: hub.c serves the connections, hub_admit.c decides which of them are members. Only the hub's
 * thread uses these. */
#ifndef TT_COMM_HUB_IMPL_H
#define TT_COMM_HUB_IMPL_H

#include <poll.h>
#include <stdatomic.h>

#include "base/str.h"
#include "comm/hub.h"
#include "comm/listener.h"
#include "comm/wire.h"

enum peer_kind {
    PEER_NEW,     /* a candidate, before its hello */
    PEER_CONTROL, /* the control connection of a member process */
    PEER_REFUSED, /* receives its refusal and is then closed */
};

/* A connection. */
struct peer {
    struct tt_candidate candidate; /* its socket and its proof */
    enum peer_kind kind;
    struct tt_wire_hello hello;
    struct tt_wire_address address; /* of its end of the connection */
    struct tt_wire_address place;   /* at which it accepts data lines; port 0: not received yet */
    char activity[160];             /* from its last beat, for messages */
    double received_at;             /* time of the last received bytes */
    double closed_at;               /* time at which a member closed without TT_WIRE_BYE; 0: it did not */
    bool left;                      /* has sent TT_WIRE_BYE */
    struct tt_wire_header header;
    size_t header_have; /* received bytes of `header` */
    char *payload;      /* owned: [header.bytes] and a terminator; NULL while the header is incomplete */
    size_t payload_have;
    struct tt_str out; /* queued frames */
    size_t out_sent;   /* sent bytes of `out` */
};

struct tt_hub {
    struct tt_hub_config config;
    char *settings;
    struct tt_listener listener; /* closed when all ranks have joined */
    int wake;                    /* an eventfd that tt_hub_stop writes to */
    atomic_bool stop;
    struct tt_thread *thread;
    struct peer **peers;
    size_t peer_count, peer_capacity;
    struct pollfd *files; /* polled by the thread */
    size_t file_capacity;
    int64_t hello_bytes_max;
    char refused[600]; /* the last difference of settings that ended nothing; empty: none */
    bool begun;        /* all ranks have joined */
    bool aborted;      /* this failure was sent to all processes: */
    struct tt_wire_header abort_header;
    struct tt_error abort_error;
    double now, started, logged_at, beat_at; /* tt_clock_seconds; of the last reminder, of the last beat */
    double stopping;                         /* time at which the hub began to stop; 0: it runs */
};

/* ---- hub.c ---- */

/* Queues a frame and sends as much of the queue as the socket accepts. */
void tt_hub_send(struct tt_hub *hub, struct peer *peer, struct tt_wire_header header, const void *payload);
/* Sends the failure of `rank` to all processes, unless one was sent before. `reporter`: `offset` of TT_WIRE_ABORT. */
void tt_hub_abort(struct tt_hub *hub, int rank, const struct tt_error *error, uint64_t reporter);
/* The same with the error record of this thread, which the hub's own process reports. */
void tt_hub_fail(struct tt_hub *hub, int rank);
/* Handles a connection that sent bytes that are not a message: closes a stranger's, aborts the run for a member's. */
void tt_hub_reject(struct tt_hub *hub, struct peer *peer);
/* The control connection of the process with `rank`; NULL: it has not joined. */
const struct peer *tt_hub_control_of_rank(const struct tt_hub *hub, int rank);

/* ---- hub_admit.c: from the connection to the member ---- */

TT_MUST_USE tt_status tt_hub_listen(struct tt_hub *hub, const char *bind);
/* Accepts new connections. If there are too many candidates, one of the busiest origin is closed. */
void tt_hub_accept(struct tt_hub *hub);
/* Handles a received frame TT_WIRE_HELLO. */
void tt_hub_handle_hello(struct tt_hub *hub, struct peer *peer);
/* Handles a received frame TT_WIRE_PLACE of a member. */
void tt_hub_handle_place(struct tt_hub *hub, struct peer *peer);
/* All ranks have joined. With a job secret the port stays open, for processes of the run that come too late, which are
 * refused by name; without one it closes, because strangers could use it. */
void tt_hub_end_joining(struct tt_hub *hub);
/* Stops listening and closes all candidates. */
void tt_hub_close_listener(struct tt_hub *hub);

#endif
