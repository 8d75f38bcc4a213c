/* How this process was started, and which ranks it therefore has: read from what launchers leave in the
 * environment and from the settings that say so (num_machines, machine_rank, main_process_ip,
 * main_process_port, ranks).
 *
 *   started by                                       ranks of this process   they meet by
 *   torchrun (RANK, WORLD_SIZE, MASTER_ADDR, ...)    one                     tcp
 *   srun with MASTER_ADDR set                        one                     tcp
 *   mpirun, srun                                     one                     mpi
 *   Kubeflow, once per pod (PET_NNODES, ...)         one per device          tcp
 *   hand, on each of num_machines machines           one per device          tcp
 *   hand                                             one per device          threads
 *
 * The names of the variables stand in comm/launchers.def.
 */
#ifndef TT_LAUNCH_LAUNCH_H
#define TT_LAUNCH_LAUNCH_H

#include "base/str.h"
#include "comm/proof.h"
#include "job/spec.h"

enum tt_launch_kind { TT_LAUNCH_ALONE, TT_LAUNCH_MPI, TT_LAUNCH_PROCESSES, TT_LAUNCH_MACHINES };

struct tt_launch {
    enum tt_launch_kind kind;
    int rank, world_size;       /* PROCESSES: of this process */
    int local_rank;             /* PROCESSES: as the launcher says; -1: it does not */
    int machine_rank, machines; /* MACHINES: which one this is, of how many */
    int ranks;                  /* ranks of this process; 0: one per device */
    char host[256];             /* PROCESSES, MACHINES: where rank 0 listens */
    int port;
    bool local; /* PROCESSES, MACHINES: all ranks are on this machine, as the launcher or the address says */
    char machine[80]; /* which machine this is, when somebody says: ranks with one text share a machine */
};

TT_MUST_USE tt_status tt_launch_detect(const struct tt_launch_spec *config, struct tt_launch *launch);

/* Whether the launcher kills all processes once one of them has ended, as those of MPI do. */
bool tt_launch_kills_all(void);

/* The key of the job secret, from TRIMTAB_JOB_SECRET or the file TRIMTAB_JOB_SECRET_FILE; not set where neither is
 * there. The secret itself is no setting, and no message has it. The caller wipes the key. */
TT_MUST_USE tt_status tt_launch_secret(struct tt_proof_key *key);

/* How many ranks the settings give each machine (ranks, else num_processes over num_machines); 0: one per
 * device. */
TT_MUST_USE tt_status tt_launch_count_ranks(const struct tt_launch_spec *config, int *ranks);

/* What must be the same in all processes, one "name: value" a line, command and device first. */
TT_MUST_USE tt_status tt_launch_settings(const struct tt_job_spec *config, const char *command,
                                         const char *device_kind, struct tt_str *text);

#endif
