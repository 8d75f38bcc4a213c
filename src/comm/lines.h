/* Data lines: a connection between each two ranks of a run, made while the processes meet. Between two
 * processes the one with the higher ranks connects, once for each pair of ranks; the other one listens until
 * all of its lines are there. Both prove that they are members (comm/proof.h, TT_PROOF_DATA) by the key of
 * the run, which only processes have whose control connection was accepted; then the one that connected names
 * the two ranks. Ranks of one process get a pair of sockets. */
#ifndef TT_COMM_LINES_H
#define TT_COMM_LINES_H

#include "comm/proof.h"
#include "comm/wire.h"

struct tt_lines_config {
    int world_size, first_rank, local_count;
    const struct tt_wire_rank *ranks;    /* [world_size]: where each is reached */
    const struct tt_wire_address *rank0; /* where this process reaches rank 0 */
    const struct tt_proof_key *key;      /* of the run */
    struct tt_wire_door *door;           /* reserved; here it listens */
    int port;                            /* of the door, for messages */
    int control;                         /* socket that is polled along: what comes there is for `look` */
    /* Called again and again: whether to go on. */
    tt_status (*look)(void *context);
    void *context;
};

/* What the process that connected says after the proof. */
struct tt_line_hello {
    uint32_t magic;
    int32_t from, to; /* ranks: its own, and that of the other process */
    uint32_t reserved;
};

/* How many sockets the lines of a process are. */
size_t tt_lines_count(int world_size, int local_count);
/* lines[local_count * world_size]: that from rank first_rank + i to rank q is lines[i * world_size + q], -1
 * where i is q. Owned by the caller, also after an error; -1 where there is none. */
TT_MUST_USE tt_status tt_lines_connect(const struct tt_lines_config *config, int *lines);
void tt_lines_close(int *lines, size_t count);

#endif
