/* How a process joins a run: it connects to the hub, proves that it belongs to the run, sends its hello and the address
 * at which it listens, waits for the others, and connects its ranks to theirs. */
#ifndef TT_COMM_MEET_H
#define TT_COMM_MEET_H

#include "comm/comm.h"

/* Connects *control and lines[local_count * world_size] (comm/lines.h) and fills machines[world_size]. The caller owns
 * all sockets, also after an error, when missing ones are -1. Refusals may be temporary, so connecting is retried until
 * the timeout of `config`, unless rank 0 states that a retry is useless. A process that gives up after it was accepted
 * sends its error to the hub. */
TT_MUST_USE tt_status tt_meet(const struct tt_tcp_config *config, int *control, int *lines, int *machines);

#endif
