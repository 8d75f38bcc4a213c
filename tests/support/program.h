/* Runs programs for tests: trimtab, and mpirun. A failing system call fails the running test. */
#ifndef TT_TESTS_SUPPORT_PROGRAM_H
#define TT_TESTS_SUPPORT_PROGRAM_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* A run that ends by itself takes no longer, also beside other work; sanitizers are three times as slow or more. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define TEST_SLOWNESS 4
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define TEST_SLOWNESS 4
#endif
#endif
#ifndef TEST_SLOWNESS
#define TEST_SLOWNESS 1
#endif

enum { TEST_OUTPUT_BYTES = 32768, TEST_RUN_SECONDS = 120 * TEST_SLOWNESS };

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
/* start and wait, at most TEST_RUN_SECONDS. */
int test_program_run(const char *const *words, const struct test_limits *limits,
                     struct test_program *program);
/* Whether a program of that name exists. */
bool test_program_exists(const char *name);
/* The reason why ranks cannot be started with mpirun here; NULL when they can. */
const char *test_mpi_is_missing(void);
/* The number of occurrences of `text` in `output`. */
int test_count_text(const char *output, const char *text);

#endif
