/* How processes talk to each other in comm/tcp.c and comm/hub.c: frames over TCP, a fixed header and a
 * payload of the length that it says. A connection begins with the proof of comm/proof.h. Both ends are the same
 * program on machines of one byte order; the first frame shows it. What arrives is checked before it is used,
 * as from a stranger. */
#ifndef TT_COMM_WIRE_H
#define TT_COMM_WIRE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/uio.h>

#include "base/error.h"

enum tt_wire_kind {
    TT_WIRE_HELLO = 1, /* to the hub: struct tt_wire_hello, on control connections then the settings */
    TT_WIRE_ACCEPT,    /* from it: struct tt_wire_accept; this connection is a member of the run */
    TT_WIRE_REFUSE,    /* from it: a text, `parameter` 1: trying again does not help; then it closes */
    /* from it, on control connections, once all ranks are there: machine of every rank, int32 */
    TT_WIRE_WELCOME,
    TT_WIRE_CALL,   /* a piece of a collective */
    TT_WIRE_RESULT, /* its result */
    TT_WIRE_ERROR,  /* or struct tt_error; status TT_OK in it: rank `parameter` stopped */
    TT_WIRE_LEAVE,  /* this rank calls nothing more in `group` */
    TT_WIRE_BYE,    /* nothing more comes on this connection, in good order */
    /* rank `parameter` failed with struct tt_error; `offset`: first rank of the process that reports it, or UINT64_MAX:
     * its own does */
    TT_WIRE_ABORT,
    TT_WIRE_BEAT, /* every TT_WIRE_BEAT_SECONDS on control connections: what this process is doing, a text */
};

enum tt_wire_call {
    TT_WIRE_ALL_GATHER,
    TT_WIRE_REDUCE_SCATTER,
    TT_WIRE_ALL_REDUCE,
    TT_WIRE_BROADCAST,
    TT_WIRE_BARRIER,
    TT_WIRE_SPLIT,
    TT_WIRE_CALL_COUNT
};
const char *tt_wire_call_name(uint32_t call);

enum {
    TT_WIRE_MAGIC = 0x6d697274,    /* "trim" */
    TT_WIRE_PIECE_BYTES = 4 << 20, /* of a collective at one time, of all ranks together */
    TT_WIRE_FRAME_BYTES_MAX = 8 << 20,
    TT_WIRE_HELLO_BYTES_MAX = 1 << 20,
    TT_WIRE_TEXT_BYTES_MAX = 1 << 10,
    TT_WIRE_TOKEN_BYTES = 32,
    TT_WIRE_ADDRESSES_MAX = 8, /* that the hub listens at */
    TT_WIRE_BEAT_SECONDS = 2,
    TT_WIRE_SILENCE_SECONDS = 20, /* then a process is taken for dead */
};

struct tt_wire_header {
    uint32_t magic, kind;
    uint32_t group, call;
    uint64_t sequence;     /* of the calls of a rank */
    uint64_t size, offset; /* of the whole call; of this piece in it */
    int32_t parameter, reduce;
    uint64_t bytes; /* payload that follows */
};

struct tt_wire_hello {
    char version[32];
    uint32_t byte_order, error_bytes;
    int32_t world_size, first_rank, local_count;
    int32_t rank; /* of a data connection; -1: the control connection of a process */
    int64_t process;
    /* of a data connection: what the control connection was given */
    unsigned char token[TT_WIRE_TOKEN_BYTES];
    char machine[80]; /* processes with one text share a machine */
    char host[80];    /* for messages */
};

/* Data connections show the token of their process, so that no other process can take their place. */
struct tt_wire_accept {
    unsigned char token[TT_WIRE_TOKEN_BYTES]; /* zero on data connections */
    int64_t process;                          /* of rank 0 */
    char host[80];
};

enum tt_wire_result { TT_WIRE_OK, TT_WIRE_CLOSED, TT_WIRE_WOKEN, TT_WIRE_LATE };

/* Sockets do not block; these wait. TT_WIRE_WOKEN: `wake` (-1: none) became readable; TT_WIRE_LATE:
 * tt_clock_seconds passed `deadline` (0: none); TT_WIRE_CLOSED: the other end is gone. */
enum tt_wire_result tt_wire_send(int socket, int wake, const struct tt_wire_header *header,
                                 const void *payload, double deadline);
/* parts[0 .. count-1] one after the other; they are used up. */
enum tt_wire_result tt_wire_send_parts(int socket, int wake, struct iovec *parts, int count, double deadline);
enum tt_wire_result tt_wire_receive(int socket, int wake, void *data, size_t bytes, double deadline);

/* Options that every connection has: no delay, keep-alive, non-blocking, closed on exec. */
void tt_wire_prepare_socket(int socket);
/* Listening sockets of the hub. */
struct tt_wire_door {
    int sockets[TT_WIRE_ADDRESSES_MAX], count;
    bool local; /* reached from this machine only */
};
/* At `port` of every address of `address` (a name or an address); NULL: of all addresses of this machine, or with
 * `local` of its loopback interface. */
TT_MUST_USE tt_status tt_wire_listen(const char *address, bool local, int port, struct tt_wire_door *door);
void tt_wire_door_close(struct tt_wire_door *door);
/* The other end of a connection: 16 bytes that compare equal for one machine (IPv6: one network of 64 bits), and as a
 * text. */
void tt_wire_origin(int socket, unsigned char origin[16], char *text, size_t text_bytes);
/* One attempt; -1 with `why` when it fails. Gives up at `deadline`. */
int tt_wire_connect(const char *host, int port, double deadline, char *why, size_t why_bytes);

/* Name of this machine, for messages. */
void tt_wire_host(char *host, size_t bytes);
struct tt_wire_hello tt_wire_hello_make(int world_size, int first_rank, int local_count, int rank,
                                        const char *machine);
/* A record that came over the network: terminated texts, known status, counts in range. */
void tt_wire_clean_error(struct tt_error *error);
/* A text that came over the network, into text[bytes]: terminated, printable. */
void tt_wire_clean_text(const void *from, size_t from_bytes, char *text, size_t text_bytes);

#endif
