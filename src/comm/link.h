/* What a process has in common for all its ranks in comm/tcp.c: the control connection to the hub, with a
 * thread that listens there, beats, and spreads the word when a rank has failed. */
#ifndef TT_COMM_LINK_H
#define TT_COMM_LINK_H

#include "comm/comm.h"
#include "comm/hub.h"

struct tt_link;

/* Meets the others: starts the hub where rank 0 is, connects control and the data lines
 * lines[local_count * world_size] (comm/lines.h, owned by the caller), waits until all ranks are there. One
 * user. */
TT_MUST_USE tt_status tt_link_create(const struct tt_tcp_config *config, struct tt_link **out, int *lines);
void tt_link_use(struct tt_link *link);     /* one user more */
void tt_link_release(struct tt_link *link); /* one less; the last takes leave of the hub */

int tt_link_wake(const struct tt_link *link); /* readable from the moment that a rank has failed */
const int *tt_link_machines(const struct tt_link *link);
TT_MUST_USE tt_status tt_link_poll(struct tt_link *link); /* TT_OK, or the error of the rank that failed */
/* Something shows that a rank has failed: waits a little for the word itself. TT_OK: it has not come. */
TT_MUST_USE tt_status tt_link_await_word(struct tt_link *link);
/* `rank` (of this process) fails with the record of this thread. Only the first failure counts. */
void tt_link_abort(struct tt_link *link, int rank);
/* What others are told this process was doing when it falls silent. */
void tt_link_say(struct tt_link *link, const char *doing);

#endif
