/* Data lines: the direct connections between all pairs of ranks, made while the processes join the run. Of two
 * processes the one with the higher ranks connects, once for each pair of ranks; the other one listens until all of its
 * lines are complete. Both prove that they are members (comm/proof.h, TT_PROOF_DATA) with the key of the run, which
 * rank 0 sends only to processes whose control connection it has accepted. Then the process that connected sends the
 * numbers of the two ranks. Ranks of one process are connected by socket pairs, processes of one machine by Unix
 * sockets where they reach each other by them (comm/local_line.h), else by TCP. */
#ifndef TT_COMM_LINES_H
#define TT_COMM_LINES_H

#include "comm/proof.h"
#include "comm/wire.h"

struct tt_lines_config {
    int world_size, first_rank, local_count;
    const struct tt_wire_rank *ranks;    /* [world_size]: addresses of all ranks */
    const struct tt_wire_address *rank0; /* address at which this process reaches rank 0 */
    const struct tt_proof_key *key;      /* of the run */
    struct tt_wire_listener *listener;   /* of this process, from tt_wire_reserve */
    int port;                            /* of the listener, for messages */
    bool at_address;                     /* lines come to the listener only, also from this machine */
    int control;                         /* socket whose input ends a wait, so that `check` is called */
    /* Called at least every 250 ms; an error ends the connecting. */
    tt_status (*check)(void *context);
    void *context;
};

/* Sent by the process that connected, after the proof. */
struct tt_line_hello {
    uint32_t magic;
    int32_t from, to; /* ranks: of the sender and of the receiver */
    uint32_t reserved;
};

/* Number of sockets of the lines of a process. */
size_t tt_lines_count(int world_size, int local_count);
/* Fills lines[local_count * world_size]: the socket from rank first_rank + i to rank q is lines[i * world_size + q]; -1
 * from a rank to itself. The caller owns the sockets, also after an error, when missing ones are -1. */
TT_MUST_USE tt_status tt_lines_connect(const struct tt_lines_config *config, int *lines);
void tt_lines_close(int *lines, size_t count);

#endif
