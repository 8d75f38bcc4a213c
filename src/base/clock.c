#include "base/clock.h"

#include <time.h>

static double read_clock(clockid_t id)
{
    struct timespec now;
    clock_gettime(id, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

double tt_clock_seconds(void)
{
    return read_clock(CLOCK_MONOTONIC);
}

double tt_clock_unix_seconds(void)
{
    return read_clock(CLOCK_REALTIME);
}
