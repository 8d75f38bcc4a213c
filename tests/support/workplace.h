/* A working folder: model/ (a tiny reference model of tests/golden with a tokenizer of single bytes) and the
 * files of the test. A failing call fails the running test. */
#ifndef TT_TESTS_SUPPORT_WORKPLACE_H
#define TT_TESTS_SUPPORT_WORKPLACE_H

enum { TEST_PATH_BYTES = 512 };

struct test_workplace {
    char folder[160];
    char model[TEST_PATH_BYTES];
};

/* family: "qwen2" (its vocabulary has room for the tokenizer), or another whose data is pre-tokenized. */
void test_workplace_create(const char *family, struct test_workplace *place);
void test_workplace_remove(struct test_workplace *place);
/* Stores folder/name in `path` and returns it; the second form is below the folder of a workplace. */
const char *test_join(const char *folder, const char *name, char path[TEST_PATH_BYTES]);
const char *test_workplace_path(const struct test_workplace *place, const char *name,
                                char path[TEST_PATH_BYTES]);
/* Writes folder/name; returns the path as above. */
const char *test_workplace_write(const struct test_workplace *place, const char *name, const char *text,
                                 char path[TEST_PATH_BYTES]);
/* Copies one file. */
void test_copy_file(const char *from, const char *to);

/* The number of entries of `folder` whose names begin with `prefix`. */
int test_count_entries(const char *folder, const char *prefix);
/* Fails the test when a name below `folder` is that of an unfinished file (".tmp-", ".saving", ".old-"). */
void test_nothing_unfinished(const char *folder);

#endif
