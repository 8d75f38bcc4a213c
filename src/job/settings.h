/* The settings of each kind of job. Rows are defined by their owners; those of this folder are in settings.c (parts
 * that several kinds share) and job_settings.c (parts of one kind). Keys of other libraries without a setting are in
 * known/. */
#ifndef TT_JOB_SETTINGS_H
#define TT_JOB_SETTINGS_H

#include "config/settings.h"
#include "job/spec.h"

/* Parts, all over struct tt_job_spec. */
extern const struct tt_setting tt_model_settings[];       /* model and adapter */
extern const struct tt_setting tt_run_settings[];         /* batch, length of the run, precision */
extern const struct tt_setting tt_watch_settings[];       /* logging, evaluation, saving */
extern const struct tt_setting tt_monitor_settings[];     /* metrics */
extern const struct tt_setting tt_device_kind_settings[]; /* device */
extern const struct tt_setting tt_device_settings[];      /* threads, memory, precision of compute */
extern const struct tt_setting tt_sharding_settings[];    /* ranks, FSDP, launch */
extern const struct tt_setting tt_task_settings[];        /* the task; its own settings follow */
extern const struct tt_setting tt_objective_settings[];   /* the objective of a language model */
extern const struct tt_setting tt_loss_settings[]; /* its loss; its own settings stand between the two */
#define TASK_SETTINGS(name, title) extern const struct tt_setting tt_task_##name##_settings[];
#include "job/tasks.def"
/* Rows over struct tt_generate_config. */
extern const struct tt_setting tt_completion_settings[]; /* the number of tokens */
extern const struct tt_setting tt_generate_settings[];   /* how they are chosen */

enum tt_job_kind { TT_JOB_TRAIN, TT_JOB_EVALUATE, TT_JOB_GENERATE, TT_JOB_PLAN, TT_JOB_BENCH, TT_JOB_KINDS };

/* All settings of a kind, over its struct: struct tt_job_spec to train, struct tt_eval_spec, tt_generate_spec,
 * tt_plan_spec, tt_bench_spec, each of which begins with one. */
struct tt_job_rows {
    const struct tt_setting_section *sections;
    size_t count;
};
extern const struct tt_job_rows tt_job_rows[TT_JOB_KINDS];
/* Creates a store of all settings of a kind. `spec`, of `spec_bytes`, is lent for the life of the store. */
TT_MUST_USE tt_status tt_job_settings_create(enum tt_job_kind kind, void *spec, size_t spec_bytes,
                                             struct tt_settings **out);

/* Copies the word for a value of a training's setting ("init", TT_INIT_RANDOM: "random") into `word` and returns it. */
enum { TT_JOB_WORD_BYTES = 40 };
const char *tt_job_word(const char *name, int value, char word[TT_JOB_WORD_BYTES]);

#endif
