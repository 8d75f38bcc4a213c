/* How long an OpenMP thread of the program spins before it sleeps.
 *
 * GNU's runtime spins for milliseconds by default. This is the fastest on an idle machine: threads wait many times per
 * step, and waking one costs microseconds. Beside other work a spinning thread occupies the processor that the thread
 * it waits for needs (the shipped model's evaluation took 3 to 6 s there, and 0.6 s with threads that sleep at once).
 * So the spin follows the load: ten times a second a thread reads how long the threads of this process were runnable
 * without a processor. If that is more than an eighth of the time that they ran, the spin becomes short and stays short
 * for two seconds, because beside other work, too, threads are undisturbed for a tenth of a second now and then.
 * Otherwise the spin is the runtime's own. docs/performance.md has the measurements.
 *
 * The runtime reads GOMP_SPINCOUNT in its own constructor. The program links the runtime statically
 * (cmake/openmp.cmake), so that the constructor below, which has a higher priority, runs first, and so that the
 * runtime's counter, which it reads for each wait (libgomp, wait.h), can be reached. LLVM's runtime reads
 * its variable when it is first used and has no such counter: it sleeps at once. */
#include "backend/cpu/wait_policy.h"

#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <time.h>

#include "base/thread.h"

#define SHORT_SPIN 200
#define SHORT_SPIN_TEXT "200"
/* The runtime's value where neither OMP_WAIT_POLICY nor GOMP_SPINCOUNT is set (libgomp, env.c). */
#define LONG_SPIN 300000
#define SHORT_LOOKS 20 /* polls without contention before the spin becomes long */

extern unsigned long long gomp_spin_count_var __attribute__((weak));

static bool chosen_here; /* the user has set no policy, so the one below is active */

__attribute__((constructor(101))) static void set_wait_policy(void)
{
    if (getenv("OMP_WAIT_POLICY") != NULL || getenv("GOMP_SPINCOUNT") != NULL) return;
    chosen_here = true;
    (void)setenv("GOMP_SPINCOUNT", SHORT_SPIN_TEXT, 0);
    (void)setenv("KMP_BLOCKTIME", "0", 0);
}

static void *watch(void *argument)
{
    static const struct timespec pause = {.tv_nsec = 100000000};
    struct tt_thread_times before, now;
    int short_looks = 0;
    (void)argument;
    if (!tt_thread_times("/proc/self/task", &before)) return NULL;
    for (;; before = now) {
        (void)nanosleep(&pause, NULL);
        if (!tt_thread_times("/proc/self/task", &now)) return NULL;
        if (tt_thread_times_crowded(&before, &now))
            short_looks = SHORT_LOOKS;
        else if (short_looks > 0)
            short_looks--;
        __atomic_store_n(&gomp_spin_count_var, short_looks > 0 ? SHORT_SPIN : LONG_SPIN, __ATOMIC_RELAXED);
    }
}

/* The thread is never joined: it ends with the process. Without it the spin stays short. */
static void start_watch(void)
{
    pthread_attr_t attributes;
    pthread_t thread;
    sigset_t all, before;
    if (!chosen_here || &gomp_spin_count_var == NULL || pthread_attr_init(&attributes) != 0) return;
    (void)pthread_attr_setstacksize(&attributes, PTHREAD_STACK_MIN + 65536);
    (void)pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    (void)!pthread_create(&thread, &attributes, watch, NULL);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    (void)pthread_attr_destroy(&attributes);
}

void tt_wait_policy_watch(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    (void)pthread_once(&once, start_watch);
}
