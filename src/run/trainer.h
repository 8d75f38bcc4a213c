/* The trainer: one call runs a whole fine-tuning, from a resolved configuration to the output files.
 *
 * tt_trainer_run connects to its peers (threads of this process, or other processes), loads model, tokenizer and data,
 * plans the memory, starts one thread per rank, trains, evaluates and saves. It prints nothing: messages go to the
 * observer, whose functions are called from one thread at a time, on global rank 0 only.
 *
 * The types of observer and results (tt_train_observer, tt_train_summary, tt_eval_result) are public: trimtab.h.
 *
 * Files in output_dir: the adapter (PEFT folder) or model folder, tokenizer files, checkpoint-N/, metrics.jsonl,
 * trainer_state.json, train_results.json, eval_results.json, all_results.json, trimtab_config.yaml (the resolved
 * configuration), run.json (run_record.h), completion.json (completion.h), ranks/ (row_times.h), runs/ (TensorBoard).
 */
#ifndef TT_RUN_TRAINER_H
#define TT_RUN_TRAINER_H

#include "base/thread.h"
#include "config/settings.h"
#include "infer/by_source.h"
#include "job/spec.h"
#include "trimtab.h"

/* Runs the training of `job`, which is resolved. `settings`: NULL, or written to output_dir. `observer` may be NULL.
 * A stop on request is TT_ERR_CANCELLED, after a save. */
TT_MUST_USE tt_status tt_trainer_run(const struct tt_job_spec *job, const struct tt_settings *settings,
                                     const struct tt_train_observer *observer, struct tt_cancel *cancel,
                                     struct tt_train_summary *summary);

/* The metrics of an evaluation by the names of the objective, which are TRL's; "loss" is among them. */
struct tt_eval_metrics {
    struct tt_log_field items[TT_OBJECTIVE_METRICS_MAX];
    int count;
    struct tt_eval_source *sources; /* [source_count], owned: of a mixture, in its order */
    size_t source_count;
};
struct tt_eval_source {
    char *name; /* owned */
    struct tt_source_figures figures;
};
void tt_eval_metrics_deinit(struct tt_eval_metrics *metrics);

/* Evaluates a data set without training (`trimtab eval`): the loss over all supervised tokens of eval_dataset, or of
 * the test split. `spec` is resolved. `observer` and `metrics` may be NULL. */
TT_MUST_USE tt_status tt_evaluate_run(const struct tt_eval_spec *spec,
                                      const struct tt_train_observer *observer, struct tt_cancel *cancel,
                                      struct tt_eval_result *result, struct tt_eval_metrics *metrics);

#endif
