/* Signals: the first asks, a repeat at once is the same request, a later one ends the process with its exit
 * code. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "cli/exit_codes.h"
#include "cli/signals.h"

enum { ASKED_ONCE = 42, NOT_ASKED = 43, COUNT_IS_WRONG = 44 };

/* In a child: signals `number` as often as asked, `pause_ms` apart; returns how the child ended. */
static int run_child(int number, int times, int pause_ms)
{
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        static struct tt_cancel cancel;
        if (freopen("/dev/null", "w", stderr) == NULL) _exit(1);
        tt_signals_install(&cancel);
        for (int i = 0; i < times; i++) {
            if (i > 0) usleep((useconds_t)pause_ms * 1000);
            raise(number);
        }
        int requests = atomic_load(&cancel.requests);
        _exit(requests == 0 ? NOT_ASKED : requests == 1 ? ASKED_ONCE : COUNT_IS_WRONG);
    }
    int how = 0;
    assert_int_equal(waitpid(child, &how, 0), child);
    assert_true(WIFEXITED(how));
    return WEXITSTATUS(how);
}

static void first_asks_second_ends(void **state)
{
    static const int numbers[] = {SIGINT, SIGTERM, SIGUSR1};
    (void)state;
    assert_int_equal(run_child(SIGTERM, 0, 0), NOT_ASKED);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(run_child(numbers[i], 1, 0), ASKED_ONCE);
        assert_int_equal(run_child(numbers[i], 3, 1), ASKED_ONCE);
        assert_int_equal(run_child(numbers[i], 2, 700), TT_EXIT_STOPPED);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(first_asks_second_ends)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
