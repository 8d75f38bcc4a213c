/* Resolving a job: one function for each kind of job. It reads the environment's values, fills in the settings that
 * follow from others (aliases, fsdp_config, num_processes, eval_steps), and checks them all. After it no code
 * interprets one setting by another. Call it once, after the last source is read. `settings` is the store that fills
 * the struct. All kinds refuse the same contradictions with the same messages (TT_ERR_USAGE with a hint).
 *
 * Precedence: flags over files, a later file over an earlier one, files over accelerate's file and the environment. */
#ifndef TT_JOB_RESOLVE_H
#define TT_JOB_RESOLVE_H

#include "job/settings.h"

TT_MUST_USE tt_status tt_train_resolve(struct tt_settings *settings, struct tt_job_spec *job);
/* Evaluation and generation use the weights of a folder, and an adapter if one is given. */
TT_MUST_USE tt_status tt_evaluate_resolve(struct tt_settings *settings, struct tt_job_spec *job);
/* An evaluation by task items has no data set. */
TT_MUST_USE tt_status tt_evaluate_tasks_resolve(struct tt_settings *settings, struct tt_job_spec *job,
                                                bool *chooses_sharding);
TT_MUST_USE tt_status tt_generate_resolve(struct tt_settings *settings, struct tt_job_spec *job,
                                          struct tt_generate_config *generate);
/* The checks of machines take the settings of a training, all of them optional, and check those of the launch. */
TT_MUST_USE tt_status tt_doctor_resolve(struct tt_settings *settings, struct tt_job_spec *job);
/* A plan needs no data and connects to no other process. */
TT_MUST_USE tt_status tt_plan_resolve(struct tt_settings *settings, struct tt_plan_spec *spec);
TT_MUST_USE tt_status tt_bench_resolve(struct tt_settings *settings, struct tt_bench_spec *spec);

/* TT_ERR_USAGE with a hint; for the checks of this folder. */
tt_status tt_job_usage(const char *message, const char *hint);
/* objective_settings.c, for the functions above: defaults of the objective; then its checks and job->objective. */
TT_MUST_USE tt_status tt_objective_suggest(struct tt_settings *settings, const struct tt_job_spec *job);
TT_MUST_USE tt_status tt_objective_settle(const struct tt_settings *settings, struct tt_job_spec *job);
/* Whether `name` is a word of the setting `objective`. */
bool tt_objective_is_named(const char *name);

#endif
