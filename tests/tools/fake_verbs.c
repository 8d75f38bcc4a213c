/* A libibverbs.so.1 for tests on machines without RDMA: two devices; FAKE_VERBS names the call that fails for the
 * second one. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

static int devices[2], contexts[2], domains[2], regions[2];
static void *list[3] = {&devices[0], &devices[1], NULL};

static int fails(const int *of, const int *all, const char *fault)
{
    const char *wanted = getenv("FAKE_VERBS");
    return of == &all[1] && wanted != NULL && strcmp(wanted, fault) == 0;
}
static void *give(int *value, const int *of, const int *all, const char *fault, int error)
{
    if (!fails(of, all, fault)) return value;
    errno = error;
    return NULL;
}

void **ibv_get_device_list(int *count)
{
    *count = 2;
    return list;
}
void ibv_free_device_list(void **all)
{
    (void)all;
}
const char *ibv_get_device_name(void *device)
{
    return device == &devices[0] ? "mlx5_0" : "mlx5_1";
}
void *ibv_open_device(void *device)
{
    int *own = device;
    return give(&contexts[own - devices], own, devices, "open", EPERM);
}
int ibv_close_device(void *context)
{
    (void)context;
    return 0;
}
void *ibv_alloc_pd(void *context)
{
    int *own = context;
    return give(&domains[own - contexts], own, contexts, "domain", ENOMEM);
}
int ibv_dealloc_pd(void *domain)
{
    (void)domain;
    return 0;
}
void *ibv_reg_mr(void *domain, void *data, size_t bytes, int access)
{
    int *own = domain;
    if (data == NULL || bytes != (size_t)64 << 20 || access != 1) return NULL;
    return give(&regions[own - domains], own, domains, "register", ENOMEM);
}
int ibv_dereg_mr(void *region)
{
    (void)region;
    return 0;
}
