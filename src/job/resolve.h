/* From settings as given to settings in force, one function for each kind of job. Each reads the environment's values,
 * settles what follows from what (aliases, fsdp_config, num_processes, eval_steps), and checks the whole; past it
 * nobody asks a setting what another one means. Call it once, after the last source was read. `settings` is the store
 * that fills the struct. All kinds refuse the same contradictions with the same words (TT_ERR_USAGE with a hint).
 *
 * Nearer sources win: flags over files, a later file over an earlier one, files over accelerate's file and the
 * environment. */
#ifndef TT_JOB_RESOLVE_H
#define TT_JOB_RESOLVE_H

#include "job/settings.h"

TT_MUST_USE tt_status tt_train_resolve(struct tt_settings *settings, struct tt_job_spec *job);
/* Evaluation and generation use the weights of a folder, and an adapter where one is given. */
TT_MUST_USE tt_status tt_evaluate_resolve(struct tt_settings *settings, struct tt_job_spec *job);
TT_MUST_USE tt_status tt_generate_resolve(struct tt_settings *settings, struct tt_job_spec *job,
                                          struct tt_generate_config *generate);
/* A plan needs no data and meets nobody. */
TT_MUST_USE tt_status tt_plan_resolve(struct tt_settings *settings, struct tt_plan_spec *spec);
TT_MUST_USE tt_status tt_bench_resolve(struct tt_settings *settings, struct tt_bench_spec *spec);

#endif
