/* trimtab doctor: RDMA devices, by /sys and by libibverbs, which is opened at run time. */
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "base/alloc.h"
#include "base/number.h"
#include "doctor/doctor_impl.h"

enum { REGISTERED_BYTES = 64 << 20, LOCAL_WRITE = 1 };

/* One port; `device`: its folder. */
static void find_port(const char *device, const char *name, const char *port, const char *gid_index,
                      struct tt_doctor_rank *found)
{
    char path[400], shown[120], state[64], rate[64], layer[64];
    size_t at = strlen(found->rdma);
    snprintf(path, sizeof path, "%s/ports/%s", device, port);
    if (!tt_doctor_fact(path, "state", state)) return;
    (void)tt_doctor_fact(path, "rate", rate);
    (void)tt_doctor_fact(path, "link_layer", layer);
    bool is_active = strstr(state, "ACTIVE") != NULL, first = strcmp(port, "1") == 0;
    found->rdma_ports++;
    found->rdma_active += is_active;
    snprintf(shown, sizeof shown, "%.30s%s%.8s", name, first ? "" : ":", first ? "" : port);
    snprintf(found->rdma + at, sizeof found->rdma - at, "%s%s %.20s %.20s %.20s", at > 0 ? ", " : "", shown,
             state, rate, layer);
    if (is_active && strcmp(layer, "Ethernet") == 0)
        tt_doctor_find_gid(shown, path, gid_index != NULL ? gid_index : "", found);
}

void tt_doctor_find_rdma(const char *devices, const char *gid_index, struct tt_doctor_rank *found)
{
    struct tt_doctor_names *all = tt_doctor_list(devices);
    for (size_t d = 0; all != NULL && d < all->count; d++) {
        char device[300], ports[320];
        snprintf(device, sizeof device, "%s/%s", devices, all->names[d]);
        snprintf(ports, sizeof ports, "%s/ports", device);
        struct tt_doctor_names *here = tt_doctor_list(ports);
        for (size_t p = 0; here != NULL && p < here->count; p++)
            find_port(device, all->names[d], here->names[p], gid_index, found);
        tt_free(here);
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
