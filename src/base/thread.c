#include "base/thread.h"

#include <errno.h>
#include <stdio.h>
#include <time.h>

#include "base/alloc.h"

enum { THREADS_MAX = 64 }; /* limit of one tt_threads_run */

struct tt_thread {
    pthread_t handle;
    tt_thread_main *main;
    void *argument;
    tt_status status;
    struct tt_error error;
    char name[16]; /* the kernel's limit, with the terminator */
};

static void *run(void *pointer)
{
    struct tt_thread *thread = pointer;
    pthread_setname_np(pthread_self(), thread->name);
    thread->status = thread->main(thread->argument);
    tt_error_copy(&thread->error);
    return NULL;
}

static int create(struct tt_thread *thread)
{
    pthread_attr_t attributes;
    int error_number = pthread_attr_init(&attributes);
    if (error_number != 0) return error_number;
    error_number = pthread_attr_setstacksize(&attributes, TT_THREAD_STACK_BYTES);
    if (error_number == 0) error_number = pthread_create(&thread->handle, &attributes, run, thread);
    (void)pthread_attr_destroy(&attributes);
    return error_number;
}

tt_status tt_thread_start(const char *name, tt_thread_main *main, void *argument, struct tt_thread **out)
{
    struct tt_thread *thread = tt_calloc(1, sizeof *thread);
    if (thread == NULL) return TT_ERR_MEMORY;
    thread->main = main;
    thread->argument = argument;
    snprintf(thread->name, sizeof thread->name, "%s", name);
    int error_number = create(thread);
    if (error_number != 0) {
        tt_free(thread);
        tt_status status = tt_fail_errno(error_number, "cannot start thread '%s'", name);
        tt_hint("a limit is reached: processes of the user (ulimit -u), of the pod or control group "
                "(pids.max), or "
                "address space (ulimit -v); raise it, or take fewer --threads");
        return status;
    }
    *out = thread;
    return TT_OK;
}

tt_status tt_thread_join(struct tt_thread *thread)
{
    pthread_join(thread->handle, NULL);
    tt_status status = thread->status;
    if (status != TT_OK && thread->error.status == TT_OK) {
        tt_fail(status, "thread '%s' failed with %s and no message", thread->name, tt_status_name(status));
    } else if (status != TT_OK) {
        tt_error_restore(&thread->error);
    }
    tt_free(thread);
    return status;
}

tt_status tt_threads_run(const char *name, int count, tt_thread_main *main, void *argument)
{
    struct tt_thread *threads[THREADS_MAX];
    struct tt_error error = {0};
    tt_status status = TT_OK;
    int started = 0;
    if (count > THREADS_MAX) count = THREADS_MAX;
    while (started + 1 < count && status == TT_OK) {
        status = tt_thread_start(name, main, argument, &threads[started]);
        started += status == TT_OK;
    }
    if (status == TT_OK) {
        tt_error_clear();
        status = main(argument);
        if (status != TT_OK && tt_error_last()->status == TT_OK)
            tt_fail(status, "'%s' failed with %s and no message", name, tt_status_name(status));
    }
    if (status != TT_OK) tt_error_copy(&error);
    for (int t = 0; t < started; t++) {
        tt_status joined = tt_thread_join(threads[t]);
        if (status != TT_OK || joined == TT_OK) continue;
        status = joined;
        tt_error_copy(&error);
    }
    return status == TT_OK ? TT_OK : tt_error_restore(&error);
}

bool tt_cond_wait_until(pthread_cond_t *changed, pthread_mutex_t *mutex, double deadline)
{
    struct timespec until = {.tv_sec = (time_t)deadline};
    until.tv_nsec = (long)((deadline - (double)until.tv_sec) * 1e9);
    return pthread_cond_clockwait(changed, mutex, CLOCK_MONOTONIC, &until) != ETIMEDOUT;
}
