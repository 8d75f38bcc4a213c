/* Facts about the GPUs and the links between them, for messages and choices; nothing is created on a GPU. NVML
 * (the library of nvidia-smi) is opened at run time and read only for the links. */
#include <dlfcn.h>
#include <stdio.h>

#include "backend/cuda/device_parts.h"

int tt_cuda_count(char *reason, size_t reason_bytes)
{
    int count = 0, driver = 0;
    cudaError_t error = cudaGetDeviceCount(&count);
    if (error == cudaSuccess && count > 0) return count;
    (void)cudaGetLastError();
    if (reason_bytes == 0) return 0;
    if (cudaDriverGetVersion(&driver) != cudaSuccess || driver == 0)
        snprintf(reason, reason_bytes, "no NVIDIA driver");
    else if (error == cudaSuccess || error == cudaErrorNoDevice)
        snprintf(reason, reason_bytes, "no GPU is visible (CUDA_VISIBLE_DEVICES, or none in the machine)");
    else
        snprintf(reason, reason_bytes, "%s (driver for CUDA %d.%d)", cudaGetErrorString(error), driver / 1000,
                 driver % 1000 / 10);
    return 0;
}

tt_status tt_cuda_facts(int index, struct tt_gpu_facts *out)
{
    struct cudaDeviceProp properties;
    struct tt_gpu_facts facts = {0};
    TT_TRY(tt_cuda_check(cudaGetDeviceProperties(&properties, index), NULL, "querying the GPU's properties"));
    snprintf(facts.name, sizeof facts.name, "%.95s", properties.name);
    facts.compute_major = properties.major;
    facts.compute_minor = properties.minor;
    facts.processors = properties.multiProcessorCount;
    facts.memory_bytes = properties.totalGlobalMem;
    (void)cudaDriverGetVersion(&facts.driver_version);
    (void)cudaRuntimeGetVersion(&facts.runtime_version);
    (void)cudaDeviceGetPCIBusId(facts.pci, (int)sizeof facts.pci, index);
    *out = facts;
    return TT_OK;
}

/* The functions of NVML that are used (nvml.h of the driver, API version 2). */
struct nvml {
    int (*init)(void);
    int (*by_pci)(const char *pci, void **device);
    int (*link_state)(void *device, unsigned link, unsigned *active);
    int (*p2p)(void *from, void *to, int capability, int *status);
    int (*energy)(void *device, unsigned long long *millijoules); /* from Volta on */
    int (*power)(void *device, unsigned *milliwatts);
    int (*clock)(void *device, int kind, unsigned *megahertz);
    int (*clock_max)(void *device, int kind, unsigned *megahertz);
    int (*temperature)(void *device, int sensor, unsigned *celsius);
};

enum { NVML_LINKS_MAX = 18, NVML_CAPABILITY_NVLINK = 2, NVML_CLOCK_SM = 1, NVML_TEMPERATURE_GPU = 0 };

static bool open_nvml(struct nvml *nvml)
{
    void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL); /* stays open */
    if (library == NULL) return false;
    *(void **)&nvml->init = dlsym(library, "nvmlInit_v2");
    *(void **)&nvml->by_pci = dlsym(library, "nvmlDeviceGetHandleByPciBusId_v2");
    *(void **)&nvml->link_state = dlsym(library, "nvmlDeviceGetNvLinkState");
    *(void **)&nvml->p2p = dlsym(library, "nvmlDeviceGetP2PStatus");
    *(void **)&nvml->energy = dlsym(library, "nvmlDeviceGetTotalEnergyConsumption");
    *(void **)&nvml->power = dlsym(library, "nvmlDeviceGetPowerUsage");
    *(void **)&nvml->clock = dlsym(library, "nvmlDeviceGetClockInfo");
    *(void **)&nvml->clock_max = dlsym(library, "nvmlDeviceGetMaxClockInfo");
    *(void **)&nvml->temperature = dlsym(library, "nvmlDeviceGetTemperature");
    return nvml->init != NULL && nvml->by_pci != NULL && nvml->link_state != NULL && nvml->p2p != NULL &&
           nvml->init() == 0;
}

static void *nvml_device(const struct nvml *nvml, int index)
{
    char pci[24];
    void *device = NULL;
    if (cudaDeviceGetPCIBusId(pci, (int)sizeof pci, index) != cudaSuccess) return NULL;
    return nvml->by_pci(pci, &device) == 0 ? device : NULL;
}

/* NVML counts its users, so opening it again for each row of a profile costs little. */
void tt_cuda_sensors(struct tt_device *device, struct tt_device_sensors *out)
{
    struct nvml nvml;
    unsigned long long millijoules;
    unsigned value;
    void *gpu = open_nvml(&nvml) ? nvml_device(&nvml, device->index) : NULL;
    if (gpu == NULL) return;
    if (nvml.energy != NULL && nvml.energy(gpu, &millijoules) == 0) out->joules = (double)millijoules * 1e-3;
    if (nvml.power != NULL && nvml.power(gpu, &value) == 0) out->watts = value * 1e-3;
    if (nvml.clock != NULL && nvml.clock(gpu, NVML_CLOCK_SM, &value) == 0) out->clock_mhz = value;
    if (nvml.clock_max != NULL && nvml.clock_max(gpu, NVML_CLOCK_SM, &value) == 0) out->clock_max_mhz = value;
    if (nvml.temperature != NULL && nvml.temperature(gpu, NVML_TEMPERATURE_GPU, &value) == 0)
        out->celsius = value;
}

void tt_cuda_link(int from, int to, char *text, size_t text_bytes)
{
    struct nvml nvml;
    int peer = 0, status = -1;
    (void)cudaDeviceCanAccessPeer(&peer, from, to);
    snprintf(text, text_bytes, "%s", peer ? "peer access" : "no peer access");
    if (!open_nvml(&nvml)) return;
    void *a = nvml_device(&nvml, from), *b = nvml_device(&nvml, to);
    if (a == NULL || b == NULL || nvml.p2p(a, b, NVML_CAPABILITY_NVLINK, &status) != 0 || status != 0) return;
    int active = 0;
    for (unsigned link = 0; link < NVML_LINKS_MAX; link++) {
        unsigned on = 0;
        if (nvml.link_state(a, link, &on) == 0 && on) active++;
    }
    if (active > 0) snprintf(text, text_bytes, "NV%d", active);
}

bool tt_cuda_enable_peer(int from, int to)
{
    int can = 0;
    if (cudaDeviceCanAccessPeer(&can, from, to) != cudaSuccess || !can) return false;
    cudaError_t error = cudaSetDevice(from);
    if (error == cudaSuccess) error = cudaDeviceEnablePeerAccess(to, 0);
    (void)cudaGetLastError();
    return error == cudaSuccess || error == cudaErrorPeerAccessAlreadyEnabled;
}
