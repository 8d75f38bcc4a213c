/* The health of an NVIDIA GPU by NVML, the library of nvidia-smi, which comes with the driver and is opened at run
 * time. Reading it creates nothing on the GPU. */
#ifndef TT_BACKEND_GPU_HEALTH_H
#define TT_BACKEND_GPU_HEALTH_H

#include <stdbool.h>
#include <stdint.h>

/* Reasons for which a GPU lowers its clocks, as NVML numbers them; idle and fixed clocks are no faults. */
enum tt_gpu_slow {
    TT_GPU_SLOW_POWER_CAP = 0x4,       /* usual under full load */
    TT_GPU_SLOW_HARDWARE = 0x8,        /* heat or power, seen by the hardware */
    TT_GPU_SLOW_HEAT = 0x20,           /* by the driver */
    TT_GPU_SLOW_HARDWARE_HEAT = 0x40,  /* by the hardware */
    TT_GPU_SLOW_HARDWARE_POWER = 0x80, /* the power supply asks for it */
};

/* Plain numbers, which ranks send each other. -1: NVML does not tell. */
struct tt_gpu_health {
    int32_t known; /* NVML answers for this GPU; 0: all else is without meaning */
    char driver[32];
    int32_t ecc;                    /* 1: on */
    int64_t uncorrected, corrected; /* errors of the memory since the driver was loaded */
    int32_t remap_pending;          /* rows or pages of the memory are replaced at the next reset */
    int32_t remap_failed;           /* there was no row left to replace a broken one */
    int64_t slow_reasons;           /* bits of enum tt_gpu_slow */
    int32_t pcie_generation, pcie_generation_max, pcie_width, pcie_width_max;
    int32_t nvlinks, nvlinks_down; /* of those that the GPU has */
    int64_t nvlink_errors;         /* repeated and recovered transfers of all links */
    int32_t mig;                   /* 1: on */
    /* 0: the driver forgets the GPU when its last program ends, and the next one starts late */
    int32_t persistence;
    int64_t used_bytes, total_bytes; /* of its memory, by all processes */
};

/* Health of GPU `index` of this process. The numbers are those of now: clocks and PCIe's generation mean something
 * under load only. False without NVML, a plugin or such a GPU: out->known is 0. */
bool tt_gpu_health_read(int index, struct tt_gpu_health *out);

#endif
