/* README.md of a result: the metadata that the hub reads (base model, data, library) and what the run was: base, data,
 * settings, results. Paths of this machine are not in it. Source of the metadata:
 * https://huggingface.co/docs/hub/model-cards. */
#ifndef TT_RUN_MODEL_CARD_H
#define TT_RUN_MODEL_CARD_H

#include "run/run_job.h"

/* Writes it into output_dir, in place of an earlier one of a run; one of another author stays, and so does that of a
 * run that was complete before (summary->was_complete). */
TT_MUST_USE tt_status tt_model_card_write(const struct tt_run_job *job,
                                          const struct tt_train_summary *summary);
/* Removes that of an earlier run from output_dir. */
TT_MUST_USE tt_status tt_model_card_remove(const struct tt_run_job *job);

#endif
