/* What a process has in common for all its ranks in comm/tcp.c: the control connection to the hub, with a
 * thread that listens there, beats, and spreads the word when a rank has failed. */
#ifndef TT_COMM_LINK_H
#define TT_COMM_LINK_H

#include "comm/comm.h"
#include "comm/hub.h"

struct tt_link;

/* Meets the others: starts the hub where rank 0 is, connects control and the ranks' own sockets[local_count]
 * (owned by the caller), waits until all ranks are there. One user. */
TT_MUST_USE tt_status tt_link_create(const struct tt_tcp_config *config, struct tt_link **out, int *sockets);
void tt_link_use(struct tt_link *link);     /* one user more */
void tt_link_release(struct tt_link *link); /* one less; the last takes leave of the hub */

int tt_link_wake(const struct tt_link *link); /* readable from the moment that a rank has failed */
const int *tt_link_machines(const struct tt_link *link);
TT_MUST_USE tt_status tt_link_poll(struct tt_link *link); /* TT_OK, or the error of the rank that failed */
/* After the hub is gone: waits a little for the word why, then says that rank 0 stopped. */
TT_MUST_USE tt_status tt_link_lost(struct tt_link *link);
/* `rank` failed with `cause`, for which another rank left: waits a little for the word itself. */
TT_MUST_USE tt_status tt_link_await_cause(struct tt_link *link, int rank, const struct tt_error *cause);
/* `rank` (of this process) fails with the record of this thread. Only the first failure counts. */
void tt_link_abort(struct tt_link *link, int rank);
/* What others are told this process was doing when it falls silent. */
void tt_link_say(struct tt_link *link, const char *doing);

#endif
