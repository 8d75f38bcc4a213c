/* The settings of a training run: rows over struct tt_train_config, and what no row can check alone. */
#ifndef TT_JOB_SETTINGS_H
#define TT_JOB_SETTINGS_H

#include "config/settings.h"
#include "job/config.h"

/* Rows that other commands use too, all over struct tt_train_config. */
extern const struct tt_setting tt_model_settings[];    /* which model, which adapter */
extern const struct tt_setting tt_run_settings[];      /* batch, length of the run, precision */
extern const struct tt_setting tt_watch_settings[];    /* logging, evaluation, saving */
extern const struct tt_setting tt_device_settings[];   /* device, threads, precision of compute */
extern const struct tt_setting tt_sharding_settings[]; /* ranks, FSDP, launch */

/* Over struct tt_generate_config of infer/generator.h: how text is made. */
extern const struct tt_setting tt_generate_settings[];

/* Everything that `trimtab train` takes, over struct tt_train_config. */
extern const struct tt_setting_section tt_train_sections[];
extern const size_t tt_train_section_count;

/* Settles what follows from other settings (fsdp, fsdp_config, num_processes, eval_steps, lora.enabled) and then checks
 * the whole. Call it once, after the last source was read. `settings` is the store that fills `config`. */
TT_MUST_USE tt_status tt_train_settings_resolve(struct tt_settings *settings, struct tt_train_config *config);
/* What the rows cannot know of each other. TT_ERR_USAGE with a hint. */
TT_MUST_USE tt_status tt_train_config_check(const struct tt_train_config *config);

#endif
