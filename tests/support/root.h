/* One folder for the files of a test program, and paths in it. */
#ifndef TT_TESTS_SUPPORT_ROOT_H
#define TT_TESTS_SUPPORT_ROOT_H

/* Set-up and tear-down of a test or of a group: makes the folder, empty; removes it. */
int test_root_create(void **state);
int test_root_remove(void **state);
const char *test_root(void);
/* "ROOT/name"; the last four stay valid. */
const char *test_at(const char *name);
/* ROOT/name holds `text`. Fails the test when it cannot. */
void test_put(const char *name, const char *text);

#endif
