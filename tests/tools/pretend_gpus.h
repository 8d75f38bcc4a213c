/* The facts of fake GPUs for their plugins (fake_gpus.c, late_gpus.c): PRETEND_GPUS (defined before) H200s
 * without links. */
#ifndef TT_TESTS_TOOLS_PRETEND_GPUS_H
#define TT_TESTS_TOOLS_PRETEND_GPUS_H

#include <stdio.h>

#include "backend/plugin.h"

static int pretend_count(char *reason, size_t reason_bytes)
{
    if (reason_bytes > 0) reason[0] = '\0';
    return PRETEND_GPUS;
}

static tt_status pretend_facts(int index, struct tt_gpu_facts *out)
{
    *out = (struct tt_gpu_facts){
        .name = "NVIDIA H200", .memory_bytes = (size_t)140 << 30, .runtime_version = index};
    snprintf(out->pci, sizeof out->pci, "0000:%02x:00.0", (unsigned)index & 255u);
    return TT_OK;
}

static void pretend_link(int from, int to, char *text, size_t text_bytes)
{
    snprintf(text, text_bytes, "%s", from == to ? "X" : "-");
}

/* Fills in a plugin except its tables and enable_peer. */
static const struct tt_plugin *pretend_plugin(const struct tt_host *host, struct tt_plugin *plugin)
{
    plugin->device_count = pretend_count;
    plugin->facts = pretend_facts;
    plugin->link = pretend_link;
    tt_plugin_abi(plugin->abi);
    tt_error_use_records(host->error_record);
    return plugin;
}

#endif
