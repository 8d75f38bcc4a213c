#include "base/cgroup.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/sysinfo.h>

enum { PATH_BYTES = 4096 };

bool tt_cgroup_read_line(const char *folder, const char *name, char *line, int line_bytes)
{
    char path[PATH_BYTES + 64];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "re");
    if (file == NULL) return false;
    bool read = fgets(line, line_bytes, file) != NULL;
    fclose(file);
    return read;
}

/* The smallest limit of a group and its parents. A container sees its own group as the root, so the path may not
 * exist. */
static double least_below(const char *mount, const char *group, tt_cgroup_limit *limit_of)
{
    char folder[PATH_BYTES];
    double least = HUGE_VAL;
    int length = snprintf(folder, sizeof folder, "%s%s", mount, group), root = (int)strlen(mount);
    if (length >= (int)sizeof folder) return least;
    for (;;) {
        least = fmin(least, limit_of(folder));
        if (length <= root) return least;
        while (length > root && folder[length - 1] != '/') length--;
        while (length > root && folder[length - 1] == '/') length--;
        folder[length] = '\0';
    }
}

/* `controller` among the comma-separated controllers. */
static bool names_controller(const char *controllers, const char *controller)
{
    size_t bytes = strlen(controller);
    for (const char *name = controllers; name != NULL; name = strchr(name, ',')) {
        name += *name == ',';
        if (strncmp(name, controller, bytes) == 0 && (name[bytes] == ',' || name[bytes] == '\0')) return true;
    }
    return false;
}

double tt_cgroup_least(const char *cgroup_file, const char *mounts, const char *controller,
                       tt_cgroup_limit *limit_of)
{
    FILE *file = fopen(cgroup_file, "re");
    if (file == NULL) return HUGE_VAL;
    char line[PATH_BYTES], mount[PATH_BYTES];
    double least = HUGE_VAL;
    while (fgets(line, sizeof line, file) != NULL) {
        line[strcspn(line, "\n")] = '\0';
        char *controllers = strchr(line, ':');
        char *group = controllers != NULL ? strchr(controllers + 1, ':') : NULL;
        if (group == NULL) continue;
        *group++ = '\0';
        controllers++;
        if (controllers[0] != '\0' && !names_controller(controllers, controller)) continue;
        /* Version 2 has no controllers in its line; version 1 mounts each set of them in a folder of its
         * name. */
        bool second = controllers[0] == '\0';
        snprintf(mount, sizeof mount, "%s%s%s", mounts, second ? "" : "/", controllers);
        least = fmin(least, least_below(mount, group, limit_of));
        if (!second) continue;
        snprintf(mount, sizeof mount, "%s/unified", mounts);
        least = fmin(least, least_below(mount, group, limit_of));
    }
    fclose(file);
    return least;
}

/* Version 2 has "max" for none, version 1 a number near 2^63. */
static double bytes_of(const char *text)
{
    unsigned long long bytes = 0;
    if (sscanf(text, "%llu", &bytes) != 1 || bytes == 0 || bytes >= 1ULL << 62) return HUGE_VAL;
    return (double)bytes;
}

static double bytes_of_file(const char *folder, const char *name)
{
    char line[128];
    return tt_cgroup_read_line(folder, name, line, sizeof line) ? bytes_of(line) : HUGE_VAL;
}

/* Version 1: with the limits of all groups above, also those that are not mounted here. */
static double hierarchical_limit(const char *folder)
{
    static const char key[] = "hierarchical_memory_limit ";
    char path[PATH_BYTES + 64], line[256];
    double limit = HUGE_VAL;
    snprintf(path, sizeof path, "%s/memory.stat", folder);
    FILE *file = fopen(path, "re");
    if (file == NULL) return HUGE_VAL;
    while (fgets(line, sizeof line, file) != NULL)
        if (strncmp(line, key, sizeof key - 1) == 0) limit = bytes_of(line + sizeof key - 1);
    fclose(file);
    return limit;
}

static double memory_of(const char *folder)
{
    double least = fmin(bytes_of_file(folder, "memory.max"), bytes_of_file(folder, "memory.high"));
    least = fmin(least, bytes_of_file(folder, "memory.limit_in_bytes"));
    return fmin(least, hierarchical_limit(folder));
}

uint64_t tt_memory_limit(const char *cgroup_file, const char *mounts)
{
    double least = tt_cgroup_least(cgroup_file, mounts, "memory", memory_of);
    return least < HUGE_VAL ? (uint64_t)least : 0;
}

uint64_t tt_memory_bytes(bool *grouped)
{
    struct sysinfo machine;
    uint64_t all = sysinfo(&machine) == 0 ? (uint64_t)machine.totalram * machine.mem_unit : 0;
    uint64_t limit = tt_memory_limit("/proc/self/cgroup", "/sys/fs/cgroup");
    *grouped = limit > 0 && (all == 0 || limit < all);
    return *grouped ? limit : all;
}

/* "RssAnon:      1234 kB" */
static bool read_kilobytes(const char *line, const char *key, uint64_t *bytes)
{
    unsigned long long kilobytes;
    size_t length = strlen(key);
    if (strncmp(line, key, length) != 0 || sscanf(line + length, "%llu kB", &kilobytes) != 1) return false;
    *bytes = (uint64_t)kilobytes << 10;
    return true;
}

struct tt_process_memory tt_process_memory_read(void)
{
    struct tt_process_memory memory = {0};
    char line[256];
    FILE *file = fopen("/proc/self/status", "re");
    if (file == NULL) return memory;
    while (fgets(line, sizeof line, file) != NULL) {
        if (read_kilobytes(line, "VmRSS:", &memory.resident)) continue;
        if (!read_kilobytes(line, "RssAnon:", &memory.own))
            (void)read_kilobytes(line, "VmHWM:", &memory.peak);
    }
    fclose(file);
    return memory;
}
