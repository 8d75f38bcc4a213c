/* Runs of the trainer for tests: settings as name/value pairs (support/words.h). */
#ifndef TT_TESTS_SUPPORT_TRAIN_RUN_H
#define TT_TESTS_SUPPORT_TRAIN_RUN_H

#include "base/json.h"
#include "run/trainer.h"
#include "support/words.h"

/* Trains with the defaults and then `pairs` ({"learning_rate", "1e-3", ..., NULL}). Returns the status of the run. */
tt_status test_train(const char *const *pairs, const char *output_dir, struct tt_train_summary *summary);
/* The same with an observer, which may stop the run; both may be NULL. */
tt_status test_train_watched(const char *const *pairs, const char *output_dir,
                             const struct tt_train_observer *observer, struct tt_cancel *cancel,
                             struct tt_train_summary *summary);
/* The same, but a failure fails the test with its message. */
void test_train_ok(const char *const *pairs, const char *output_dir, struct tt_train_summary *summary);

/* `trimtab eval` with `pairs`; a failure fails the test. */
void test_evaluate_ok(const char *const *pairs, bool exact_match, struct tt_eval_result *result);

/* Reads the values of `name` from the log rows that have it, in order; returns their number (at most `capacity`). */
int test_read_log(const char *output_dir, const char *name, double *values, int capacity);
/* Compares `steps` logged losses, gradient norms and learning rates with the "steps" of a reference (JSON) at its bars:
 * 1e-5, 1e-3 and 1e-9, relative. Fails the test, with `what`, at the first that differs. */
void test_same_curve(const char *reference_path, int steps, const char *what, const char *output_dir);
/* Relative error ||a - b|| / ||b|| of every tensor of two safetensors files; fails the test when names or shapes
 * differ. */
double test_compare_weights(const char *path, const char *reference_path, char *worst_name,
                            size_t worst_bytes);
/* Fails the test when the files differ. */
void test_same_file(const char *a, const char *b);

#endif
