/* The kinds of devices, and a device of one of them. */
#include <string.h>

#include "backend/device_impl.h"
#include "backend/plugin.h"
#include "base/alloc.h"

/* The table of a kind, or NULL with the error record set. */
static const struct tt_device_table *find_table(const char *kind)
{
    if (strcmp(kind, "cpu") == 0) return &tt_cpu_device_table;
    if (strcmp(kind, "plan") == 0) return &tt_plan_device_table;
    if (strcmp(kind, "cuda") == 0) {
        char reason[512] = "";
        const struct tt_plugin *plugin = tt_plugin_load(reason, sizeof reason);
        if (plugin != NULL) return plugin->device;
        tt_fail(TT_ERR_DEVICE, "no GPU can be used: %s", reason);
        tt_hint("libtrimtab_cuda.so is built where nvcc is found; --device cpu runs without it");
        return NULL;
    }
    tt_fail(TT_ERR_UNSUPPORTED, "this build has no device of kind '%s'", kind);
    tt_hint("it has 'cpu', 'cuda' and 'plan'");
    return NULL;
}

tt_status tt_device_open(const struct tt_device_config *config, struct tt_device **out)
{
    const char *kind = config->kind != NULL ? config->kind : "";
    const struct tt_device_table *table = find_table(kind);
    if (table == NULL) return tt_error_last()->status;
    if (config->threads < 0) {
        return tt_fail(TT_ERR_USAGE, "a device cannot have %d threads", config->threads);
    }
    struct tt_device *device = tt_calloc(1, sizeof *device);
    if (device == NULL) return TT_ERR_MEMORY;
    device->table = table;
    device->index = config->index;
    device->threads = config->threads;
    device->memory_limit = config->memory_limit;
    device->tuning = config->tuning;
    device->is_host = true;
    tt_status status = table->open(device, config);
    if (status != TT_OK) {
        tt_while("opening device %s:%d", kind, config->index);
        tt_free(device);
        return status;
    }
    *out = device;
    return TT_OK;
}
