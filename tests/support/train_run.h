/* Runs of the trainer for tests: settings as name/value pairs, files into a temporary folder of the test. */
#ifndef TT_TESTS_SUPPORT_TRAIN_RUN_H
#define TT_TESTS_SUPPORT_TRAIN_RUN_H

#include "base/json.h"
#include "train/trainer.h"

/* A fresh folder below the system's temporary folder; removed by test_folder_remove. Fails the test when it cannot. */
char *test_folder_create(void);
void test_folder_remove(char *folder); /* frees the name too */

/* Trains with the defaults, then `pairs` ({"learning_rate", "1e-3", ..., NULL}). The status is returned as it is. */
tt_status test_train(const char *const *pairs, const char *output_dir, struct tt_train_summary *summary);
/* As test_train, but a failure fails the test with its message. */
void test_train_ok(const char *const *pairs, const char *output_dir, struct tt_train_summary *summary);

/* The value `name` of the log rows that have it, in order; returns how many (at most `capacity`). */
int test_read_log(const char *output_dir, const char *name, double *values, int capacity);
/* Relative error ||a - b|| / ||b|| of every tensor of two safetensors files; fails the test when names or shapes differ. */
double test_compare_weights(const char *path, const char *reference_path, char *worst_name, size_t worst_bytes);
/* Fails the test when the files differ in a byte. */
void test_same_file(const char *a, const char *b);

#endif
