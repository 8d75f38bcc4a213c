/* How a process joins a run: connects to the hub, proves that it belongs to the run, says hello and where it
 * listens, waits for the others, and connects its ranks to theirs. */
#ifndef TT_COMM_MEET_H
#define TT_COMM_MEET_H

#include "comm/comm.h"

/* Connects control and lines[local_count * world_size] (comm/lines.h; both owned by the caller, also after an
 * error; -1 where there is none): machines[world_size]. Whatever turns a connection away may pass, so it is
 * tried again until the time of `config` is over, unless rank 0 says that this is of no use. A process that
 * gives up after it was accepted says why. */
TT_MUST_USE tt_status tt_meet(const struct tt_tcp_config *config, int *control, int *lines, int *machines);

#endif
