/* One folder for the files of a test program, and paths in it. */
#ifndef TT_TESTS_SUPPORT_ROOT_H
#define TT_TESTS_SUPPORT_ROOT_H

/* Set-up and tear-down of a test or of a group: create an empty folder; remove it. */
int test_root_create(void **state);
int test_root_remove(void **state);
const char *test_root(void);
/* "ROOT/name"; the last four stay valid. */
const char *test_at(const char *name);
/* Writes `text` to ROOT/name; a failure fails the test. */
void test_put(const char *name, const char *text);

#endif
