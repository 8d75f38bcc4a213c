/* Threads that return their error record to the joining thread. Mutexes and conditions come directly from pthread. */
#ifndef TT_BASE_THREAD_H
#define TT_BASE_THREAD_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include "base/error.h"

typedef tt_status tt_thread_main(void *argument);
struct tt_thread; /* opaque, owned by its starter */

/* The stack of every thread that is started here: it does not depend on `ulimit -s`. */
enum { TT_THREAD_STACK_BYTES = 8 << 20 };

TT_MUST_USE tt_status tt_thread_start(const char *name, tt_thread_main *main, void *argument,
                                      struct tt_thread **out);
/* Waits, frees, and returns the thread's status with its error record restored in the calling thread. */
TT_MUST_USE tt_status tt_thread_join(struct tt_thread *thread);

/* Runs main(argument) on `count` threads (at most 64) including the caller's; `main` divides the work between them.
 * Returns the status and record of one failed thread, the caller's first. Stopping the other threads after a failure
 * is up to `main`. When a thread cannot be started, the call waits for the started ones. */
TT_MUST_USE tt_status tt_threads_run(const char *name, int count, tt_thread_main *main, void *argument);

/* A request to stop, set by a signal handler or another thread and polled between steps. */
struct tt_cancel {
    atomic_int requests;   /* 1: finish the step and save; 2 and more: stop at once */
    atomic_int interrupts; /* SIGINTs, where they are no requests to stop */
};

/* Waits for `changed` until `deadline`, in seconds of tt_clock_seconds; false: the deadline has passed. Changes of the
 * wall clock do not affect the wait. Spurious wakeups occur, as with pthread_cond_wait. */
bool tt_cond_wait_until(pthread_cond_t *changed, pthread_mutex_t *mutex, double deadline);

/* Processors this process may use: its affinity mask, or the cgroup's CPU quota rounded up where that is less. */
int tt_cpu_count(void);
/* The quota alone, rounded up; 0: none. `cgroup_file`: in the format of /proc/self/cgroup. `mounts`: the folder where
 * cgroup file systems are mounted. */
int tt_cpu_quota(const char *cgroup_file, const char *mounts);

/* Nanoseconds that all threads of a process together were on a processor, and were runnable without one. */
struct tt_thread_times {
    int64_t ran, waited;
};
/* Reads them; `tasks` is "/proc/self/task". false: this kernel does not count them. */
bool tt_thread_times(const char *tasks, struct tt_thread_times *out);
/* Whether threads waited for processors between two readings: for more than an eighth of the time that they ran.
 * Threads that ended in between make the answer false. */
bool tt_thread_times_crowded(const struct tt_thread_times *before, const struct tt_thread_times *now);
enum { TT_CROWDED_MIN_NANOSECONDS = 2000000 };

#endif
