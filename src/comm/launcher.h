/* Which launcher started this process, by the variables that launchers leave in the environment: the one table of them.
 * What follows from them for a job is decided in launch/launch.h. */
#ifndef TT_COMM_LAUNCHER_H
#define TT_COMM_LAUNCHER_H

#include <stdbool.h>

/* Names of variables; NULL where the launcher has none. */
struct tt_launcher {
    const char *rank, *world_size;
    const char *local_rank, *local_size;
    const char *machine, *machines;
    const char *ranks; /* of this process */
    const char *host, *port;
    const char *started[2]; /* one of them is set: each process is one rank */
    const char *mpi_size;   /* more than 1: the processes meet through MPI */
};

enum tt_launcher_kind {
#define LAUNCHER(name, ...) TT_LAUNCHER_##name,
#include "comm/launchers.def"
#undef LAUNCHER
    TT_LAUNCHER_KINDS
};
extern const struct tt_launcher tt_launchers[TT_LAUNCHER_KINDS];

bool tt_launcher_is_per_rank(void);   /* a launcher has started one process for each rank */
bool tt_launcher_is_other_rank(void); /* and this is not the first of them */
bool tt_launcher_is_mpi(void);        /* by MPI, with more than one rank */
/* A variable that is set to something; NULL where `variable` is NULL, is not set or is empty. */
const char *tt_launcher_read(const char *variable);

#endif
