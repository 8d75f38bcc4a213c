/* The test hook of base/file.h: plans, counts and injects faults. */
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/file.h"

enum { DIE = -1 };

static struct {
    pthread_once_t read;
    _Atomic uint64_t changes, nth; /* nth: counted as `changes` is; 0: none */
    atomic_int error_number;
    atomic_bool sticky;
} plan = {.read = PTHREAD_ONCE_INIT};

static void read_environment(void)
{
    unsigned long long nth;
    int error_number, sticky;
    const char *text = getenv("TRIMTAB_FILE_FAULT");
    if (text == NULL || sscanf(text, "%llu %d %d", &nth, &error_number, &sticky) != 3) return;
    atomic_store(&plan.error_number, error_number);
    atomic_store(&plan.sticky, sticky != 0);
    atomic_store(&plan.nth, nth);
}

void tt_file_fail_at(uint64_t nth, int error_number, bool sticky)
{
    pthread_once(&plan.read, read_environment);
    atomic_store(&plan.error_number, error_number);
    atomic_store(&plan.sticky, sticky);
    atomic_store(&plan.nth, nth > 0 ? atomic_load(&plan.changes) + nth : 0);
}

static int next_fault(void)
{
    pthread_once(&plan.read, read_environment);
    uint64_t change = atomic_fetch_add(&plan.changes, 1) + 1, nth = atomic_load(&plan.nth);
    if (nth == 0 || change < nth || (change > nth && !atomic_load(&plan.sticky))) return 0;
    int error_number = atomic_load(&plan.error_number);
    return error_number != 0 ? error_number : DIE;
}

static void die(void)
{
    (void)kill(getpid(), SIGKILL);
    pause();
}

int tt_file_fault(void)
{
    int fault = next_fault();
    if (fault == DIE) die();
    return fault;
}

int tt_file_fault_of_write(int descriptor, const void *data, size_t bytes, uint64_t offset)
{
    int fault = next_fault();
    if (fault == DIE) {
        ssize_t half = pwrite(descriptor, data, bytes / 2, (off_t)offset);
        (void)half;
        die();
    }
    return fault;
}
