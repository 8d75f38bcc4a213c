/* Finds and opens libtrimtab_cuda.so, once per process; the result, or the reason of the failure, is stored. */
#include "backend/plugin.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/log.h"
#include "base/own_folder.h"

static const char file_name[] = "libtrimtab_cuda.so";

/* Written once, under pthread_once. */
static pthread_once_t once = PTHREAD_ONCE_INIT;
static const struct tt_plugin *loaded;
static char why_not[512];

static void log_line(enum tt_log_level level, const char *line)
{
    tt_log(level, "%s", line);
}

static const struct tt_host host = {.error_record = tt_error_record, .log_line = log_line};

static void *open_file(void)
{
    static const char *const places[] = {"%s/%s", "%s/../lib/trimtab/%s",
                                         "%s/../lib/x86_64-linux-gnu/trimtab/%s", "%s/../lib64/trimtab/%s",
                                         "%s/trimtab/%s"};
    const char *told = getenv("TRIMTAB_CUDA_PLUGIN");
    char folder[2048], path[4096];
    if (told != NULL) {
        if (told[0] == '\0') {
            snprintf(why_not, sizeof why_not, "TRIMTAB_CUDA_PLUGIN is empty");
            return NULL;
        }
        void *handle = dlopen(told, RTLD_NOW | RTLD_LOCAL);
        if (handle == NULL) snprintf(why_not, sizeof why_not, "%s", dlerror());
        return handle;
    }
    if (!tt_own_folder(folder, sizeof folder)) {
        snprintf(why_not, sizeof why_not, "the folder of the program is unknown, so %s cannot be found there",
                 file_name);
        return NULL;
    }
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        snprintf(path, sizeof path, places[i], folder, file_name);
        if (!tt_path_exists(path)) continue;
        void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
        if (handle == NULL) snprintf(why_not, sizeof why_not, "%s", dlerror());
        return handle;
    }
    snprintf(why_not, sizeof why_not, "%s is not beside the program", file_name);
    return NULL;
}

static void load(void)
{
    void *handle = open_file();
    if (handle == NULL) return;
    void *symbol = dlsym(handle, TT_PLUGIN_ENTRY_NAME);
    tt_plugin_entry *entry = NULL;
    memcpy(&entry, &symbol, sizeof entry); /* ISO C has no cast from data to code */
    const struct tt_plugin *plugin = entry != NULL ? entry(&host) : NULL;
    char abi[96];
    tt_plugin_abi(abi);
    if (plugin == NULL || strcmp(plugin->abi, abi) != 0) {
        snprintf(why_not, sizeof why_not, "%s belongs to another build (%s; this is %s)", file_name,
                 plugin != NULL ? plugin->abi : "no entry", abi);
        dlclose(handle);
        return;
    }
    loaded = plugin;
}

const struct tt_plugin *tt_plugin_load(char *reason, size_t reason_bytes)
{
    pthread_once(&once, load);
    if (loaded == NULL && reason_bytes > 0) snprintf(reason, reason_bytes, "%s", why_not);
    return loaded;
}

int tt_cuda_device_count(char *reason, size_t reason_bytes)
{
    const struct tt_plugin *plugin = tt_plugin_load(reason, reason_bytes);
    return plugin != NULL ? plugin->device_count(reason, reason_bytes) : 0;
}
