/* Runs programs for tests: trimtab, and mpirun. A failing system call fails the running test. */
#ifndef TT_TESTS_SUPPORT_PROGRAM_H
#define TT_TESTS_SUPPORT_PROGRAM_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

enum { TEST_OUTPUT_BYTES = 32768 };

/* Set before the program starts. */
struct test_limits {
    int64_t file_bytes;     /* RLIMIT_FSIZE; 0: no limit */
    const char *change_dir; /* NULL: stay */
};

struct test_program {
    pid_t pid;
    int output_file;                /* standard output and error, an unlinked file */
    char output[TEST_OUTPUT_BYTES]; /* their text; filled by wait, truncated when longer */
};

/* Open MPI's mpirun as words before the program: it also runs as root, and with more ranks than processors. */
#define TEST_MPIRUN "mpirun --allow-run-as-root --oversubscribe"

/* The trimtab of this build. */
const char *test_trimtab(void);
/* `words`: program and arguments, NULL at the end. `limits` may be NULL. */
void test_program_start(const char *const *words, const struct test_limits *limits,
                        struct test_program *program);
/* Returns the exit code, 128 + signal number, or -1 after `seconds`, when the program was killed. */
int test_program_wait(struct test_program *program, double seconds);
/* Waits until the output so far contains `text`; false when the program ended or `seconds` passed without it. */
bool test_program_says(struct test_program *program, const char *text, double seconds);
/* start and wait, at most 120 s. */
int test_program_run(const char *const *words, const struct test_limits *limits,
                     struct test_program *program);
/* Whether a program of that name exists. */
bool test_program_exists(const char *name);
/* The reason why ranks cannot be started with mpirun here; NULL when they can. */
const char *test_mpi_is_missing(void);
/* The number of occurrences of `text` in `output`. */
int test_count_text(const char *output, const char *text);

#endif
