/* Processors of this process. Containers are limited by a quota of CPU time, which the affinity mask does not
 * show: with 16 threads on a quota of 2 processors, all 16 threads are stopped for most of each period.
 *
 * Sources: Linux Documentation/admin-guide/cgroup-v2.rst ("cpu.max": quota and period in microseconds, or
 * "max"), Documentation/scheduler/sched-bwc.rst (version 1: cpu.cfs_quota_us, -1 for none, and
 * cpu.cfs_period_us). */
#include <math.h>
#include <sched.h>
#include <stdio.h>
#include <unistd.h>

#include "base/cgroup.h"
#include "base/thread.h"

static bool read_number(const char *folder, const char *name, long long *number)
{
    char line[128];
    return tt_cgroup_read_line(folder, name, line, sizeof line) && sscanf(line, "%lld", number) == 1;
}

/* Processors that one group may use; HUGE_VAL: no quota of its own. */
static double quota_of(const char *folder)
{
    char line[128];
    long long quota = -1, period = 0;
    if (tt_cgroup_read_line(folder, "cpu.max", line, sizeof line)) {
        if (sscanf(line, "%lld %lld", &quota, &period) != 2) return HUGE_VAL;
    } else if (!read_number(folder, "cpu.cfs_quota_us", &quota) ||
               !read_number(folder, "cpu.cfs_period_us", &period)) {
        return HUGE_VAL;
    }
    return quota > 0 && period > 0 ? (double)quota / (double)period : HUGE_VAL;
}

int tt_cpu_quota(const char *cgroup_file, const char *mounts)
{
    double least = tt_cgroup_least(cgroup_file, mounts, "cpu", quota_of);
    return least < 1 << 20 ? (int)ceil(least) : 0;
}

/* Processors of the affinity mask; those online on a machine with more than cpu_set_t holds. */
static int count_allowed(void)
{
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0 && CPU_COUNT(&set) > 0) return CPU_COUNT(&set);
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    return online > 0 ? (int)online : 1;
}

int tt_cpu_count(void)
{
    int allowed = count_allowed(), quota = tt_cpu_quota("/proc/self/cgroup", "/sys/fs/cgroup");
    return quota > 0 && quota < allowed ? quota : allowed;
}
