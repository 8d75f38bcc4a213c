#include "launch/devices.h"

#include <stdlib.h>
#include <string.h>

#include "backend/plugin.h"

/* "NV18" if all pairs have the same link, otherwise one line for each pair. */
static tt_status describe_links(const struct tt_plugin *plugin, int first, int count, struct tt_str *text)
{
    char all[32] = "", link[32];
    bool alike = true;
    for (int a = first; a < first + count; a++) {
        for (int b = a + 1; b < first + count; b++) {
            plugin->link(a, b, link, sizeof link);
            if (all[0] == '\0') snprintf(all, sizeof all, "%s", link);
            alike &= strcmp(all, link) == 0;
        }
    }
    if (alike) return tt_str_printf(text, "\nlinks between them: %s", all);
    for (int a = first; a < first + count; a++) {
        for (int b = a + 1; b < first + count; b++) {
            plugin->link(a, b, link, sizeof link);
            TT_TRY(tt_str_printf(text, "\nlink of cuda:%d and cuda:%d: %s", a, b, link));
        }
    }
    return TT_OK;
}

tt_status tt_devices_describe(int first, int count, struct tt_str *text)
{
    const struct tt_plugin *plugin = tt_plugin_load(NULL, 0);
    if (plugin == NULL || count < 1) return TT_OK;
    struct tt_gpu_facts facts = {0};
    for (int i = first; i < first + count; i++) {
        char bytes[32];
        TT_TRY(plugin->facts(i, &facts));
        tt_format_bytes((double)facts.memory_bytes, bytes, sizeof bytes);
        TT_TRY(tt_str_printf(text, "%scuda:%d: %s, %s, %d processors, compute capability %d.%d, %s",
                             i == first ? "" : "\n", i, facts.name, bytes, facts.processors,
                             facts.compute_major, facts.compute_minor, facts.pci));
    }
    TT_TRY(tt_str_printf(text, "\ndriver for CUDA %d.%d, runtime %d.%d", facts.driver_version / 1000,
                         facts.driver_version % 1000 / 10, facts.runtime_version / 1000,
                         facts.runtime_version % 1000 / 10));
    if (count < 2) return TT_OK;
    TT_TRY(describe_links(plugin, first, count, text));
    const char *multicast = getenv("NCCL_NVLS_ENABLE");
    bool off = multicast == NULL || strcmp(multicast, "0") == 0;
    return tt_str_printf(text, ", NCCL multicast %s", off ? "off" : "set by NCCL_NVLS_ENABLE");
}

bool tt_devices_have_plugin(char *abi, char *reason, size_t reason_bytes)
{
    tt_plugin_abi(abi);
    return tt_plugin_load(reason, reason_bytes) != NULL;
}
