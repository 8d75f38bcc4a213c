#include "cli/stack.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

#include "base/thread.h"
#include "cli/exit_codes.h"

/* Twice what a training was seen to need (256 KiB), for libraries and for file systems that map other symbols. */
enum { STACK_BYTES_MIN = 1 << 20 };

struct call {
    tt_stack_main *main;
    int argc;
    char **argv;
    int code;
};

static void *run(void *pointer)
{
    struct call *call = pointer;
    call->code = call->main(call->argc, call->argv);
    return NULL;
}

/* Signals go to the new thread, which waits for input as the first thread would. */
static int run_thread(struct call *call, const pthread_attr_t *attributes)
{
    pthread_t thread;
    sigset_t all, before;
    int error_number = pthread_create(&thread, attributes, run, call);
    if (error_number != 0) return error_number;
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_BLOCK, &all, &before);
    (void)pthread_join(thread, NULL);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    return 0;
}

int tt_stack_run(tt_stack_main *main, int argc, char **argv)
{
    struct rlimit limit;
    struct call call = {.main = main, .argc = argc, .argv = argv};
    pthread_attr_t attributes;
    if (getrlimit(RLIMIT_STACK, &limit) != 0 || limit.rlim_cur >= STACK_BYTES_MIN) return main(argc, argv);
    int error_number = pthread_attr_init(&attributes);
    if (error_number == 0) error_number = pthread_attr_setstacksize(&attributes, TT_THREAD_STACK_BYTES);
    if (error_number == 0) error_number = pthread_setattr_default_np(&attributes);
    if (error_number == 0) error_number = run_thread(&call, &attributes);
    if (error_number == 0) return call.code;
    fprintf(stderr,
            "error: the stack may have %lld KiB (ulimit -s), and a thread with more cannot be started: %s\n"
            "  hint: raise the limit: ulimit -s 8192\n",
            (long long)limit.rlim_cur >> 10, strerror(error_number));
    return TT_EXIT_MEMORY;
}
