#include "cli/signals.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
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
    _Atomic(const char *) output_dir; /* NULL: no checkpoints are named */
} handler;

/* errno is that of the code that a signal has interrupted. */
static void write_message(const char *text)
{
    int before = errno;
    ssize_t written = write(STDERR_FILENO, text, strlen(text));
    (void)written;
    errno = before;
}

static int64_t now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000 + 1;
}

/* N of checkpoint-N; -1: another name. A folder has this name once it is complete. */
static int64_t step_of(const char *name)
{
    static const char before[] = "checkpoint-";
    int64_t step = 0;
    size_t digits = 0;
    if (strncmp(name, before, sizeof before - 1) != 0) return -1;
    for (name += sizeof before - 1; *name >= '0' && *name <= '9' && digits < 18; name++, digits++)
        step = step * 10 + (*name - '0');
    return digits > 0 && *name == '\0' ? step : -1;
}

/* The step of the newest checkpoint; -1: there is none. opendir would allocate, which a handler must not. */
static int64_t newest_checkpoint(const char *folder)
{
    _Alignas(struct dirent64) char entries[4096];
    int64_t newest = -1;
    ssize_t bytes = 0;
    int descriptor = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (descriptor < 0) return -1;
    while ((bytes = getdents64(descriptor, entries, sizeof entries)) > 0) {
        for (ssize_t at = 0; at < bytes;) {
            const struct dirent64 *entry = (const void *)(entries + at);
            int64_t step = step_of(entry->d_name);
            newest = step > newest ? step : newest;
            at += entry->d_reclen;
        }
    }
    close(descriptor);
    return newest;
}

static void write_number(int64_t number)
{
    char digits[24], *at = digits + sizeof digits - 1;
    *at = '\0';
    do *--at = (char)('0' + number % 10);
    while ((number /= 10) > 0);
    write_message(at);
}

/* How to go on after an end without a save. */
static void write_newest(const char *output_dir)
{
    int64_t step = newest_checkpoint(output_dir);
    if (step < 0) {
        write_message("  hint: no checkpoint is complete: the same command starts from the beginning\n");
        return;
    }
    write_message("  hint: the newest checkpoint is '");
    write_message(output_dir);
    write_message("/checkpoint-");
    write_number(step);
    write_message("': the same command with --resume_from_checkpoint true resumes from it\n");
}

static void on_signal(int number)
{
    int64_t now = now_ms(), first = 0;
    /* A shell passes on what the terminal's end has sent to its processes already; a limit of processor time is
     * reported every second. */
    if ((number == SIGHUP || number == SIGXCPU) && atomic_load(&handler.first_ms) != 0) return;
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
    const char *output_dir = atomic_load(&handler.output_dir);
    if (output_dir != NULL) write_newest(output_dir);
    _exit(TT_EXIT_STOPPED);
}

/* A read of mapped memory that has no page behind it. */
static void on_lost_page(int number)
{
    write_message("\nerror: a file that is mapped into memory has become shorter, or its storage failed\n"
                  "  hint: no other program may change the files of a run while it reads them\n");
    (void)number;
    _exit(TT_EXIT_IO);
}

void tt_signals_announce(const char *text)
{
    atomic_store(&handler.announcement, text);
}

void tt_signals_name_checkpoints(const char *output_dir)
{
    atomic_store(&handler.output_dir, output_dir);
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
    static const int numbers[] = {SIGINT, SIGTERM, SIGUSR1, SIGXCPU};
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    handler.cancel = cancel;
    sigemptyset(&action.sa_mask);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) sigaction(numbers[i], &action, NULL);
    /* nohup and the like */
    struct sigaction before;
    if (sigaction(SIGHUP, NULL, &before) == 0 && before.sa_handler != SIG_IGN)
        sigaction(SIGHUP, &action, NULL);
    sigset_t awaited = action.sa_mask;
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) sigaddset(&awaited, numbers[i]);
    sigaddset(&awaited, SIGHUP);
    pthread_sigmask(SIG_UNBLOCK, &awaited, NULL); /* the caller may have blocked them */
    action.sa_handler = on_lost_page;
    sigaction(SIGBUS, &action, NULL);
    /* A write past the limit on file sizes then returns EFBIG. */
    signal(SIGXFSZ, SIG_IGN);
}

void tt_signals_outlive_readers(void)
{
    signal(SIGPIPE, SIG_IGN);
}
