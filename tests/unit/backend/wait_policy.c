/* The spin of OpenMP threads follows the load: short while threads wait for processors, long otherwise. */
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <cmocka.h>

#include "backend/cpu/wait_policy.h"
#include "base/thread.h"

extern unsigned long long gomp_spin_count_var __attribute__((weak));

static atomic_bool done;

static void *spin(void *argument)
{
    (void)argument;
    while (!atomic_load(&done)) continue;
    return NULL;
}

static bool spin_is_long(void)
{
    return __atomic_load_n(&gomp_spin_count_var, __ATOMIC_RELAXED) > 1000;
}

/* Waits for the short spin for up to a minute: other tests run beside this one. */
static bool becomes_short(void)
{
    static const struct timespec pause = {.tv_nsec = 20000000};
    for (int i = 0; i < 3000 && spin_is_long(); i++) (void)nanosleep(&pause, NULL);
    return !spin_is_long();
}

/* Waits for the long spin for up to a minute. Other work on the machine keeps the spin short, so it must be long after
 * five seconds in which the threads of this process hardly waited for processors; a test without such seconds is
 * skipped. */
static bool becomes_long(void)
{
    static const struct timespec pause = {.tv_nsec = 100000000};
    struct tt_thread_times before = {0}, now;
    for (int i = 0, calm = 0; i < 600; i++, before = now) {
        if (spin_is_long()) return true;
        (void)nanosleep(&pause, NULL);
        assert_true(tt_thread_times("/proc/self/task", &now));
        calm = i > 0 && now.waited - before.waited < TT_CROWDED_MIN_NANOSECONDS / 2 ? calm + 1 : 0;
        if (calm == 50) return spin_is_long();
    }
    printf("skipped: other work keeps the processors busy\n");
    skip();
    return true;
}

static void spin_follows_load(void **state)
{
    (void)state;
    struct tt_thread_times times;
    pthread_t threads[4];
    cpu_set_t before, one;
    if (&gomp_spin_count_var == NULL || getenv("OMP_WAIT_POLICY") != NULL ||
        !tt_thread_times("/proc/self/task", &times)) {
        printf("skipped: another OpenMP runtime, a policy of the user, or a kernel without schedstat\n");
        skip();
    }
    atomic_int started = 0;
#pragma omp parallel num_threads(2)
    atomic_fetch_add(&started, 1); /* the runtime is in use, and linked */
    assert_int_equal(atomic_load(&started), 2);
    tt_wait_policy_watch();
    tt_wait_policy_watch();
    assert_true(becomes_long());
    assert_int_equal(sched_getaffinity(0, sizeof before, &before), 0);
    CPU_ZERO(&one);
    for (int i = 0; i < CPU_SETSIZE && CPU_COUNT(&one) == 0; i++)
        if (CPU_ISSET(i, &before)) CPU_SET(i, &one);
    assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
    for (int i = 0; i < 4; i++) assert_int_equal(pthread_create(&threads[i], NULL, spin, NULL), 0);
    bool is_short = becomes_short();
    atomic_store(&done, true);
    for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
    assert_true(is_short);
    assert_true(becomes_long());
}

static void crowded_means_waiting(void **state)
{
    (void)state;
    const struct tt_thread_times before = {.ran = 1000, .waited = 1000};
    const struct {
        int64_t ran, waited;
        bool crowded;
    } cases[] = {{200000000, 0, false},        {200000000, 24000000, false}, {200000000, 26000000, true},
                 {50000000, 50000000, true},   {0, 1000000, false},          {0, 3000000, true},
                 {-100000000, -1000000, false}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct tt_thread_times now = {before.ran + cases[i].ran, before.waited + cases[i].waited};
        assert_int_equal(tt_thread_times_crowded(&before, &now), cases[i].crowded);
    }
    struct tt_thread_times none;
    assert_false(tt_thread_times("/no/such/folder", &none));
    assert_false(tt_thread_times("/", &none)); /* folders without schedstat */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(crowded_means_waiting),
        cmocka_unit_test(spin_follows_load),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
