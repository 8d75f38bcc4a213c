/* A rank whose thread does not come back is found and told; one that beats, or rests, is not. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>

#include "launch/pulse.h"

static atomic_int told;
static struct tt_error told_error;

static void handler(const struct tt_error *error)
{
    told_error = *error;
    atomic_fetch_add(&told, 1);
}

static void nap(double seconds)
{
    struct timespec time = {(time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9)};
    nanosleep(&time, NULL);
}

static void only_the_stuck_one_is_told(void **state)
{
    (void)state;
    struct tt_pulse pulses[3] = {0};
    struct tt_comm *comms[3];
    struct tt_pulse_watch *watch = NULL;
    tt_pulse_set_handler(handler);
    assert_int_equal(tt_comm_create_threads(3, comms), TT_OK);
    assert_int_equal(tt_pulse_watch_start(pulses, 3, 4, comms[0], 1, &watch), TT_OK);
    tt_pulse_beat(&pulses[1], "forward of model.layers.7");
    for (int i = 0; i < 8; i++) { /* 0.8 s: nobody is late */
        tt_pulse_beat(&pulses[0], "forward of model.layers.8");
        nap(0.1);
    }
    assert_int_equal(atomic_load(&told), 0);
    assert_int_equal(tt_comm_poll(comms[2]), TT_OK);
    for (int i = 0; i < 20 && atomic_load(&told) == 0; i++) {
        tt_pulse_beat(&pulses[0], "forward of model.layers.8");
        nap(0.1);
    }
    assert_int_equal(atomic_load(&told), 1);
    assert_int_equal(told_error.status, TT_ERR_DEVICE);
    assert_non_null(strstr(told_error.message, "rank 5 has not returned"));
    assert_non_null(strstr(told_error.message, "forward of model.layers.7"));
    assert_int_equal(tt_comm_poll(comms[2]), TT_ERR_PEER);
    tt_pulse_watch_stop(watch);
    for (int r = 0; r < 3; r++) tt_comm_destroy(comms[r]);
}

static void rest_is_no_silence(void **state)
{
    (void)state;
    struct tt_pulse pulse = {0};
    struct tt_comm *comm = NULL;
    struct tt_pulse_watch *watch = NULL;
    atomic_store(&told, 0);
    tt_pulse_set_handler(handler);
    assert_int_equal(tt_comm_create_self(&comm), TT_OK);
    assert_int_equal(tt_pulse_watch_start(&pulse, 1, 0, comm, 0.2, &watch), TT_OK);
    tt_pulse_beat(&pulse, "backward of model.layers.0");
    tt_pulse_rest(&pulse);
    nap(1.2);
    assert_int_equal(atomic_load(&told), 0);
    tt_pulse_watch_stop(watch);
    tt_comm_destroy(comm);
    tt_pulse_beat(NULL, "nothing");
    tt_pulse_rest(NULL);
}

/* A stopped process, or a machine that slept: nobody could beat. */
static void time_while_stopped_does_not_count(void **state)
{
    (void)state;
    struct tt_pulse pulse = {0};
    struct tt_comm *comm = NULL;
    struct tt_pulse_watch *watch = NULL;
    atomic_store(&told, 0);
    tt_pulse_set_handler(handler);
    assert_int_equal(tt_comm_create_self(&comm), TT_OK);
    assert_int_equal(tt_pulse_watch_start(&pulse, 1, 0, comm, 1.5, &watch), TT_OK);
    pid_t waker = fork();
    assert_true(waker >= 0);
    if (waker == 0) {
        nap(4.7);
        kill(getppid(), SIGCONT);
        _exit(0);
    }
    nap(0.7); /* the watch has begun */
    tt_pulse_beat(&pulse, "forward of model.layers.0");
    assert_int_equal(kill(getpid(), SIGSTOP), 0);
    nap(1.0); /* the watch looks */
    tt_pulse_rest(&pulse);
    assert_int_equal(waitpid(waker, NULL, 0), waker);
    assert_int_equal(atomic_load(&told), 0);
    tt_pulse_watch_stop(watch);
    tt_comm_destroy(comm);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_the_stuck_one_is_told),
        cmocka_unit_test(rest_is_no_silence),
        cmocka_unit_test(time_while_stopped_does_not_count),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
