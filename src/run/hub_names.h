/* Names of the hub in a run over several processes: rank 0's process fetches what its cache lacks, the others wait.
 * Then all open what is there: those of its machine the same cache, others their own, or rank 0's over the network
 * (run/rank0_files.h). */
#ifndef TT_RUN_HUB_NAMES_H
#define TT_RUN_HUB_NAMES_H

#include "job/spec.h"
#include "launch/world.h"

/* Collective over the processes; no effect with one, which fetches when it opens its inputs. */
TT_MUST_USE tt_status tt_run_fetch_names(const struct tt_job_spec *job, struct tt_world *world);

#endif
