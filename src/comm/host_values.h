/* Small values exchanged over the hosts of the ranks, with tt_comm_host_all_gather. Collective. */
#ifndef TT_COMM_HOST_VALUES_H
#define TT_COMM_HOST_VALUES_H

#include "comm/comm.h"

/* Replaces each of values[count] by its sum over the ranks, added in order of rank: the same bits on all ranks. */
TT_MUST_USE tt_status tt_comm_host_sum(struct tt_comm *comm, double *values, size_t count);
/* Copies rank 0's `value` to all ranks. */
TT_MUST_USE tt_status tt_comm_host_share(struct tt_comm *comm, void *value, size_t bytes);

#endif
