/* Runs of the trainer for tests: settings as name/value pairs, files into a temporary folder of the test. */
#ifndef TT_TESTS_SUPPORT_TRAIN_RUN_H
#define TT_TESTS_SUPPORT_TRAIN_RUN_H

#include "base/json.h"
#include "run/trainer.h"

/* A fresh folder below the system's temporary folder; removed by test_folder_remove. Fails the test when it cannot. */
char *test_folder_create(void);
void test_folder_remove(char *folder); /* frees the name too */

/* Settings as words: "max_steps 20 bf16 false" becomes {"max_steps", "20", "bf16", "false", NULL}. A zeroed struct is
 * an empty list; it points into itself and is not copied. */
struct test_words {
    const char *list[160];
    int count;
    char text[8192];
    size_t bytes;
};
/* separated by blanks; 'one word' may have some */
void test_words_add(struct test_words *words, const char *text);
/* a value may hold blanks */
void test_words_pair(struct test_words *words, const char *name, const char *value);
/* The words as a command line: `program` and `command`, then --name value ... */
void test_words_command(struct test_words *command_line, const char *program, const char *command,
                        const struct test_words *words);

/* Appends the words as text for a shell, each in single quotes, of which they have none. */
void test_words_shell(const struct test_words *words, char *text, size_t text_bytes);
/* mpirun with two ranks that run shell text of their own. Not "command : command": the mpirun of Open MPI 5.0.7
 * crashes when one of several programs fails. */
void test_words_two_ranks(struct test_words *command, const char *first, const char *second);

/* Trains with the defaults, then `pairs` ({"learning_rate", "1e-3", ..., NULL}). The status is returned as it is. */
tt_status test_train(const char *const *pairs, const char *output_dir, struct tt_train_summary *summary);
/* As test_train with somebody who watches, and may stop; both may be NULL. */
tt_status test_train_watched(const char *const *pairs, const char *output_dir,
                             const struct tt_train_observer *observer, struct tt_cancel *cancel,
                             struct tt_train_summary *summary);
/* As test_train, but a failure fails the test with its message. */
void test_train_ok(const char *const *pairs, const char *output_dir, struct tt_train_summary *summary);

/* `trimtab eval` with `pairs`; a failure fails the test. */
void test_evaluate_ok(const char *const *pairs, bool exact_match, struct tt_eval_result *result);

/* The value `name` of the log rows that have it, in order; returns how many (at most `capacity`). */
int test_read_log(const char *output_dir, const char *name, double *values, int capacity);
/* Relative error ||a - b|| / ||b|| of every tensor of two safetensors files; fails the test when names or shapes
 * differ. */
double test_compare_weights(const char *path, const char *reference_path, char *worst_name,
                            size_t worst_bytes);
/* Fails the test when the files differ in a byte. */
void test_same_file(const char *a, const char *b);

#endif
