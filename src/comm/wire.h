/* How processes talk to each other in comm/tcp.c: frames over TCP, a fixed header and a payload of the length
 * that it says, on the control connection of each process to the hub. A connection begins with the proof of
 * comm/proof.h. Both ends are the same program on machines of one byte order; the first frame shows it. What
 * arrives is checked before it is used, as from a stranger. */
#ifndef TT_COMM_WIRE_H
#define TT_COMM_WIRE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/uio.h>

#include "base/error.h"

enum tt_wire_kind {
    TT_WIRE_HELLO = 1, /* to the hub: struct tt_wire_hello, then the settings */
    TT_WIRE_ACCEPT,    /* from it: struct tt_wire_accept; this process is a member of the run */
    TT_WIRE_REFUSE,    /* from it: a text, `parameter` 1: trying again does not help; then it closes */
    TT_WIRE_PLACE,     /* to it, once: struct tt_wire_address, where this process takes data lines */
    TT_WIRE_WELCOME,   /* from it, once all ranks are there: struct tt_wire_welcome */
    TT_WIRE_BYE,       /* nothing more comes on this connection, in good order */
    TT_WIRE_ABORT, /* rank `parameter` failed with struct tt_error; `offset`: first rank of the process that
                      tells it, or UINT64_MAX: its own does */
    TT_WIRE_BEAT,  /* every TT_WIRE_BEAT_SECONDS: what this process is doing, a text */
};

enum {
    TT_WIRE_MAGIC = 0x6d697274, /* "trim" */
    TT_WIRE_RANKS_MAX = 1 << 16,
    TT_WIRE_HELLO_BYTES_MAX = 1 << 20,
    TT_WIRE_TEXT_BYTES_MAX = 1 << 10,
    TT_WIRE_ADDRESSES_MAX = 8, /* that a process listens at */
    TT_WIRE_BEAT_SECONDS = 2,
    TT_WIRE_SILENCE_SECONDS = 20, /* then a process is taken for dead */
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
    char machine[80]; /* processes with one text share a machine */
    char host[80];    /* for messages */
};

struct tt_wire_accept {
    int64_t process; /* of rank 0 */
    char host[80];
};

/* An address and a port. TT_WIRE_SAME, to the hub: the address that this connection comes from; from it: the
 * address at which the receiver reaches rank 0. */
enum { TT_WIRE_SAME = 0 };
struct tt_wire_address {
    int32_t family; /* TT_WIRE_SAME, 4 or 6 */
    int32_t port;
    uint32_t scope; /* of an IPv6 address of one link; counts only on this machine */
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

/* Sockets do not block; these wait. TT_WIRE_WOKEN: `wake` (-1: none) became readable; TT_WIRE_LATE:
 * tt_clock_seconds passed `deadline` (0: none); TT_WIRE_CLOSED: the other end is gone. */
enum tt_wire_result tt_wire_send(int socket, int wake, const struct tt_wire_header *header,
                                 const void *payload, double deadline);
/* parts[0 .. count-1] one after the other; they are used up. */
enum tt_wire_result tt_wire_send_parts(int socket, int wake, struct iovec *parts, int count, double deadline);
enum tt_wire_result tt_wire_receive(int socket, int wake, void *data, size_t bytes, double deadline);

/* Options that every connection has: no delay, keep-alive, non-blocking, closed on exec. */
void tt_wire_prepare_socket(int socket);
/* Listening sockets of a process. */
struct tt_wire_door {
    int sockets[TT_WIRE_ADDRESSES_MAX], count;
    bool local; /* reached from this machine only */
};
/* At `port` of every address of `address` (a name or an address); NULL: of all addresses of this machine, or
 * with `local` of its loopback interface. */
TT_MUST_USE tt_status tt_wire_listen(const char *address, bool local, int port, struct tt_wire_door *door);
/* The same at a port that the system chooses, and connections are refused until tt_wire_door_begin. `at`,
 * where it is not NULL, is used in place of a name. *port is the same at all addresses. */
TT_MUST_USE tt_status tt_wire_reserve(const char *address, const struct tt_wire_address *at,
                                      struct tt_wire_door *door, int *port);
TT_MUST_USE tt_status tt_wire_door_begin(const struct tt_wire_door *door);
void tt_wire_door_close(struct tt_wire_door *door);
/* The address of this end of a connection, or of the other end; family 0 when that cannot be told. */
void tt_wire_address_of(int socket, bool other_end, struct tt_wire_address *address);
bool tt_wire_is_loopback(const struct tt_wire_address *address);
bool tt_wire_is_any(const struct tt_wire_address *address); /* all addresses of a machine */
void tt_wire_address_text(const struct tt_wire_address *address, char *text, size_t bytes);
/* Begins to connect; the socket is writable when it has ended, well or not. -1 with errno. */
int tt_wire_connect_begin(const struct tt_wire_address *address);
/* The other end of a connection: 16 bytes that compare equal for one machine (IPv6: one network of 64 bits),
 * and as a text. */
void tt_wire_origin(int socket, unsigned char origin[16], char *text, size_t text_bytes);
/* One attempt; -1 with `why` when it fails. Gives up at `deadline`. */
int tt_wire_connect(const char *host, int port, double deadline, char *why, size_t why_bytes);

/* Name of this machine, for messages. */
void tt_wire_host(char *host, size_t bytes);
struct tt_wire_hello tt_wire_hello_make(int world_size, int first_rank, int local_count, const char *machine);
/* A record that came over the network: terminated texts, known status, counts in range. */
void tt_wire_clean_error(struct tt_error *error);
/* A text that came over the network, into text[bytes]: terminated, printable. */
void tt_wire_clean_text(const void *from, size_t from_bytes, char *text, size_t text_bytes);

#endif
