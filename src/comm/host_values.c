#include "comm/host_values.h"

#include <string.h>

#include "base/alloc.h"

tt_status tt_comm_host_sum(struct tt_comm *comm, double *values, size_t count)
{
    size_t world = (size_t)tt_comm_world_size(comm);
    double *all = tt_calloc(world * count, sizeof *all);
    if (all == NULL) return TT_ERR_MEMORY;
    tt_status status = tt_comm_host_all_gather(comm, values, all, count * sizeof *values);
    for (size_t i = 0; i < count && status == TT_OK; i++) {
        values[i] = 0.0;
        for (size_t r = 0; r < world; r++) values[i] += all[r * count + i];
    }
    tt_free(all);
    return status;
}

tt_status tt_comm_host_share(struct tt_comm *comm, void *value, size_t bytes)
{
    char *all = tt_calloc((size_t)tt_comm_world_size(comm), bytes);
    tt_status status = tt_comm_agree(comm, all != NULL ? TT_OK : TT_ERR_MEMORY);
    if (status == TT_OK) status = tt_comm_host_all_gather(comm, value, all, bytes);
    if (status == TT_OK) memcpy(value, all, bytes);
    tt_free(all);
    return status;
}
