/* Limits of the control groups of this process, as containers and batch systems set them. A limit of a group holds for
 * all groups below it.
 *
 * Sources: Linux Documentation/admin-guide/cgroup-v2.rst, cgroup-v1/memory.rst, cgroups(7) for /proc/PID/cgroup. */
#ifndef TT_BASE_CGROUP_H
#define TT_BASE_CGROUP_H

#include <stdbool.h>
#include <stdint.h>

/* The limit of one group, from the files in `folder`; HUGE_VAL: none of its own. */
typedef double tt_cgroup_limit(const char *folder);

/* The smallest limit of the groups that `cgroup_file` names (in the format of /proc/self/cgroup) and of their parents;
 * HUGE_VAL: none. `mounts`: the folder where cgroup file systems are mounted, version 2 there or, beside version 1, in
 * `unified`. `controller`: "cpu", for version 1. */
double tt_cgroup_least(const char *cgroup_file, const char *mounts, const char *controller,
                       tt_cgroup_limit *limit_of);

/* The first line of folder/name; false when there is none. */
bool tt_cgroup_read_line(const char *folder, const char *name, char *line, int line_bytes);

/* Bytes that the groups may use; 0: no limit. Of version 2 memory.max, or memory.high, beyond which the kernel stops a
 * group again and again; of version 1 also the limits of groups that a container does not see. */
uint64_t tt_memory_limit(const char *cgroup_file, const char *mounts);

/* Bytes of memory that this process and its neighbours in the group may use: the limit of its groups, or the memory of
 * the machine where that is less. *grouped: the limit of a group. 0: unknown. */
uint64_t tt_memory_bytes(bool *grouped);

/* Pages of this process in memory, bytes: all now, those of no file among them, the most so far. 0: unknown. Source:
 * proc_pid_status(5), VmRSS, RssAnon and VmHWM. */
struct tt_process_memory {
    uint64_t resident, own, peak;
};
struct tt_process_memory tt_process_memory_read(void);

#endif
