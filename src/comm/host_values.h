/* Small values that ranks share over their hosts, on top of tt_comm_host_all_gather. Collective. */
#ifndef TT_COMM_HOST_VALUES_H
#define TT_COMM_HOST_VALUES_H

#include "comm/comm.h"

/* Each of `values` becomes its sum over the ranks, added in order of rank: the same bits everywhere. */
TT_MUST_USE tt_status tt_comm_host_sum(struct tt_comm *comm, double *values, size_t count);
/* Rank 0's `value` becomes everybody's. */
TT_MUST_USE tt_status tt_comm_host_share(struct tt_comm *comm, void *value, size_t bytes);

#endif
