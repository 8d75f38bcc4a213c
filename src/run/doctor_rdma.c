/* trimtab doctor: RDMA devices, by /sys and by libibverbs, which is opened at run time. */
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "base/alloc.h"
#include "base/cgroup.h"
#include "base/number.h"
#include "run/doctor_parts.h"

enum { REGISTERED_BYTES = 64 << 20, LOCAL_WRITE = 1 };

/* The line of a file of /sys without its end; empty: there is none. */
static bool read_fact(const char *folder, const char *name, char text[64])
{
    if (!tt_cgroup_read_line(folder, name, text, 64)) return false;
    text[strcspn(text, "\n")] = '\0';
    return true;
}

void tt_doctor_find_rdma(const char *devices, struct tt_doctor_rank *found)
{
    struct tt_doctor_names *all = tt_doctor_list(devices);
    size_t at = 0;
    for (size_t d = 0; all != NULL && d < all->count; d++) {
        char path[512], state[64] = "", rate[64] = "", layer[64] = "";
        snprintf(path, sizeof path, "%s/%s/ports/1", devices, all->names[d]);
        if (!read_fact(path, "state", state)) continue;
        (void)read_fact(path, "rate", rate);
        (void)read_fact(path, "link_layer", layer);
        found->rdma_ports++;
        found->rdma_active += strstr(state, "ACTIVE") != NULL;
        if (at < sizeof found->rdma)
            at += (size_t)snprintf(found->rdma + at, sizeof found->rdma - at, "%s%s %.20s %.20s %.20s",
                                   at > 0 ? ", " : "", all->names[d], state, rate, layer);
    }
    tt_free(all);
}

/* The functions of <infiniband/verbs.h> that are used; its structs stay closed. */
struct verbs {
    void **(*list)(int *count);
    void (*free_list)(void **devices);
    const char *(*name)(void *device);
    void *(*open)(void *device);
    int (*close)(void *context);
    void *(*allocate)(void *context);
    int (*deallocate)(void *domain);
    void *(*register_memory)(void *domain, void *data, size_t bytes, int access);
    int (*deregister)(void *region);
};

static bool open_verbs(struct verbs *verbs)
{
    static const struct {
        const char *name;
        size_t offset;
    } symbols[] = {
        {"ibv_get_device_list", offsetof(struct verbs, list)},
        {"ibv_free_device_list", offsetof(struct verbs, free_list)},
        {"ibv_get_device_name", offsetof(struct verbs, name)},
        {"ibv_open_device", offsetof(struct verbs, open)},
        {"ibv_close_device", offsetof(struct verbs, close)},
        {"ibv_alloc_pd", offsetof(struct verbs, allocate)},
        {"ibv_dealloc_pd", offsetof(struct verbs, deallocate)},
        {"ibv_reg_mr", offsetof(struct verbs, register_memory)},
        {"ibv_dereg_mr", offsetof(struct verbs, deregister)},
    };
    void *library = dlopen("libibverbs.so.1", RTLD_NOW | RTLD_LOCAL); /* stays open */
    for (size_t i = 0; library != NULL && i < sizeof symbols / sizeof *symbols; i++) {
        void *symbol = dlsym(library, symbols[i].name);
        if (symbol == NULL) return false;
        memcpy((char *)verbs + symbols[i].offset, &symbol, sizeof symbol);
    }
    return library != NULL;
}

/* NULL: it can be done. */
static const char *try_device(const struct verbs *verbs, void *device, void *data)
{
    const char *step = "cannot be opened";
    void *context = verbs->open(device), *domain = NULL, *region = NULL;
    if (context != NULL) {
        step = "has no protection domain left";
        domain = verbs->allocate(context);
    }
    if (domain != NULL) {
        step = "registers no 64 MiB of memory";
        region = verbs->register_memory(domain, data, REGISTERED_BYTES, LOCAL_WRITE);
    }
    int error = errno;
    if (region != NULL) (void)verbs->deregister(region);
    if (domain != NULL) (void)verbs->deallocate(domain);
    if (context != NULL) (void)verbs->close(context);
    errno = error;
    return region != NULL ? NULL : step;
}

void tt_doctor_register_memory(struct tt_doctor_rank *found)
{
    struct verbs verbs = {0};
    int count = 0;
    found->rdma_devices = -1;
    if (!open_verbs(&verbs)) return;
    found->rdma_devices = 0;
    void **devices = verbs.list(&count);
    if (devices == NULL) return;
    void *data = mmap(NULL, REGISTERED_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (int i = 0; i < count && data != MAP_FAILED; i++) {
        errno = 0;
        const char *step = try_device(&verbs, devices[i], data);
        found->rdma_devices++;
        found->rdma_registered += step == NULL;
        if (step == NULL || found->rdma_error[0] != '\0') continue;
        snprintf(found->rdma_error, sizeof found->rdma_error, "%.30s %s: %.40s", verbs.name(devices[i]), step,
                 tt_errno_text(errno));
    }
    if (data != MAP_FAILED) (void)munmap(data, REGISTERED_BYTES);
    verbs.free_list(devices);
}
