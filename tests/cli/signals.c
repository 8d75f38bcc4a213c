/* Signals: the first asks, a repeat at once is the same request, a later one ends the process with its exit
 * code. */
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/file.h"
#include "cli/exit_codes.h"
#include "cli/signals.h"
#include "support/temporary.h"

enum { PATH_BYTES = 512 };
enum { ASKED_ONCE = 42, NOT_ASKED = 43, COUNT_IS_WRONG = 44, ERRNO_IS_LOST = 45 };

/* In a child: signals `number` as often as asked, `pause_ms` apart; returns how the child ended. */
static int run_child(int number, int times, int pause_ms, bool ignored)
{
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        static struct tt_cancel cancel;
        if (ignored) signal(number, SIG_IGN);
        tt_signals_install(&cancel);
        close(STDERR_FILENO); /* so that the handler's write fails */
        for (int i = 0; i < times; i++) {
            if (i > 0) usleep((useconds_t)pause_ms * 1000);
            errno = ENOENT;
            raise(number);
            if (errno != ENOENT) _exit(ERRNO_IS_LOST);
        }
        int requests = atomic_load(&cancel.requests);
        _exit(requests == 0 ? NOT_ASKED : requests == 1 ? ASKED_ONCE : COUNT_IS_WRONG);
    }
    int how = 0;
    assert_int_equal(waitpid(child, &how, 0), child);
    assert_true(WIFEXITED(how));
    return WEXITSTATUS(how);
}

/* In a child: what two signals write, with checkpoints of `folder` named. */
static void read_end(const char *folder, char *text, size_t text_bytes)
{
    int ends[2], how = 0;
    assert_int_equal(pipe(ends), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        static struct tt_cancel cancel;
        if (dup2(ends[1], STDERR_FILENO) < 0) _exit(1);
        tt_signals_install(&cancel);
        tt_signals_name_checkpoints(folder);
        raise(SIGTERM);
        usleep(700 * 1000);
        raise(SIGTERM);
        _exit(1);
    }
    close(ends[1]);
    size_t bytes = 0;
    for (ssize_t got = 1; got > 0; bytes += got > 0 ? (size_t)got : 0)
        got = read(ends[0], text + bytes, text_bytes - 1 - bytes);
    text[bytes] = 0;
    close(ends[0]);
    assert_int_equal(waitpid(child, &how, 0), child);
    assert_int_equal(WEXITSTATUS(how), TT_EXIT_STOPPED);
}

static void assert_says(const char *text, const char *wanted)
{
    if (strstr(text, wanted) == NULL) fail_msg("no '%s' in: %s", wanted, text);
}

/* Saves that are not published yet, and other names, are no checkpoints. */
static void the_second_names_the_newest_checkpoint(void **state)
{
    static const char *const names[] = {"checkpoint-7",          "checkpoint-120", "checkpoint-9",
                                        "checkpoint-130.saving", "checkpoint-",    "checkpoint-x140"};
    char folder[PATH_BYTES], path[PATH_BYTES + 64], wanted[PATH_BYTES + 256], text[4096];
    (void)state;
    test_temporary(folder, sizeof folder, "signals-XXXXXX");
    assert_non_null(mkdtemp(folder));
    read_end(folder, text, sizeof text);
    assert_says(text, "stopped at once\n  hint: no checkpoint is complete: the same command starts");
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        assert_int_equal(mkdir(path, 0777), 0);
    }
    for (int i = 0; i < 300; i++) { /* more than one read of the folder */
        snprintf(path, sizeof path, "%s/a file with a long name, number %d", folder, i);
        FILE *file = fopen(path, "w");
        assert_true(file != NULL && fclose(file) == 0);
    }
    read_end(folder, text, sizeof text);
    snprintf(wanted, sizeof wanted,
             "stopped at once\n  hint: the newest checkpoint is '%s/checkpoint-120': the same command with "
             "--resume_from_checkpoint true resumes from it\n",
             folder);
    assert_says(text, wanted);
    assert_int_equal(tt_dir_remove(folder), TT_OK);
}

static void first_asks_second_ends(void **state)
{
    static const int numbers[] = {SIGINT, SIGTERM, SIGUSR1};
    (void)state;
    assert_int_equal(run_child(SIGTERM, 0, 0, false), NOT_ASKED);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(run_child(numbers[i], 1, 0, false), ASKED_ONCE);
        assert_int_equal(run_child(numbers[i], 3, 1, false), ASKED_ONCE);
        assert_int_equal(run_child(numbers[i], 2, 700, false), TT_EXIT_STOPPED);
    }
}

/* The end of a terminal comes from the system and from the shell; nohup asks to ignore it. */
static void terminal_ends(void **state)
{
    (void)state;
    assert_int_equal(run_child(SIGHUP, 1, 0, false), ASKED_ONCE);
    assert_int_equal(run_child(SIGHUP, 2, 700, false), ASKED_ONCE);
    assert_int_equal(run_child(SIGHUP, 2, 700, true), NOT_ASKED);
}

/* The soft limit of processor time (SIGXCPU) is reported every second until the hard one. */
static void limit_of_processor_time(void **state)
{
    (void)state;
    assert_int_equal(run_child(SIGXCPU, 1, 0, false), ASKED_ONCE);
    assert_int_equal(run_child(SIGXCPU, 2, 700, false), ASKED_ONCE);
}

static void blocked_by_the_caller(void **state)
{
    static const int numbers[] = {SIGINT, SIGTERM, SIGUSR1, SIGHUP, SIGXCPU};
    sigset_t blocked, before;
    (void)state;
    sigemptyset(&blocked);
    for (int i = 0; i < 5; i++) sigaddset(&blocked, numbers[i]);
    assert_int_equal(sigprocmask(SIG_BLOCK, &blocked, &before), 0);
    for (int i = 0; i < 5; i++) assert_int_equal(run_child(numbers[i], 1, 0, false), ASKED_ONCE);
    assert_int_equal(sigprocmask(SIG_SETMASK, &before, NULL), 0);
}

static void mapped_file_becomes_shorter(void **state)
{
    char said[512] = "";
    int ends[2], how = 0;
    (void)state;
    assert_int_equal(pipe(ends), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        static struct tt_cancel cancel;
        FILE *file = tmpfile();
        if (file == NULL || ftruncate(fileno(file), 4096) != 0 || dup2(ends[1], STDERR_FILENO) < 0) _exit(1);
        const volatile char *data = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, fileno(file), 0);
        tt_signals_install(&cancel);
        if (data == MAP_FAILED || data[0] != 0 || ftruncate(fileno(file), 0) != 0) _exit(1);
        _exit(data[1] == 0 ? 1 : 2);
    }
    close(ends[1]);
    assert_true(read(ends[0], said, sizeof said - 1) > 0);
    close(ends[0]);
    assert_int_equal(waitpid(child, &how, 0), child);
    assert_true(WIFEXITED(how));
    assert_int_equal(WEXITSTATUS(how), TT_EXIT_IO);
    assert_non_null(strstr(said, "error: a file that is mapped into memory has become shorter"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(first_asks_second_ends), cmocka_unit_test(the_second_names_the_newest_checkpoint),
        cmocka_unit_test(terminal_ends),          cmocka_unit_test(limit_of_processor_time),
        cmocka_unit_test(blocked_by_the_caller),  cmocka_unit_test(mapped_file_becomes_shorter)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
