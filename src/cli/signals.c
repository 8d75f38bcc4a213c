#include "cli/signals.h"

#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "cli/exit_codes.h"

/* The one mutable global of the program: a signal handler has no argument that could refer to its data. */
static struct {
    struct tt_cancel *cancel;
    atomic_bool counts_interrupts; /* SIGINT is no request to stop */
    _Atomic int64_t first_ms;      /* 0: no request yet */
    atomic_bool lingers;
    atomic_int code; /* exit code while `lingers` is set */
    _Atomic(const char *) announcement;
} handler;

static void write_message(const char *text)
{
    ssize_t written = write(STDERR_FILENO, text, strlen(text));
    (void)written;
}

static int64_t now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000 + 1;
}

static void on_signal(int number)
{
    int64_t now = now_ms(), first = 0;
    if (number == SIGINT && atomic_load(&handler.counts_interrupts)) {
        atomic_fetch_add(&handler.cancel->interrupts, 1);
        return;
    }
    if (atomic_load(&handler.lingers)) _exit(atomic_load(&handler.code));
    if (atomic_compare_exchange_strong(&handler.first_ms, &first, now)) {
        atomic_fetch_add(&handler.cancel->requests, 1);
        const char *announcement = atomic_load(&handler.announcement);
        write_message("\n");
        write_message(announcement != NULL ? announcement : "stopping after this step");
        write_message("; a second signal stops at once\n");
        return;
    }
    if (now - first < 500) return;
    write_message("\nstopped at once\n");
    _exit(TT_EXIT_STOPPED);
}

void tt_signals_announce(const char *text)
{
    atomic_store(&handler.announcement, text);
}

void tt_signals_count_interrupts(void)
{
    atomic_store(&handler.counts_interrupts, true);
}

void tt_signals_linger(int code, double seconds)
{
    struct timespec left = {(time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9)};
    atomic_store(&handler.code, code);
    atomic_store(&handler.lingers, true);
    while (nanosleep(&left, &left) != 0) continue;
    atomic_store(&handler.lingers, false);
}

void tt_signals_install(struct tt_cancel *cancel)
{
    static const int numbers[] = {SIGINT, SIGTERM, SIGUSR1};
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    handler.cancel = cancel;
    sigemptyset(&action.sa_mask);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) sigaction(numbers[i], &action, NULL);
    /* A write past the limit on file sizes then returns EFBIG. */
    signal(SIGXFSZ, SIG_IGN);
}
