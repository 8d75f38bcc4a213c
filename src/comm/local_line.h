/* Unix sockets between processes of one machine, for data lines: they move data at about 1.5 times the speed of TCP
 * over loopback. The name of a listening socket follows from the key of the run and the entry of the rank in the
 * welcome, so that a process outside the run cannot predict it. The name is abstract (unix(7)): it leaves no file
 * behind, and processes in another network namespace cannot reach it. A connection begins with the proof of
 * comm/proof.h, as over TCP. */
#ifndef TT_COMM_LOCAL_LINE_H
#define TT_COMM_LOCAL_LINE_H

#include "comm/proof.h"
#include "comm/wire.h"

/* Listens for the process of `rank`, without blocking. Returns the socket, or -1: lines go over TCP. */
int tt_local_line_listen(const struct tt_proof_key *key, const struct tt_wire_rank *rank);
/* Connects to the process of `rank`. Returns the socket, or -1: it does not listen, or not within reach. */
int tt_local_line_connect(const struct tt_proof_key *key, const struct tt_wire_rank *rank);
/* True for a Unix socket. */
bool tt_local_line_is(int socket);

#endif
