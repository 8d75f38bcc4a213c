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

/* How far one of PEER_NEW has come. */
enum peer_stage {
    STAGE_OPENING, /* its opening is awaited, */
    STAGE_SUM,     /* its sum, where there is a secret, */
    STAGE_HELLO,   /* its hello */
};

/* A connection. */
struct peer {
    int socket; /* -1: closed */
    enum peer_kind kind;
    enum peer_stage stage;
    bool proven; /* it has the job secret */
    struct tt_proof proof;
    unsigned char sum[TT_PROOF_SUM_BYTES];
    size_t proof_have;
    unsigned char origin[16]; /* tt_wire_origin */
    char from[64];
    struct tt_wire_hello hello;
    unsigned char token[TT_WIRE_TOKEN_BYTES]; /* control: what data connections of the process must show */
    char doing[160];                          /* control: what it said last */
    double since;                             /* of PEER_NEW and PEER_REFUSED */
    double heard;                             /* when something last came */
    double gone;                              /* control, data: when it closed without leave; 0: it did not */
    bool left;                                /* it took leave */
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
    struct tt_wire_door door; /* closed when all ranks have come */
    int wake;                 /* an eventfd that tt_hub_stop writes to */
    atomic_bool stop;
    struct tt_thread *thread;
    struct peer **peers;
    size_t peer_count, peer_capacity;
    struct hub_group *groups;
    uint32_t group_ids;
    int64_t hello_bytes_max;
    size_t strangers_max;
    uint64_t strangers_gone; /* connections that ended without becoming a member's */
    double said_refusal;     /* when the log last named one */
    double accept_again;     /* no descriptor was left: not before this time */
    bool begun;              /* all ranks were here */
    bool aborted;            /* all have been told of a failure: */
    struct tt_wire_header abort_header;
    struct tt_error abort_error;
    double now, started, said, beaten, stopping; /* tt_clock_seconds; stopping: 0 until then */
};

/* ---- hub.c ---- */

void tt_hub_close_peer(struct peer *peer);
/* Queues a frame, or bytes without a header, and sends what can be sent. */
void tt_hub_send_raw(struct tt_hub *hub, struct peer *peer, const void *data, size_t bytes);

void tt_hub_send(struct tt_hub *hub, struct peer *peer, struct tt_wire_header header, const void *payload);
/* Tells all processes that `rank` failed. `teller`: see TT_WIRE_ABORT. Only the first failure counts. */
void tt_hub_abort(struct tt_hub *hub, int rank, const struct tt_error *error, uint64_t teller);
/* The same from the error record of this thread; the hub's own process tells it. */
void tt_hub_fail(struct tt_hub *hub, int rank);
struct peer *tt_hub_peer_of_rank(struct tt_hub *hub, int rank);
const struct peer *tt_hub_control_of_rank(const struct tt_hub *hub, int rank);

/* ---- hub_door.c: from the connection to the member ---- */

TT_MUST_USE tt_status tt_hub_door_open(struct tt_hub *hub, const char *bind);
/* Takes new connections. When there are too many strangers, one of those of the busiest origin makes room. */
void tt_hub_door_accept(struct tt_hub *hub);
/* Reads for the proof of one of PEER_NEW before STAGE_HELLO; false: nothing more is there. */
bool tt_hub_door_read(struct tt_hub *hub, struct peer *peer);
/* A frame TT_WIRE_HELLO that has come in. */
void tt_hub_door_hello(struct tt_hub *hub, struct peer *peer);
/* A stranger is closed or leaves: counts it, and logs why, not too often. `why` NULL: it only went. */
void tt_hub_door_note(struct tt_hub *hub, const struct peer *peer, const char *why);
/* All ranks are here: nobody else is let in, and the strangers go. */
void tt_hub_door_shut(struct tt_hub *hub);

/* ---- hub_calls.c ---- */

/* The group of all ranks. */
TT_MUST_USE tt_status tt_hub_groups_init(struct tt_hub *hub);
void tt_hub_groups_deinit(struct tt_hub *hub);
/* A frame TT_WIRE_CALL that has come in; takes peer->payload. */
void tt_hub_call(struct tt_hub *hub, struct peer *peer);
/* The rank calls nothing more in group `id`; UINT32_MAX: in any. */
void tt_hub_leave(struct tt_hub *hub, const struct peer *peer, uint32_t id);

#endif
