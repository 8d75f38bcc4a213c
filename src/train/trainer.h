/* The trainer: one call runs a whole fine-tuning from a resolved configuration to the files it leaves.
 *
 * tt_trainer_run finds its peers (threads of this process, or MPI), reads model, tokenizer and data, plans the memory,
 * starts one thread per rank, trains, evaluates, saves. It prints nothing: what people watch goes to the observer, whose
 * functions are called from one thread at a time, on global rank 0 only.
 *
 * Files left in output_dir: the adapter (PEFT folder) or model folder, tokenizer files, checkpoint-N/, metrics.jsonl,
 * trainer_state.json, train_results.json, eval_results.json, all_results.json, trimtab_config.yaml (the resolved
 * configuration), runs/ (TensorBoard).
 */
#ifndef TT_TRAIN_TRAINER_H
#define TT_TRAIN_TRAINER_H

#include "base/thread.h"
#include "config/settings.h"
#include "train/config.h"

struct tt_progress {
    int64_t step, max_steps;
    double epoch;
    double loss;              /* of this step */
    double tokens_per_second; /* over the last steps, all ranks */
    double seconds_left;      /* estimate; negative while unknown */
};

/* One row of the log: a training row or an evaluation row, as trainer_state.json gets it. */
struct tt_log_field {
    const char *name;
    double value;
};
struct tt_log_row {
    bool evaluation;
    int64_t step;
    double epoch;
    const struct tt_log_field *fields;
    int field_count;
};

/* Every member may be NULL. */
struct tt_train_observer {
    void *context;
    void (*on_message)(void *context, const char *line);         /* facts before the first step, one line each */
    void (*on_progress)(void *context, const struct tt_progress *progress); /* after every step */
    void (*on_log)(void *context, const struct tt_log_row *row);
    void (*on_save)(void *context, const char *folder, double seconds);
};

struct tt_train_summary {
    int64_t steps;
    double epochs;
    double train_loss;        /* mean over the steps */
    double last_eval_loss;    /* NaN when there was no evaluation */
    double seconds, tokens_per_second, samples_per_second;
    double first_step_seconds; /* process start to the end of step 1 */
    double model_tflops;      /* per second, all ranks, recompute not counted */
    size_t planned_bytes, peak_bytes; /* device buffers of rank 0: planned, measured */
    char output[1024];        /* where the result lies */
    bool stopped;             /* on request, before the last step */
};

/* `settings` is written to output_dir when not NULL. Stopping on request is TT_ERR_CANCELLED after a save. */
TT_MUST_USE tt_status tt_trainer_run(const struct tt_train_config *config, const struct tt_settings *settings,
                                     const struct tt_train_observer *observer, struct tt_cancel *cancel,
                                     struct tt_train_summary *summary);

/* Evaluation of a data set without training (`trimtab eval`): loss over all supervised tokens. */
struct tt_eval_result {
    double loss, perplexity, token_accuracy;
    int64_t samples, tokens; /* supervised tokens */
    double seconds;
    int64_t exact_matches;   /* greedy completions equal to the row's completion; -1 when not asked for */
    int64_t exact_rows;
};
struct tt_eval_options {
    bool exact_match;
    int64_t max_new_tokens;
};
/* Uses model, adapter, data (eval_dataset, or the test split), per_device_eval_batch_size, threads of `config`. */
TT_MUST_USE tt_status tt_evaluate_run(const struct tt_train_config *config, const struct tt_eval_options *options,
                                      const struct tt_train_observer *observer, struct tt_cancel *cancel,
                                      struct tt_eval_result *result);

#endif
