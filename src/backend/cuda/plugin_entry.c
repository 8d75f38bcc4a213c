/* The one exported symbol of the plugin. */
#include "backend/cuda/device_parts.h"

static void (*host_log_line)(enum tt_log_level level, const char *line);

static void forward(void *context, enum tt_log_level level, const char *line)
{
    (void)context;
    host_log_line(level, line);
}

TT_PUBLIC tt_plugin_entry tt_cuda_plugin;

const struct tt_plugin *tt_cuda_plugin(const struct tt_host *host)
{
    static struct tt_plugin plugin = {
        .device = &tt_cuda_device_table,
        .collectives = &tt_cuda_collectives,
        .device_count = tt_cuda_count,
        .facts = tt_cuda_facts,
        .link = tt_cuda_link,
        .enable_peer = tt_cuda_enable_peer,
    };
    tt_plugin_abi(plugin.abi);
    tt_error_use_records(host->error_record);
    host_log_line = host->log_line;
    tt_log_set_sink(forward, NULL);
    return &plugin;
}
