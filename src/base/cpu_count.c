/* Processors of this process. Containers are limited by a quota of CPU time, which the affinity mask does not
 * show: with 16 threads on a quota of 2 processors, all 16 threads are stopped for most of each period.
 *
 * Sources: Linux Documentation/admin-guide/cgroup-v2.rst ("cpu.max": quota and period in microseconds, or
 * "max"), Documentation/scheduler/sched-bwc.rst (version 1: cpu.cfs_quota_us, -1 for none, and
 * cpu.cfs_period_us), cgroups(7) for /proc/PID/cgroup. A quota limits a group and all groups below it. */
#include <math.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/thread.h"

enum { PATH_BYTES = 4096 };

/* The first line of folder/name; false when there is none. */
static bool read_line(const char *folder, const char *name, char *line, int line_bytes)
{
    char path[PATH_BYTES + 64];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "re");
    if (file == NULL) return false;
    bool read = fgets(line, line_bytes, file) != NULL;
    fclose(file);
    return read;
}

/* Processors that one group may use; HUGE_VAL: no quota of its own. */
static double quota_of(const char *folder)
{
    char line[128];
    long long quota = -1, period = 0;
    if (read_line(folder, "cpu.max", line, sizeof line)) {
        if (sscanf(line, "%lld %lld", &quota, &period) != 2) return HUGE_VAL;
    } else {
        if (!read_line(folder, "cpu.cfs_quota_us", line, sizeof line) || sscanf(line, "%lld", &quota) != 1)
            return HUGE_VAL;
        if (!read_line(folder, "cpu.cfs_period_us", line, sizeof line) || sscanf(line, "%lld", &period) != 1)
            return HUGE_VAL;
    }
    return quota > 0 && period > 0 ? (double)quota / (double)period : HUGE_VAL;
}

/* The smallest quota of a group and its parents. A container sees its own group as the root, so the path may not
 * exist. */
static double quota_below(const char *mount, const char *group)
{
    char folder[PATH_BYTES];
    double least = HUGE_VAL;
    int length = snprintf(folder, sizeof folder, "%s%s", mount, group), root = (int)strlen(mount);
    if (length >= (int)sizeof folder) return least;
    for (;;) {
        least = fmin(least, quota_of(folder));
        if (length <= root) return least;
        while (length > root && folder[length - 1] != '/') length--;
        while (length > root && folder[length - 1] == '/') length--;
        folder[length] = '\0';
    }
}

/* "cpu" among the comma-separated controllers. */
static bool names_cpu(const char *controllers)
{
    for (const char *name = controllers; name != NULL; name = strchr(name, ',')) {
        name += *name == ',';
        if (strncmp(name, "cpu", 3) == 0 && (name[3] == ',' || name[3] == '\0')) return true;
    }
    return false;
}

int tt_cpu_quota(const char *cgroup_file, const char *mounts)
{
    FILE *file = fopen(cgroup_file, "re");
    if (file == NULL) return 0;
    char line[PATH_BYTES], mount[PATH_BYTES];
    double least = HUGE_VAL;
    while (fgets(line, sizeof line, file) != NULL) {
        line[strcspn(line, "\n")] = '\0';
        char *controllers = strchr(line, ':');
        char *group = controllers != NULL ? strchr(controllers + 1, ':') : NULL;
        if (group == NULL) continue;
        *group++ = '\0';
        controllers++;
        if (controllers[0] != '\0' && !names_cpu(controllers)) continue;
        /* Version 2 has no controllers in its line; version 1 mounts each set of them in a folder of its
         * name. */
        snprintf(mount, sizeof mount, "%s%s%s", mounts, controllers[0] != '\0' ? "/" : "", controllers);
        least = fmin(least, quota_below(mount, group));
    }
    fclose(file);
    return least < 1 << 20 ? (int)ceil(least) : 0;
}

/* The number of online processors, for machines with more than cpu_set_t can hold. */
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
