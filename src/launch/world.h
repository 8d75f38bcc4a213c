/* The ranks of this process: finds the peers, assigns a device to each rank, starts one thread per rank, and returns
 * their errors.
 *
 * A rank that fails aborts the communicator, so that no other rank waits for it; of several errors the cause is
 * reported, not the failure of a peer. */
#ifndef TT_LAUNCH_WORLD_H
#define TT_LAUNCH_WORLD_H

#include "base/str.h"
#include "base/thread.h"
#include "comm/comm.h"
#include "job/inputs.h"
#include "launch/pulse.h"

/* Arguments of a rank. */
struct tt_world_rank {
    /* lent: connects all ranks of the run over their hosts (for GPUs tt_rank_init adds NCCL) */
    struct tt_comm *comm;
    struct tt_device_config device;
    struct tt_pulse *pulse; /* lent; beats while the rank queues work */
    int machine;            /* number of its machine, from 0 in order of the ranks */
    int local_rank;         /* its number among the ranks of its machine */
};

struct tt_world {
    struct tt_world_rank *ranks; /* [local_count]; their communicators are owned */
    struct tt_pulse *pulses;     /* [local_count], owned */
    int local_count;             /* ranks of this process */
    int world_size;              /* ranks of the run */
    int first_rank;              /* global rank of ranks[0] */
    int machine_count;
    int ranks_per_machine;          /* 0: different numbers */
    int threads_per_rank;           /* cpu threads of each */
    const struct tt_cancel *cancel; /* NULL or lent: after a request no further rank is started */
    /* How processes that meet by address reach rank 0: its host (empty: they do not), and whether all are on one
     * machine; `bind`: rendezvous_bind, lent. */
    char host[256];
    bool local;
    const char *bind;
    bool restarts;          /* by its variables, a cluster starts the run again when it fails */
    char run[80];           /* RUN_UID, the cluster's name of the run, or empty */
    struct tt_str settings; /* owned: command, device and settings, the same in all processes */
};

/* All lent. */
struct tt_world_config {
    const struct tt_launch_spec *launch;
    const struct tt_device_spec *device;
    const char *command;            /* "train" */
    const char *settings;           /* one "name: value" a line (job/compared.h) */
    const struct tt_cancel *cancel; /* NULL, or ends the wait for peers */
};

/* Opens the ranks that launch.h detects. Command, kind of device and settings are compared with those of the other
 * processes. */
TT_MUST_USE tt_status tt_world_open(const struct tt_world_config *config, struct tt_world *world);
/* The ranks of this process's machine, as far as is known: at least those of the process. */
int tt_world_ranks_here(const struct tt_world *world);
void tt_world_close(struct tt_world *world);

/* All processes exchange their status before their ranks start: tt_comm_agree; no effect with one process. */
TT_MUST_USE tt_status tt_world_agree(struct tt_world *world, tt_status status);

/* The slices that this process compares of tensors that should be equal; zeroed where it is alone. */
struct tt_compare_share tt_world_share(const struct tt_world *world);
/* Settles what the processes found together, after inputs were opened with that share (tt_inputs_settle).
 * Collective. */
TT_MUST_USE tt_status tt_world_settle_inputs(struct tt_world *world, struct tt_inputs *inputs);

/* Call before a failed rank is destroyed: adds the rank's number to the record and notifies the others. No effect for
 * TT_OK, and for TT_ERR_CANCELLED, on which all ranks have agreed. `comm`: the rank's communicator for data if it
 * exists (rank->world), otherwise that of struct tt_world_rank. */
void tt_world_rank_failed(struct tt_comm *comm, tt_status status);

typedef tt_status tt_rank_main(void *context, const struct tt_world_rank *rank);
/* Runs `main` once per local rank, each in its own thread. Returns TT_OK or the status and record of the cause. */
TT_MUST_USE tt_status tt_world_run(struct tt_world *world, tt_rank_main *main, void *context);

/* Stores "cpu" or "cuda" for the setting `device` in *kind, and the number of visible devices in *count (1 for the
 * cpu). TT_DEVICE_AUTO chooses GPUs if there are any. A GPU that cannot be used is TT_ERR_DEVICE with the reason. */
TT_MUST_USE tt_status tt_world_choose_device(enum tt_device_choice device, const char **kind, int *count);

#endif
