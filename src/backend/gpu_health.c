#include "backend/gpu_health.h"

#include <dlfcn.h>
#include <stddef.h>
#include <string.h>

#include "backend/plugin.h"

enum { LINKS_MAX = 18, CORRECTED = 0, UNCORRECTED = 1, SINCE_LOAD = 0, REPLAYS = 0, RECOVERIES = 1 };

/* Values of nvml.h. */
struct memory {
    unsigned long long total, free, used;
};

/* nvml.h of the driver, API version 2: functions that are missing in it answer nothing. */
struct nvml {
    int (*init)(void);
    int (*by_pci)(const char *pci, void **device);
    int (*driver)(char *text, unsigned bytes);
    int (*ecc_mode)(void *device, unsigned *current, unsigned *pending);
    int (*ecc_errors)(void *device, int kind, int since, unsigned long long *count);
    int (*remapped)(void *device, unsigned *corrected, unsigned *uncorrected, unsigned *pending,
                    unsigned *failed);
    int (*retired)(void *device, unsigned *pending);
    int (*slow)(void *device, unsigned long long *reasons);
    int (*generation)(void *device, unsigned *value);
    int (*generation_max)(void *device, unsigned *value);
    int (*width)(void *device, unsigned *value);
    int (*width_max)(void *device, unsigned *value);
    int (*link_state)(void *device, unsigned link, unsigned *active);
    int (*link_errors)(void *device, unsigned link, int counter, unsigned long long *count);
    int (*mig)(void *device, unsigned *current, unsigned *pending);
    int (*persistence)(void *device, unsigned *value);
    int (*memory)(void *device, struct memory *memory);
};

static const struct {
    const char *name;
    size_t offset;
} symbols[] = {
    {"nvmlInit_v2", offsetof(struct nvml, init)},
    {"nvmlDeviceGetHandleByPciBusId_v2", offsetof(struct nvml, by_pci)},
    {"nvmlSystemGetDriverVersion", offsetof(struct nvml, driver)},
    {"nvmlDeviceGetEccMode", offsetof(struct nvml, ecc_mode)},
    {"nvmlDeviceGetTotalEccErrors", offsetof(struct nvml, ecc_errors)},
    {"nvmlDeviceGetRemappedRows", offsetof(struct nvml, remapped)},
    {"nvmlDeviceGetRetiredPagesPendingStatus", offsetof(struct nvml, retired)},
    {"nvmlDeviceGetCurrentClocksThrottleReasons", offsetof(struct nvml, slow)},
    {"nvmlDeviceGetCurrPcieLinkGeneration", offsetof(struct nvml, generation)},
    {"nvmlDeviceGetMaxPcieLinkGeneration", offsetof(struct nvml, generation_max)},
    {"nvmlDeviceGetCurrPcieLinkWidth", offsetof(struct nvml, width)},
    {"nvmlDeviceGetMaxPcieLinkWidth", offsetof(struct nvml, width_max)},
    {"nvmlDeviceGetNvLinkState", offsetof(struct nvml, link_state)},
    {"nvmlDeviceGetNvLinkErrorCounter", offsetof(struct nvml, link_errors)},
    {"nvmlDeviceGetMigMode", offsetof(struct nvml, mig)},
    {"nvmlDeviceGetPersistenceMode", offsetof(struct nvml, persistence)},
    {"nvmlDeviceGetMemoryInfo", offsetof(struct nvml, memory)},
};

/* NVML counts its users, so opening it again costs little; it stays open. */
static bool open_nvml(struct nvml *nvml)
{
    void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    *nvml = (struct nvml){0};
    if (library == NULL) return false;
    for (size_t i = 0; i < sizeof symbols / sizeof *symbols; i++) {
        void *symbol = dlsym(library, symbols[i].name);
        memcpy((char *)nvml + symbols[i].offset, &symbol, sizeof symbol);
    }
    return nvml->init != NULL && nvml->by_pci != NULL && nvml->init() == 0;
}

static int32_t ask(int (*question)(void *, unsigned *), void *gpu)
{
    unsigned value;
    return question != NULL && question(gpu, &value) == 0 ? (int32_t)value : -1;
}

static int32_t ask_mode(int (*question)(void *, unsigned *, unsigned *), void *gpu)
{
    unsigned current, pending;
    return question != NULL && question(gpu, &current, &pending) == 0 ? (int32_t)current : -1;
}

static int64_t count_errors(const struct nvml *nvml, void *gpu, int kind)
{
    unsigned long long count;
    if (nvml->ecc_errors == NULL || nvml->ecc_errors(gpu, kind, SINCE_LOAD, &count) != 0) return -1;
    return (int64_t)count;
}

/* Rows from the A100 on, pages before. */
static void read_replacements(const struct nvml *nvml, void *gpu, struct tt_gpu_health *out)
{
    unsigned corrected, uncorrected, pending, failed;
    if (nvml->remapped != NULL && nvml->remapped(gpu, &corrected, &uncorrected, &pending, &failed) == 0) {
        out->remap_pending = pending != 0;
        out->remap_failed = failed != 0;
        return;
    }
    out->remap_pending = ask(nvml->retired, gpu);
    out->remap_failed = -1;
}

static void read_links(const struct nvml *nvml, void *gpu, struct tt_gpu_health *out)
{
    for (unsigned link = 0; link < LINKS_MAX; link++) {
        unsigned active;
        unsigned long long errors;
        if (nvml->link_state == NULL || nvml->link_state(gpu, link, &active) != 0) continue;
        out->nvlinks++;
        out->nvlinks_down += active == 0;
        for (int counter = REPLAYS; counter <= RECOVERIES; counter++)
            if (nvml->link_errors != NULL && nvml->link_errors(gpu, link, counter, &errors) == 0)
                out->nvlink_errors += (int64_t)errors;
    }
}

bool tt_gpu_health_read(int index, struct tt_gpu_health *out)
{
    struct tt_gpu_facts facts;
    struct nvml nvml;
    struct memory memory;
    unsigned long long reasons;
    void *gpu = NULL;
    *out = (struct tt_gpu_health){0};
    const struct tt_plugin *plugin = tt_plugin_load(NULL, 0);
    if (plugin == NULL || plugin->facts(index, &facts) != TT_OK || !open_nvml(&nvml)) {
        tt_error_clear();
        return false;
    }
    if (nvml.by_pci(facts.pci, &gpu) != 0) return false;
    out->known = 1;
    if (nvml.driver == NULL || nvml.driver(out->driver, sizeof out->driver) != 0) out->driver[0] = '\0';
    out->ecc = ask_mode(nvml.ecc_mode, gpu);
    out->uncorrected = count_errors(&nvml, gpu, UNCORRECTED);
    out->corrected = count_errors(&nvml, gpu, CORRECTED);
    read_replacements(&nvml, gpu, out);
    out->slow_reasons = nvml.slow != NULL && nvml.slow(gpu, &reasons) == 0 ? (int64_t)reasons : -1;
    out->pcie_generation = ask(nvml.generation, gpu);
    out->pcie_generation_max = ask(nvml.generation_max, gpu);
    out->pcie_width = ask(nvml.width, gpu);
    out->pcie_width_max = ask(nvml.width_max, gpu);
    read_links(&nvml, gpu, out);
    out->mig = ask_mode(nvml.mig, gpu);
    out->persistence = ask(nvml.persistence, gpu);
    bool told = nvml.memory != NULL && nvml.memory(gpu, &memory) == 0;
    out->used_bytes = told ? (int64_t)memory.used : -1;
    out->total_bytes = told ? (int64_t)memory.total : -1;
    return true;
}
