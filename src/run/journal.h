/* The journal of a run: the log rows and where they go. metrics.jsonl (a row or an event a line, at once), TensorBoard,
 * trainer_state.json, train_results.json, eval_results.json, all_results.json in the shapes that transformers' Trainer
 * writes (trainer_callback.TrainerState, Trainer.save_metrics). Rank 0 only.
 *
 * Once a run trains, no record ends it: one that cannot be written is a warning, and metrics.jsonl and TensorBoard's
 * file are written as soon as they can be (record_file.h). */
#ifndef TT_RUN_JOURNAL_H
#define TT_RUN_JOURNAL_H

#include "base/json.h"
#include "run/trainer.h"

struct tt_journal;

struct tt_journal_facts {
    int64_t max_steps, train_batch_size;
    double num_train_epochs;
    int64_t logging_steps, eval_steps, save_steps; /* as transformers' compute_steps resolves them */
};

/* Opens output_dir/metrics.jsonl and, when asked for, the TensorBoard file. */
TT_MUST_USE tt_status tt_journal_open(const struct tt_job_spec *config, const struct tt_journal_facts *facts,
                                      const struct tt_train_observer *observer, struct tt_journal **out);
void tt_journal_close(struct tt_journal *journal); /* takes NULL */

void tt_journal_row(struct tt_journal *journal, const struct tt_log_row *row);
/* A line in metrics.jsonl alone, {"event": "save", "step": 4, "folder": "out/checkpoint-4", ...}: what it cost this
 * process to save or to go on. The log of the run, which a run that goes on has again, is without it. */
void tt_journal_event(struct tt_journal *journal, const char *event, int64_t step, const char *folder,
                      const struct tt_log_field *fields, int count);
/* State that trainer_state.json tells beside the rows. */
void tt_journal_progress(struct tt_journal *journal, int64_t step, double epoch, int64_t tokens_seen,
                         double flops);
TT_MUST_USE tt_status tt_journal_best(struct tt_journal *journal, int64_t step, double metric,
                                      const char *checkpoint);
/* The text of trainer_state.json, appended. */
TT_MUST_USE tt_status tt_journal_state_text(const struct tt_journal *journal, struct tt_str *text);
/* All that all_results.json has; lent. */
struct tt_json_value *tt_journal_results(const struct tt_journal *journal);
/* Goes on from the log rows (trainer_state.json's log_history, which metrics.jsonl then holds again) and results of an
 * earlier part of the run. Both lent. */
TT_MUST_USE tt_status tt_journal_restore(struct tt_journal *journal, const struct tt_json_value *history,
                                         const struct tt_json_value *results);
/* <split>_results.json and all_results.json into output_dir: the fields of `row`, its epoch, and `samples`, how many
 * the data set has. */
void tt_journal_write_results(struct tt_journal *journal, const char *split, const struct tt_log_row *row,
                              const struct tt_log_field *samples);

#endif
