/* A libnvidia-ml.so.1 for tests on machines without GPUs: four healthy GPUs, of which that at PCI bus 01 has the fault
 * that FAKE_NVML names. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FAULTY = 1, GPUS = 4, NOT_FOUND = 6, NOT_SUPPORTED = 3 };
static int gpus[GPUS];

static int has(const void *device, const char *fault)
{
    const char *wanted = getenv("FAKE_NVML");
    return device == &gpus[FAULTY] && wanted != NULL && strcmp(wanted, fault) == 0;
}

int nvmlInit_v2(void)
{
    const char *wanted = getenv("FAKE_NVML");
    return wanted != NULL && strcmp(wanted, "none") == 0 ? 9 : 0;
}
int nvmlDeviceGetHandleByPciBusId_v2(const char *pci, void **device)
{
    unsigned bus;
    if (sscanf(pci, "0000:%2x:00.0", &bus) != 1 || bus >= GPUS) return NOT_FOUND;
    *device = &gpus[bus];
    return 0;
}
int nvmlSystemGetDriverVersion(char *text, unsigned bytes)
{
    snprintf(text, bytes, "580.95.05");
    return 0;
}
int nvmlDeviceGetEccMode(void *device, unsigned *current, unsigned *pending)
{
    *current = *pending = !has(device, "ecc-off");
    return 0;
}
int nvmlDeviceGetTotalEccErrors(void *device, int kind, int since, unsigned long long *count)
{
    if (since != 0) return NOT_SUPPORTED;
    *count = kind == 0 ? 17 : has(device, "ecc") ? 3 : 0;
    return 0;
}
int nvmlDeviceGetRemappedRows(void *device, unsigned *corrected, unsigned *uncorrected, unsigned *pending,
                              unsigned *failed)
{
    if (has(device, "page-pending")) return NOT_SUPPORTED; /* before the A100 */
    *corrected = *uncorrected = 0;
    *pending = has(device, "row-pending");
    *failed = has(device, "row-failed");
    return 0;
}
int nvmlDeviceGetRetiredPagesPendingStatus(void *device, unsigned *pending)
{
    *pending = has(device, "page-pending");
    return 0;
}
int nvmlDeviceGetCurrentClocksThrottleReasons(void *device, unsigned long long *reasons)
{
    *reasons = has(device, "hot")     ? 0x40 | 0x8
               : has(device, "warm")  ? 0x20
               : has(device, "brake") ? 0x80
               : has(device, "slow")  ? 0x8
                                      : 0x4 | 0x1; /* the power cap and idleness are no faults */
    return 0;
}
int nvmlDeviceGetCurrPcieLinkGeneration(void *device, unsigned *value)
{
    *value = has(device, "generation") ? 3 : 5;
    return 0;
}
int nvmlDeviceGetMaxPcieLinkGeneration(void *device, unsigned *value)
{
    (void)device;
    *value = 5;
    return 0;
}
int nvmlDeviceGetCurrPcieLinkWidth(void *device, unsigned *value)
{
    *value = has(device, "width") ? 8 : 16;
    return 0;
}
int nvmlDeviceGetMaxPcieLinkWidth(void *device, unsigned *value)
{
    (void)device;
    *value = 16;
    return 0;
}
int nvmlDeviceGetNvLinkState(void *device, unsigned link, unsigned *active)
{
    *active = !(link == 2 && has(device, "nvlink"));
    return 0;
}
int nvmlDeviceGetNvLinkErrorCounter(void *device, unsigned link, int counter, unsigned long long *count)
{
    *count = link == 5 && counter == 0 && has(device, "nvlink-errors") ? 12 : 0;
    return 0;
}
int nvmlDeviceGetMigMode(void *device, unsigned *current, unsigned *pending)
{
    (void)device;
    *current = *pending = 0;
    return 0;
}
int nvmlDeviceGetPersistenceMode(void *device, unsigned *mode)
{
    *mode = !has(device, "persistence-off");
    return 0;
}
int nvmlDeviceGetMemoryInfo(void *device, unsigned long long memory[3])
{
    memory[0] = 140ull << 30;
    memory[2] = has(device, "used") ? 9ull << 30 : 600ull << 20;
    if (has(device, "full")) memory[2] = memory[0] - (780ull << 20);
    memory[1] = memory[0] - memory[2];
    return 0;
}
