/* The table of launchers and their environment variables, which tell which launcher started this process.
 * launch/launch.h interprets them for a job. */
#ifndef TT_COMM_LAUNCHER_H
#define TT_COMM_LAUNCHER_H

#include <stdbool.h>

/* Names of variables; NULL if the launcher does not set one. */
struct tt_launcher {
    const char *rank, *world_size;
    const char *local_rank, *local_size;
    const char *machine, *machines;
    const char *ranks;       /* number of ranks of this process */
    const char *host, *port; /* of rank 0 */
    const char *started[2];  /* if one of them is set, each process is one rank */
    const char *mpi_size;    /* more than 1: the processes meet through MPI */
};

enum tt_launcher_kind {
#define LAUNCHER(name, ...) TT_LAUNCHER_##name,
#include "comm/launchers.def"
#undef LAUNCHER
    TT_LAUNCHER_KINDS
};
extern const struct tt_launcher tt_launchers[TT_LAUNCHER_KINDS];

bool tt_launcher_is_per_rank(void); /* a launcher has started one process for each rank */
int tt_launcher_rank(void);         /* of this process's first rank; 0 without a launcher */
bool tt_launcher_is_mpi(void);      /* an MPI launcher has started more than one rank */
/* Lends the value of a variable; NULL if `variable` is NULL, not set or empty. */
const char *tt_launcher_read(const char *variable);

#endif
