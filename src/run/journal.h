/* The journal of a run: the log rows and their files: metrics.jsonl (a row or an event a line, written immediately),
 * TensorBoard, trainer_state.json, train_results.json, eval_results.json, all_results.json in the formats of
 * transformers' Trainer (trainer_callback.TrainerState, Trainer.save_metrics). Rank 0 only.
 *
 * During training a record that cannot be written does not end the run: it is a warning, and metrics.jsonl and
 * TensorBoard's file are written when possible (record_file.h). */
#ifndef TT_RUN_JOURNAL_H
#define TT_RUN_JOURNAL_H

#include "base/json.h"
#include "job/parts.h"
#include "trimtab.h"

struct tt_journal;

struct tt_journal_facts {
    int64_t max_steps, train_batch_size;
    double num_train_epochs;
    int64_t logging_steps, eval_steps, save_steps; /* as transformers' compute_steps resolves them */
};

/* Opens output_dir/metrics.jsonl and, if requested, the TensorBoard file. `output_dir` and `watch` are lent. */
TT_MUST_USE tt_status tt_journal_open(const char *output_dir, const struct tt_watch_spec *watch,
                                      const struct tt_journal_facts *facts,
                                      const struct tt_train_observer *observer, struct tt_journal **out);
void tt_journal_close(struct tt_journal *journal); /* takes NULL */

/* Writes metrics.jsonl into that folder of the disk too (tt_record_file_mirror). */
TT_MUST_USE tt_status tt_journal_mirror(struct tt_journal *journal, const char *folder);

/* Adds a log row to the journal and to all files, and passes it to the observer. */
void tt_journal_row(struct tt_journal *journal, const struct tt_log_row *row);
/* Fields that the next row has in metrics.jsonl only: times of its steps, which trainer_state.json does not keep. */
void tt_journal_times(struct tt_journal *journal, const struct tt_log_field *fields, int count);
/* A line in metrics.jsonl only, {"event": "save", "step": 4, "folder": "out/checkpoint-4", ...}: the cost of a save or
 * a resume in this process. It is not part of the rows that a resume restores. */
void tt_journal_event(struct tt_journal *journal, const char *event, int64_t step, const char *folder,
                      const struct tt_log_field *fields, int count);
/* A text for TensorBoard only, as Markdown. */
void tt_journal_text(struct tt_journal *journal, const char *tag, int64_t step, const struct tt_str *text);
/* Settings for TensorBoard only, an object. */
void tt_journal_hparams(struct tt_journal *journal, const struct tt_json_value *settings);
/* A picture for TensorBoard only, a PNG file of height x width pixels. */
void tt_journal_picture(struct tt_journal *journal, const char *tag, int64_t step, int32_t height,
                        int32_t width, const struct tt_str *png);
bool tt_journal_takes_pictures(const struct tt_journal *journal);
/* State of trainer_state.json besides the rows. */
void tt_journal_progress(struct tt_journal *journal, int64_t step, double epoch, int64_t tokens_seen,
                         double flops);
TT_MUST_USE tt_status tt_journal_best(struct tt_journal *journal, int64_t step, double metric,
                                      const char *checkpoint);
/* Evaluations without an improvement, for the state of EarlyStoppingCallback. */
void tt_journal_patience(struct tt_journal *journal, int64_t waited);
/* The text of trainer_state.json, appended. */
TT_MUST_USE tt_status tt_journal_state_text(const struct tt_journal *journal, struct tt_str *text);
/* The content of all_results.json; lent. */
struct tt_json_value *tt_journal_results(const struct tt_journal *journal);
/* Restores the log rows (trainer_state.json's log_history, which are written to metrics.jsonl again) and results of an
 * earlier part of the run. Both lent. */
TT_MUST_USE tt_status tt_journal_restore(struct tt_journal *journal, const struct tt_json_value *history,
                                         const struct tt_json_value *results);
/* Writes <split>_results.json and all_results.json into output_dir: the fields of `row`, its epoch, and `samples`, the
 * number of samples of the data set. */
void tt_journal_write_results(struct tt_journal *journal, const char *split, const struct tt_log_row *row,
                              const struct tt_log_field *samples);

#endif
