/* The control connection of a process to the hub, shared by all its ranks in comm/tcp.c. Its thread receives messages,
 * sends beats, and passes on failures of ranks. */
#ifndef TT_COMM_LINK_H
#define TT_COMM_LINK_H

#include "comm/comm.h"
#include "comm/hub.h"

struct tt_link;

/* Joins the run: starts the hub in the process of rank 0, connects the control connection and the data lines
 * lines[local_count * world_size] (comm/lines.h, owned by the caller), and waits until all ranks have joined. The link
 * then has one user. */
TT_MUST_USE tt_status tt_link_create(const struct tt_tcp_config *config, struct tt_link **out, int *lines);
void tt_link_retain(struct tt_link *link); /* adds a user */
/* removes a user; the last one leaves the hub and frees the link */
void tt_link_release(struct tt_link *link);

int tt_link_wake(const struct tt_link *link); /* descriptor that becomes readable when a rank has failed */
const int *tt_link_machines(const struct tt_link *link);  /* lends [world_size]: machine of each rank */
TT_MUST_USE tt_status tt_link_poll(struct tt_link *link); /* TT_OK, or the error of the rank that failed */
/* Called on a sign of a failure, such as a closed data line: waits up to 8 s for the error of the failed rank and
 * returns it as tt_link_poll does. TT_OK: no error arrived. */
TT_MUST_USE tt_status tt_link_await_cause(struct tt_link *link);
/* Sends the failure of `rank` (of this process) with the record of this thread. Later failures are ignored. */
void tt_link_abort(struct tt_link *link, int rank);
/* Sets the activity of this process, which the hub reports if the process falls silent. */
void tt_link_set_activity(struct tt_link *link, const char *activity);

#endif
