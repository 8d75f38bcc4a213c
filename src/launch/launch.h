/* Detection of the launcher and of this process's ranks, from the launchers' environment variables and from settings
 * (num_machines, machine_rank, main_process_ip, main_process_port, ranks).
 *
 *   started by                                       ranks of this process   they meet by
 *   torchrun (RANK, WORLD_SIZE, MASTER_ADDR, ...)    one                     tcp
 *   srun with MASTER_ADDR set                        one                     tcp
 *   mpirun, srun                                     one                     mpi
 *   Kubeflow, once per pod (PET_NNODES, ...)         one per device          tcp
 *   LeaderWorkerSet, SkyPilot, once per machine      one per device          tcp
 *   an Indexed Job, a JobSet or Volcano's Job
 *     with num_machines                              one per device          tcp
 *   Volcano's plugin pytorch (VC_TASK_INDEX, RANK)   one per device          tcp
 *   hand, on each of num_machines machines           one per device          tcp
 *   hand                                             one per device          threads
 *
 * comm/launchers.def has the names of the variables.
 */
#ifndef TT_LAUNCH_LAUNCH_H
#define TT_LAUNCH_LAUNCH_H

#include "base/str.h"
#include "comm/proof.h"
#include "job/parts.h"

enum tt_launch_kind { TT_LAUNCH_ALONE, TT_LAUNCH_MPI, TT_LAUNCH_PROCESSES, TT_LAUNCH_MACHINES };

struct tt_launch {
    enum tt_launch_kind kind;
    int rank, world_size;       /* PROCESSES: of this process */
    int local_rank;             /* PROCESSES: from the launcher; -1: unknown */
    int machine_rank, machines; /* MACHINES: index of this one, and their number */
    int ranks;                  /* ranks of this process; 0: one per device */
    char host[256];             /* PROCESSES, MACHINES: address of rank 0 */
    int port;
    bool local;       /* PROCESSES, MACHINES: all ranks are on this machine, by the launcher or the address */
    char machine[80]; /* name of this machine, if set: ranks with the same text share a machine */
    char run[80];     /* RUN_UID: the cluster's name of the run; empty: not set */
    int64_t attempt;  /* RUN_ATTEMPT: its count of the starts of the run; -1: not set */
};

/* TT_ERR_USAGE for variables and settings that are invalid or contradict each other. */
TT_MUST_USE tt_status tt_launch_detect(const struct tt_launch_spec *config, struct tt_launch *launch);

/* True if the launcher kills all processes once one of them has ended, as those of MPI do. */
bool tt_launch_kills_all(void);

/* Appends the variables of unused.def that are set and have no effect, each with the reason, as one line; nothing if
 * none is. `on_gpus`: the ranks are. */
TT_MUST_USE tt_status tt_launch_list_unused(bool on_gpus, struct tt_str *text);

/* The key of the job secret, from TRIMTAB_JOB_SECRET or the file TRIMTAB_JOB_SECRET_FILE; not set without either. The
 * secret itself is not a setting and appears in no message. The caller wipes the key. */
TT_MUST_USE tt_status tt_launch_secret(struct tt_proof_key *key);

/* Stores the number of ranks of each machine, by the settings, in *ranks: `ranks`, otherwise num_processes /
 * num_machines; 0: one per device. TT_ERR_USAGE if the division has a remainder. */
TT_MUST_USE tt_status tt_launch_count_ranks(const struct tt_launch_spec *config, int *ranks);

#endif
