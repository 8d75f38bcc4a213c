/* The facts that a rank reads about its machine: limits, networks, sums of files for their comparison. */
#include <ifaddrs.h>
#include <math.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/cgroup.h"
#include "base/crc64.h"
#include "base/file.h"
#include "base/thread.h"
#include "comm/wire.h"
#include "doctor/doctor_impl.h"

enum { TMPFS = 0x01021994, HEAD_BYTES = 64 << 10, TAIL_BYTES = 64 << 10 };

static double processes_of(const char *folder)
{
    char line[64];
    if (!tt_cgroup_read_line(folder, "pids.max", line, sizeof line) || line[0] == 'm') return HUGE_VAL;
    return (double)strtoull(line, NULL, 10);
}

static uint64_t limit_of(int resource)
{
    struct rlimit limit;
    return getrlimit((__rlimit_resource_t)resource, &limit) == 0 ? (uint64_t)limit.rlim_cur : 0;
}

static void examine_limits(struct tt_doctor_rank *found)
{
    struct statvfs shm;
    struct statfs kind;
    bool grouped;
    double processes = tt_cgroup_least("/proc/self/cgroup", "/sys/fs/cgroup", "pids", processes_of);
    found->processors = tt_cpu_count();
    found->memory_bytes = tt_memory_bytes(&grouped);
    found->grouped = grouped;
    if (statvfs("/dev/shm", &shm) == 0) found->shm_bytes = (uint64_t)shm.f_blocks * shm.f_frsize;
    found->shm_is_memory = statfs("/dev/shm", &kind) == 0 && kind.f_type == TMPFS;
    found->file_limit = limit_of(RLIMIT_NOFILE);
    found->locked_limit = limit_of(RLIMIT_MEMLOCK);
    found->process_limit = processes < HUGE_VAL ? (uint64_t)processes : 0;
}

/* ---- The network towards rank 0 ---- */

/* The address from which this machine reaches `host`. */
static bool own_address(const char *host, struct sockaddr_storage *own)
{
    struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_DGRAM}, *list = NULL;
    bool found = false;
    if (getaddrinfo(host, "9", &hints, &list) != 0) return false;
    for (const struct addrinfo *at = list; at != NULL && !found; at = at->ai_next) {
        socklen_t bytes = sizeof *own;
        int file = socket(at->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
        if (file < 0) continue;
        found = connect(file, at->ai_addr, at->ai_addrlen) == 0 &&
                getsockname(file, (struct sockaddr *)own, &bytes) == 0;
        close(file);
    }
    freeaddrinfo(list);
    return found;
}

static bool is_same_address(const struct sockaddr *a, const struct sockaddr *b)
{
    if (a == NULL || a->sa_family != b->sa_family) return false;
    if (a->sa_family == AF_INET)
        return ((const struct sockaddr_in *)(const void *)a)->sin_addr.s_addr ==
               ((const struct sockaddr_in *)(const void *)b)->sin_addr.s_addr;
    return a->sa_family == AF_INET6 &&
           memcmp(&((const struct sockaddr_in6 *)(const void *)a)->sin6_addr,
                  &((const struct sockaddr_in6 *)(const void *)b)->sin6_addr, 16) == 0;
}

/* A call asks, not /sys, which may be that of another network namespace. */
static int mtu_of(const char *name)
{
    struct ifreq request = {0};
    int file = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0), mtu = 0;
    if (file < 0) return 0;
    snprintf(request.ifr_name, sizeof request.ifr_name, "%.15s", name);
    if (ioctl(file, SIOCGIFMTU, &request) == 0) mtu = request.ifr_mtu;
    close(file);
    return mtu;
}

static void find_interface(const char *host, struct tt_doctor_rank *found)
{
    struct sockaddr_storage own = {0};
    struct ifaddrs *list = NULL;
    if (host[0] == '\0' || !own_address(host, &own) || getifaddrs(&list) != 0) return;
    for (const struct ifaddrs *at = list; at != NULL; at = at->ifa_next) {
        if (!is_same_address(at->ifa_addr, (const struct sockaddr *)&own)) continue;
        snprintf(found->interface, sizeof found->interface, "%.15s", at->ifa_name);
        found->mtu = mtu_of(found->interface);
        break;
    }
    freeifaddrs(list);
}

/* ---- Sums of inputs ---- */

static tt_status collect(void *context, const char *name)
{
    struct tt_doctor_names *listing = context;
    if (listing->count < TT_DOCTOR_NAMES_MAX && strlen(name) < sizeof listing->names[0])
        snprintf(listing->names[listing->count++], sizeof listing->names[0], "%s", name);
    return TT_OK;
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(a, b);
}

struct tt_doctor_names *tt_doctor_list(const char *folder)
{
    struct tt_doctor_names *listing = tt_calloc(1, sizeof *listing);
    if (listing == NULL) return NULL;
    if (!tt_path_is_dir(folder) || tt_dir_list(folder, collect, listing) != TT_OK) listing->count = 0;
    qsort(listing->names, listing->count, sizeof listing->names[0], compare_names);
    return listing;
}

/* Hash of size, first and last bytes, to which headers and ends of truncated copies belong. */
static bool add_file(const char *path, uint64_t *sum)
{
    static const size_t part = HEAD_BYTES;
    int file = -1;
    uint64_t bytes = 0;
    if (tt_file_open_read(path, &file, &bytes) != TT_OK) return false;
    char *data = tt_calloc(part, 1);
    size_t head = bytes < part ? (size_t)bytes : part, tail = bytes < TAIL_BYTES ? 0 : TAIL_BYTES;
    bool good = data != NULL && tt_file_pread(file, path, data, head, 0) == TT_OK;
    *sum = tt_crc64(*sum, &bytes, sizeof bytes);
    if (good) *sum = tt_crc64(*sum, data, head);
    if (good && tail > 0) good = tt_file_pread(file, path, data, tail, bytes - tail) == TT_OK;
    if (good && tail > 0) *sum = tt_crc64(*sum, data, tail);
    tt_free(data);
    tt_file_close(file);
    return good;
}

uint64_t tt_doctor_sum(const char *path)
{
    uint64_t sum = 0;
    if (path == NULL) return 0;
    if (!tt_path_is_dir(path)) return tt_file_is_readable(path) && add_file(path, &sum) ? sum | 1 : 0;
    struct tt_doctor_names *all = tt_doctor_list(path);
    for (size_t i = 0; all != NULL && i < all->count; i++) {
        struct tt_path file;
        if (all->names[i][0] == '.' || tt_path_set(&file, path, all->names[i]) != TT_OK) continue;
        if (tt_path_is_dir(file.text)) continue;
        sum = tt_crc64(sum, all->names[i], strlen(all->names[i]));
        (void)add_file(file.text, &sum);
    }
    tt_free(all);
    tt_error_clear();
    return sum | 1;
}

void tt_doctor_examine_machine(const char *host, struct tt_doctor_rank *found)
{
    tt_wire_host(found->host, sizeof found->host);
    examine_limits(found);
    find_interface(host, found);
    tt_doctor_find_rdma("/sys/class/infiniband", getenv("NCCL_IB_GID_INDEX"), found);
}
