/* Which transport serves ranks on GPUs: copies between them where all are threads of one process, otherwise NCCL. */
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "comm/comm_impl.h"

/* Exchanged to find out which ranks share a process. Containers of one machine may share its name, and in each the
 * program may be process 1, so process numbers are compared only within one PID namespace. */
struct location {
    int64_t process, process_space, device;
    char host[64];
};

static int64_t own_process_space(void)
{
    struct stat facts;
    return stat("/proc/self/ns/pid", &facts) == 0 ? (int64_t)facts.st_ino : 0;
}

/* Stores the locations of all ranks in *locations, owned by the caller; NULL on failure. */
static tt_status exchange_locations(struct tt_comm *comm, const struct tt_device *device,
                                    struct location **locations)
{
    struct location own = {
        .process = getpid(), .process_space = own_process_space(), .device = tt_device_index(device)};
    if (gethostname(own.host, sizeof own.host - 1) != 0) memset(own.host, 0, sizeof own.host);
    *locations = tt_calloc((size_t)comm->world_size, sizeof **locations);
    if (*locations == NULL) return TT_ERR_MEMORY;
    tt_status status = tt_comm_host_all_gather(comm, &own, *locations, sizeof own);
    if (status == TT_OK) return TT_OK;
    tt_free(*locations);
    *locations = NULL;
    return status;
}

static bool is_same_process(const struct location *a, const struct location *b)
{
    return a->process == b->process && a->process_space == b->process_space &&
           memcmp(a->host, b->host, sizeof a->host) == 0;
}

tt_status tt_comm_count_local_ranks(struct tt_comm *comm, const struct tt_device *device, int *count)
{
    struct location *locations = NULL;
    TT_TRY(exchange_locations(comm, device, &locations));
    *count = 0;
    for (int r = 0; r < comm->world_size; r++)
        *count += is_same_process(&locations[r], &locations[comm->rank]);
    tt_free(locations);
    return TT_OK;
}

tt_status tt_comm_shares_memory(struct tt_comm *comm, struct tt_device *device, bool willing, bool *shares)
{
    struct location *locations = NULL;
    int64_t can = willing, *all = tt_calloc((size_t)comm->world_size, sizeof *all);
    if (all == NULL) return TT_ERR_MEMORY;
    tt_status status = exchange_locations(comm, device, &locations);
    for (int r = 0; r < comm->world_size && status == TT_OK && can; r++)
        can = is_same_process(&locations[r], &locations[comm->rank]) &&
              tt_device_reach(device, (int)locations[r].device);
    if (status == TT_OK) status = tt_comm_host_all_gather(comm, &can, all, sizeof can);
    *shares = true;
    for (int r = 0; r < comm->world_size; r++) *shares &= all[r] != 0;
    tt_free(all);
    tt_free(locations);
    return status;
}

tt_status tt_comm_create_gpu(struct tt_comm *control, struct tt_device *device, struct tt_comm **out)
{
    bool shares = false;
    TT_TRY(tt_comm_shares_memory(control, device, true, &shares));
    return shares ? tt_comm_create_peers(control, device, out) : tt_comm_create_nccl(control, device, out);
}
