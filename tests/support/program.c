#include "support/program.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/clock.h"
#include "support/temporary.h"

enum { POLL_US = 2000 };

const char *test_trimtab(void)
{
    return TT_BUILD_DIR "/trimtab";
}

/* Runs in the child; returns only on failure. */
static void become(const char *const *words, const struct test_limits *limits, int output)
{
    int nothing = open("/dev/null", O_RDONLY);
    signal(SIGXFSZ, SIG_DFL); /* an ignored signal would stay ignored after exec */
    if (nothing < 0 || dup2(nothing, 0) < 0 || dup2(output, 1) < 0 || dup2(output, 2) < 0) return;
    if (limits != NULL && limits->change_dir != NULL && chdir(limits->change_dir) != 0) return;
    if (limits != NULL && limits->file_bytes > 0) {
        struct rlimit limit = {(rlim_t)limits->file_bytes, (rlim_t)limits->file_bytes};
        if (setrlimit(RLIMIT_FSIZE, &limit) != 0) return;
    }
    execvp(words[0], (char *const *)(uintptr_t)words);
}

void test_program_start(const char *const *words, const struct test_limits *limits,
                        struct test_program *program)
{
    char name[256];
    test_temporary(name, sizeof name, "trimtab-output-XXXXXX");
    program->output_file = mkstemp(name);
    if (program->output_file < 0) fail_msg("cannot make a temporary file");
    unlink(name);
    program->output[0] = '\0';
    fflush(NULL);
    program->pid = fork();
    if (program->pid < 0) fail_msg("cannot fork");
    if (program->pid == 0) {
        become(words, limits, program->output_file);
        _exit(126);
    }
}

static void read_output(struct test_program *program)
{
    ssize_t got = pread(program->output_file, program->output, TEST_OUTPUT_BYTES - 1, 0);
    program->output[got > 0 ? got : 0] = '\0';
}

/* True when it has ended; `how` is waitpid's status. */
static bool has_ended(const struct test_program *program, int *how)
{
    pid_t ended = waitpid(program->pid, how, WNOHANG);
    if (ended < 0) fail_msg("waitpid: %s", strerror(errno));
    return ended == program->pid;
}

int test_program_wait(struct test_program *program, double seconds)
{
    int how = 0, code = -1;
    double start = tt_clock_seconds();
    bool ended = has_ended(program, &how);
    while (!ended && tt_clock_seconds() - start < seconds) {
        usleep(POLL_US);
        ended = has_ended(program, &how);
    }
    if (ended) {
        code = WIFEXITED(how) ? WEXITSTATUS(how) : 128 + WTERMSIG(how);
    } else {
        kill(program->pid, SIGKILL);
        (void)waitpid(program->pid, &how, 0);
    }
    read_output(program);
    close(program->output_file);
    return code;
}

bool test_program_says(struct test_program *program, const char *text, double seconds)
{
    double start = tt_clock_seconds();
    while (tt_clock_seconds() - start < seconds) {
        siginfo_t info = {0};
        bool ended = waitid(P_PID, (id_t)program->pid, &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
                     info.si_pid == program->pid;
        read_output(program);
        if (strstr(program->output, text) != NULL) return true;
        if (ended) return false;
        usleep(POLL_US);
    }
    return false;
}

int test_program_run(const char *const *words, const struct test_limits *limits, struct test_program *program)
{
    test_program_start(words, limits, program);
    return test_program_wait(program, TEST_RUN_SECONDS);
}

bool test_program_exists(const char *name)
{
    struct test_program program;
    const char *words[] = {"which", name, NULL};
    return test_program_run(words, NULL, &program) == 0;
}

const char *test_mpi_is_missing(void)
{
    struct test_program program;
    const char *words[] = {"mpirun",  "--allow-run-as-root",  "--oversubscribe", "-np",
                           "2",       test_trimtab(),         "train",           "--dataset_name",
                           "nowhere", "--model_name_or_path", "nowhere",         NULL};
    if (!test_program_exists("mpirun")) return "there is no mpirun";
    setenv("ASAN_OPTIONS", "detect_leaks=0", 1); /* what MPI itself never frees is not ours to report */
    (void)test_program_run(words, NULL, &program);
    return strstr(program.output, "this build has no MPI") != NULL ? "this build has no MPI" : NULL;
}

int test_count_text(const char *output, const char *text)
{
    int count = 0;
    for (const char *at = strstr(output, text); at != NULL; at = strstr(at + 1, text)) count++;
    return count;
}
