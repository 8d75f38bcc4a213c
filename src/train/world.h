/* The ranks of this process: finds the peers, starts one thread per rank, brings their errors home.
 *
 * A rank that fails aborts the communicator, so that no other rank waits for it; of several errors the one that is not
 * merely "a peer failed" is reported. */
#ifndef TT_TRAIN_WORLD_H
#define TT_TRAIN_WORLD_H

#include "comm/comm.h"
#include "train/config.h"

struct tt_world {
    struct tt_comm **comms; /* [local_count], owned */
    int local_count;        /* ranks of this process */
    int world_size;         /* ranks of the run */
    int first_rank;         /* global rank of comms[0] */
    int threads_per_rank;   /* cpu threads that each may use */
};

/* MPI when this process was started by mpirun or srun (one rank a process), else `ranks` threads. */
TT_MUST_USE tt_status tt_world_open(const struct tt_train_config *config, struct tt_world *world);
void tt_world_close(struct tt_world *world);

typedef tt_status tt_rank_main(void *context, struct tt_comm *comm);
/* Runs `main` once per local rank, each in a thread of its own, and returns the status that explains the most. */
TT_MUST_USE tt_status tt_world_run(struct tt_world *world, tt_rank_main *main, void *context);

#endif
