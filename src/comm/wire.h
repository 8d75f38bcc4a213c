/* The protocol of control connections in comm/tcp.c, and sockets. A frame is a fixed header and a payload of the length
 * in the header. A connection begins with the proof of comm/proof.h. Both ends are the same program on machines of one
 * byte order, which the hello states. All received bytes are checked before use, as from a stranger. */
#ifndef TT_COMM_WIRE_H
#define TT_COMM_WIRE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/uio.h>

#include "base/error.h"

enum tt_wire_kind {
    TT_WIRE_HELLO = 1, /* to the hub: struct tt_wire_hello, then the settings */
    TT_WIRE_ACCEPT,    /* from the hub: struct tt_wire_accept; this process is now a member of the run */
    TT_WIRE_REFUSE,    /* from the hub: a text; `parameter`: enum tt_wire_refusal; the hub then closes */
    TT_WIRE_PLACE,   /* to the hub, once: struct tt_wire_address, at which this process accepts data lines */
    TT_WIRE_WELCOME, /* from the hub, when all ranks have joined: struct tt_wire_welcome */
    TT_WIRE_BYE,     /* the last frame of an orderly end */
    /* rank `parameter` failed with struct tt_error; `offset`: first rank of the process that reports the error, or
     * UINT64_MAX: the process of that rank reports it */
    TT_WIRE_ABORT,
    TT_WIRE_BEAT, /* every TT_WIRE_BEAT_SECONDS; to the hub with the activity of the process, a text */
};

/* Bits. */
enum tt_wire_refusal {
    TT_WIRE_REFUSAL_FINAL = 1, /* a retry is useless */
    TT_WIRE_REFUSAL_TWIN = 2,  /* another process already has this place in the run; no setting is wrong */
};

enum {
    TT_WIRE_MAGIC = 0x6d697274, /* "trim" */
    TT_WIRE_RANKS_MAX = 1 << 16,
    TT_WIRE_HELLO_BYTES_MAX = 1 << 20,
    TT_WIRE_TEXT_BYTES_MAX = 1 << 10,
    TT_WIRE_ADDRESSES_MAX = 8,                       /* listening addresses of a process */
    TT_WIRE_SOCKETS_MAX = TT_WIRE_ADDRESSES_MAX + 1, /* and a Unix socket */
    TT_WIRE_BEAT_SECONDS = 2,
    TT_WIRE_SILENCE_SECONDS = 20, /* a process that is silent for longer has failed */
};

struct tt_wire_header {
    uint32_t magic, kind;
    int32_t parameter;
    uint32_t reserved;
    uint64_t offset;
    uint64_t bytes; /* payload that follows */
};

struct tt_wire_hello {
    char version[32];
    uint32_t byte_order, error_bytes;
    int32_t world_size, first_rank, local_count;
    int32_t reserved;
    int64_t process;
    int64_t attempt;  /* of the run, as the cluster counts them; -1: not known */
    char run[80];     /* the cluster's name of the run; empty: not known */
    char machine[80]; /* processes with the same text share a machine */
    char host[80];    /* for messages */
};

struct tt_wire_accept {
    int64_t process; /* of rank 0 */
    char host[80];
};

/* An address and a port. TT_WIRE_SAME sent to the hub means the sender's address of this connection; sent by the hub,
 * the address at which the receiver reaches rank 0. */
enum { TT_WIRE_SAME = 0 };
struct tt_wire_address {
    int32_t family; /* TT_WIRE_SAME, 4 or 6 */
    int32_t port;
    uint32_t scope; /* of a link-local IPv6 address; valid only on this machine */
    unsigned char bytes[16];
};

struct tt_wire_rank {
    int32_t machine; /* numbered from 0 in order of the ranks */
    struct tt_wire_address place;
};

struct tt_wire_welcome {
    unsigned char key[32];       /* for tt_proof_key_of_run */
    struct tt_wire_rank ranks[]; /* [world_size] */
};

enum tt_wire_result { TT_WIRE_OK, TT_WIRE_CLOSED, TT_WIRE_WOKEN, TT_WIRE_LATE };

/* Sockets do not block; these functions wait. TT_WIRE_WOKEN: `wake` (-1: none) became readable; TT_WIRE_LATE:
 * tt_clock_seconds passed `deadline` (0: none); TT_WIRE_CLOSED: the connection is closed or broken. */
enum tt_wire_result tt_wire_send(int socket, int wake, const struct tt_wire_header *header,
                                 const void *payload, double deadline);
/* Sends parts[0 .. count-1] one after the other. Changes `parts`. */
enum tt_wire_result tt_wire_send_parts(int socket, int wake, struct iovec *parts, int count, double deadline);
enum tt_wire_result tt_wire_receive(int socket, int wake, void *data, size_t bytes, double deadline);

/* Sets the options of every connection: no delay, keep-alive, non-blocking, close on exec. */
void tt_wire_prepare_socket(int socket);
/* Listening sockets of a process. */
struct tt_wire_listener {
    int sockets[TT_WIRE_SOCKETS_MAX], count;
    bool local; /* reachable from this machine only */
};
/* Listens at `port` of all addresses of `address` (a name or an address); NULL: at all addresses of this machine, with
 * `local` at its loopback address. */
TT_MUST_USE tt_status tt_wire_listen(const char *address, bool local, int port,
                                     struct tt_wire_listener *listener);
/* The same at a port that the system chooses, which is stored in *port and is equal at all addresses. Connections are
 * refused until tt_wire_listener_start. `at`, if not NULL, replaces `address`. */
TT_MUST_USE tt_status tt_wire_reserve(const char *address, const struct tt_wire_address *at,
                                      struct tt_wire_listener *listener, int *port);
TT_MUST_USE tt_status tt_wire_listener_start(const struct tt_wire_listener *listener);
void tt_wire_listener_close(struct tt_wire_listener *listener);
/* True if `host` is a name or an address that no interface of this machine has; false also where it is not known. */
bool tt_wire_is_elsewhere(const char *host);
/* Stores the address of this end of a connection, or of the other end; family 0 if it is unknown. */
void tt_wire_address_of(int socket, bool other_end, struct tt_wire_address *address);
bool tt_wire_is_loopback(const struct tt_wire_address *address);
bool tt_wire_is_any(const struct tt_wire_address *address); /* all addresses of a machine */
void tt_wire_address_text(const struct tt_wire_address *address, char *text, size_t bytes);
/* Begins to connect and returns the socket, which becomes writable when the attempt has succeeded or failed (SO_ERROR).
 * -1 with errno. */
int tt_wire_connect_begin(const struct tt_wire_address *address);
/* The other end of a connection: origin[16], equal for all connections of one IPv4 address or of one IPv6 network of 64
 * bits, and its address as a text. */
void tt_wire_origin(int socket, unsigned char origin[16], char *text, size_t text_bytes);
/* Makes one attempt to connect, until `deadline`. Returns the socket, or -1 with the reason in `why`. */
int tt_wire_connect(const char *host, int port, double deadline, char *why, size_t why_bytes);

/* Name of this machine, for messages; in a pod with NODE_NAME also that of its node. */
void tt_wire_host(char *host, size_t bytes);
struct tt_tcp_config;
struct tt_wire_hello tt_wire_hello_make(const struct tt_tcp_config *config);
/* Makes a received record safe to use: terminates texts, replaces an unknown status, limits counts. */
void tt_wire_clean_error(struct tt_error *error);
/* Copies a received text into text[text_bytes], terminated; control characters except newlines become '?'. */
void tt_wire_clean_text(const void *from, size_t from_bytes, char *text, size_t text_bytes);

#endif
