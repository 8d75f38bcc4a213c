/* A job whose machines share no disk. A process that does not see the output folder of rank 0, or misses a model,
 * adapter, template or data that rank 0's machine has, uses rank 0's over the network (comm/files.h): every path below
 * it then means rank 0's, for this process, and base/file.h is the same for all. Each rank reads the bytes of its own
 * slices only, and writes its slices of a save in the background, as on a shared disk. */
#ifndef TT_RUN_RANK0_FILES_H
#define TT_RUN_RANK0_FILES_H

#include "comm/files.h"
#include "job/spec.h"
#include "launch/world.h"

struct tt_rank0_files {
    struct tt_files_server *server; /* of rank 0's process */
    struct tt_files_client *client; /* of a process that misses files */
};

/* Collective over the processes, when rank 0 has made output_dir. No effect where every process has all files, and
 * between processes that do not meet by address (MPI). */
TT_MUST_USE tt_status tt_rank0_files_open(const struct tt_job_spec *job, struct tt_world *world,
                                          struct tt_rank0_files *files);
/* This process waits for no file of rank 0 from now on: called after a failure. */
void tt_rank0_files_detach(struct tt_rank0_files *files);
void tt_rank0_files_close(struct tt_rank0_files *files); /* a zeroed struct is closed */

#endif
