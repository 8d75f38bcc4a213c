/* Files on rank 0's machine for processes on machines without them (base/store.h). Each such process has one
 * connection to rank 0's process, with a proof of membership at its start; a thread of rank 0's process serves it, one
 * call after the other.
 *
 * Rank 0 serves its configured paths and all files below them, writes only below the marked ones, and never
 * follows ".." in a name. Either side holds TT_STORE_BYTES_MAX of a file in memory. A write is made when all its bytes
 * have arrived. During a long call (fsync) rank 0 sends a sign of life every two seconds; without one for 20 s the
 * call fails, as it does when the connection ends. */
#ifndef TT_COMM_FILES_H
#define TT_COMM_FILES_H

#include "base/store.h"
#include "comm/proof.h"
#include "comm/wire.h"

struct tt_files_path {
    const char *path; /* lent */
    bool writes;
};
/* Whether `path` is one of paths[count] or below one, and writable where `writes`. */
bool tt_files_covers(const struct tt_files_path *paths, size_t count, const char *path, bool writes);

enum { TT_FILES_HANDLES_MAX = 1024, TT_FILES_PATH_BYTES_MAX = 8192 };

struct tt_files_request {
    uint32_t magic, kind; /* enum tt_store_kind */
    int64_t handle;
    uint64_t offset, value;
    uint32_t path_bytes, second_bytes; /* with terminators; 0: none. The texts follow, then the data. */
    uint64_t data_bytes;
};

enum tt_files_answer {
    TT_FILES_BUSY = 1, /* the call goes on; another answer follows */
    TT_FILES_DONE,
    TT_FILES_FAILED, /* data: struct tt_error */
};

struct tt_files_reply {
    uint32_t magic, answer; /* enum tt_files_answer */
    int64_t handle;
    uint64_t value;
    uint64_t data_bytes; /* follow */
};

struct tt_files_config {
    const char *host;               /* rank 0's, for clients */
    const char *bind;               /* NULL: the server listens at all addresses */
    bool local;                     /* both sides are on this machine */
    int port;                       /* for clients */
    const struct tt_proof_key *key; /* lent, as all here */
    const struct tt_files_path *paths;
    size_t path_count;
};

struct tt_files_server;
/* Listens at a port that the system chooses. The server begins with tt_files_server_admit. */
TT_MUST_USE tt_status tt_files_server_open(const struct tt_files_config *config, struct tt_files_server **out,
                                           int *port);
/* Waits for `clients` processes, for at most `seconds`, and closes the listener. */
TT_MUST_USE tt_status tt_files_server_admit(struct tt_files_server *server, int clients, double seconds);
void tt_files_server_close(struct tt_files_server *server); /* ends running calls; takes NULL */

struct tt_files_client;
TT_MUST_USE tt_status tt_files_client_open(const struct tt_files_config *config, double seconds,
                                           struct tt_files_client **out);
/* The table for tt_store_set. */
const struct tt_store *tt_files_client_store(struct tt_files_client *client);
void tt_files_client_close(struct tt_files_client *client); /* takes NULL */

#endif
