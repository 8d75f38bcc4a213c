/* The things that a tracker and TensorBoard are told of a run before its first row, as transformers' callbacks tell
 * them: the settings (TrainingArguments.to_dict: of keys that end in _token the name alone), the model's config.json,
 * and adapter_config.json. */
#ifndef TT_RUN_TRACKER_CONFIG_H
#define TT_RUN_TRACKER_CONFIG_H

#include "job/inputs.h"
#include "run/run_job.h"

struct tt_journal;

/* Owned; a zeroed struct is empty. Objects, or NULL where the run has none. */
struct tt_tracker_config {
    struct tt_json_value *args, *model, *adapter;
};

TT_MUST_USE tt_status tt_tracker_config_init(const struct tt_run_job *job, const struct tt_inputs *inputs,
                                             struct tt_tracker_config *config);
void tt_tracker_config_deinit(struct tt_tracker_config *config);

/* TensorBoard's texts `args` and `model_config` (integration_utils.TensorBoardCallback). */
void tt_tracker_config_show(const struct tt_tracker_config *config, struct tt_journal *journal);
/* {"args": ..., "model_config": ..., "peft_config": ...} into folder/name. */
TT_MUST_USE tt_status tt_tracker_config_write(const struct tt_tracker_config *config, const char *folder,
                                              const char *name);

#endif
