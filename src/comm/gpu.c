/* Which transport serves ranks on GPUs: copies between them where all are threads of one process, otherwise NCCL. */
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "comm/comm_impl.h"

/* Exchanged to find out which ranks share a process. Containers of one machine may share its name, and in each the
 * program may be process 1, so process numbers are compared only within one PID namespace. */
struct location {
    int64_t process, process_space, device, willing;
    char host[64];
    /* the number of the running kernel's start, the same in all containers of a machine; empty: unknown */
    char kernel[40];
};

static int64_t own_process_space(void)
{
    struct stat facts;
    return stat("/proc/self/ns/pid", &facts) == 0 ? (int64_t)facts.st_ino : 0;
}

static void read_kernel(char *text, size_t text_bytes)
{
    FILE *file = fopen("/proc/sys/kernel/random/boot_id", "re");
    if (file == NULL) return;
    if (fgets(text, (int)text_bytes, file) == NULL) text[0] = '\0';
    fclose(file);
}

/* Stores the locations of all ranks in *locations, owned by the caller; NULL on failure. */
static tt_status exchange_locations(struct tt_comm *comm, const struct tt_device *device, bool willing,
                                    struct location **locations)
{
    struct location own = {.process = getpid(),
                           .process_space = own_process_space(),
                           .device = tt_device_index(device),
                           .willing = willing};
    read_kernel(own.kernel, sizeof own.kernel);
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
    TT_TRY(exchange_locations(comm, device, true, &locations));
    *count = 0;
    for (int r = 0; r < comm->world_size; r++)
        *count += is_same_process(&locations[r], &locations[comm->rank]);
    tt_free(locations);
    return TT_OK;
}

static enum tt_reach find_reach(const struct location *own, const struct location *other,
                                struct tt_device *device)
{
    if (!own->willing || !other->willing) return TT_REACH_NONE;
    if (is_same_process(own, other))
        return tt_device_reach(device, (int)other->device) ? TT_REACH_PROCESS : TT_REACH_NONE;
    bool here = own->kernel[0] != '\0' && strcmp(own->kernel, other->kernel) == 0;
    return here ? TT_REACH_MACHINE : TT_REACH_NONE;
}

tt_status tt_comm_reaches(struct tt_comm *comm, struct tt_device *device, bool willing,
                          enum tt_reach *reaches, enum tt_reach *least)
{
    struct location *locations = NULL;
    int32_t own = TT_REACH_PROCESS, *all = tt_calloc((size_t)comm->world_size, sizeof *all);
    if (all == NULL) return TT_ERR_MEMORY;
    tt_status status = exchange_locations(comm, device, willing, &locations);
    for (int r = 0; r < comm->world_size && status == TT_OK; r++) {
        reaches[r] = find_reach(&locations[comm->rank], &locations[r], device);
        if ((int32_t)reaches[r] < own) own = (int32_t)reaches[r];
    }
    if (status == TT_OK) status = tt_comm_host_all_gather(comm, &own, all, sizeof own);
    *least = TT_REACH_PROCESS;
    for (int r = 0; r < comm->world_size; r++)
        if (all[r] < (int32_t)*least) *least = (enum tt_reach)all[r];
    tt_free(all);
    tt_free(locations);
    return status;
}

tt_status tt_comm_shares_memory(struct tt_comm *comm, struct tt_device *device, bool willing, bool *shares)
{
    enum tt_reach least = TT_REACH_NONE, *reaches = tt_calloc((size_t)comm->world_size, sizeof *reaches);
    if (reaches == NULL) return TT_ERR_MEMORY;
    tt_status status = tt_comm_reaches(comm, device, willing, reaches, &least);
    *shares = least == TT_REACH_PROCESS;
    tt_free(reaches);
    return status;
}

tt_status tt_comm_create_gpu(struct tt_comm *control, struct tt_device *device, struct tt_comm **out)
{
    bool shares = false;
    TT_TRY(tt_comm_shares_memory(control, device, true, &shares));
    return shares ? tt_comm_create_peers(control, device, out) : tt_comm_create_nccl(control, device, out);
}
