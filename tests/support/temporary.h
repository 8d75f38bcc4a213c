/* Folders for the files of tests: below TMPDIR, or /tmp. ctest gives every test a folder of its own there, which
 * is removed however the test ends (tests/tools/own_folder.sh). */
#ifndef TT_TESTS_SUPPORT_TEMPORARY_H
#define TT_TESTS_SUPPORT_TEMPORARY_H

#include <stdio.h>
#include <stdlib.h>

/* Stores "TMPDIR/name" in `path`, for mkdtemp() or with a number in `name` that makes it unique. */
static inline void test_temporary(char *path, size_t path_bytes, const char *name)
{
    const char *folder = getenv("TMPDIR");
    int length =
        snprintf(path, path_bytes, "%s/%s", folder != NULL && folder[0] != '\0' ? folder : "/tmp", name);
    if (length < 0 || (size_t)length >= path_bytes) {
        fprintf(stderr, "TMPDIR is too long a path for tests: %s\n", folder);
        abort();
    }
}

/* "TMPDIR/name-PID" followed by `ending`. */
static inline void test_temporary_of(char *path, size_t path_bytes, const char *name, long pid,
                                     const char *ending)
{
    char unique[96];
    snprintf(unique, sizeof unique, "%.48s-%ld%.24s", name, pid, ending);
    test_temporary(path, path_bytes, unique);
}

#endif
