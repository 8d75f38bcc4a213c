/* A folder to work in: model/ (a tiny reference model of tests/golden with a tokenizer of single bytes) and whatever
 * the test adds. Failing calls fail the running test. */
#ifndef TT_TESTS_SUPPORT_WORKPLACE_H
#define TT_TESTS_SUPPORT_WORKPLACE_H

#include <stdbool.h>

enum { TEST_PATH_BYTES = 512 };

struct test_workplace {
    char folder[160];
    char model[TEST_PATH_BYTES];
};

/* family: "qwen2" (its vocabulary has room for the tokenizer), or another whose data is pre-tokenized. */
void test_workplace_create(const char *family, struct test_workplace *place);
void test_workplace_remove(struct test_workplace *place);
/* folder/name into `path`, which is returned; the second form below the folder of a workplace. */
const char *test_join(const char *folder, const char *name, char path[TEST_PATH_BYTES]);
const char *test_workplace_path(const struct test_workplace *place, const char *name,
                                char path[TEST_PATH_BYTES]);
/* Writes folder/name; the path is returned as above. */
const char *test_workplace_write(const struct test_workplace *place, const char *name, const char *text,
                                 char path[TEST_PATH_BYTES]);
/* Copies one file. */
void test_copy_file(const char *from, const char *to);

/* How many entries of `folder` begin with `prefix`. */
int test_count_entries(const char *folder, const char *prefix);
/* Fails the test when anything below `folder` has a name of something unfinished (".tmp-", ".saving", ".old-"). */
void test_nothing_unfinished(const char *folder);

#endif
