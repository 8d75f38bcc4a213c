/* The memory plan of a training, and the batch size that auto_find_batch_size asks it for. */
#ifndef TT_RUN_RUN_PLAN_H
#define TT_RUN_RUN_PLAN_H

#include "launch/world.h"
#include "run/run.h"

/* Fills run->rank_config but for the limits of batches, and run->shown. */
TT_MUST_USE tt_status tt_run_plan_open(struct tt_run *run, const struct tt_shard_spec *shard,
                                       const struct tt_world *world);
/* Sets the limits of batches, which tt_run_data_order has found, and makes run->plan, with the completions of
 * evaluations, where there are any; `advises`: with advice where it does not fit. */
TT_MUST_USE tt_status tt_run_plan_make(struct tt_run *run, const struct tt_world *world, bool advises);
/* Makes job->run, with auto_find_batch_size, `found`: the settings with the batch size of an earlier part of the run or
 * of a complete one, which had this identity (run/resume.h): its samples of a step over the ranks and accumulation.
 * False: there is no such size, or no search. */
bool tt_run_plan_batch_of(struct tt_run_job *job, struct tt_run_spec *found,
                          const struct tt_json_value *identity, int data_size);
/* Makes run->job.run, with auto_find_batch_size, run->found: the settings with the largest per_device_train_batch_size
 * up to the one that was given which fits into the memory of every process; a resumed run keeps that of its checkpoint.
 * accelerate's find_executable_batch_size finds one by failures; accumulation stays as it is, as there. Makes data and
 * plan of what it tries. Where none fits it is 1, and the plan of that says why. Collective. */
TT_MUST_USE tt_status tt_run_plan_find_batch(struct tt_run *run, struct tt_world *world);

#endif
