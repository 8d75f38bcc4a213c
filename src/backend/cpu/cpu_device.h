/* The memory that the cpu device owns besides buffers: scratch, and the panels of the matrix product. Both are
 * allocated when the device opens and counted as device scratch. */
#ifndef TT_BACKEND_CPU_CPU_DEVICE_H
#define TT_BACKEND_CPU_CPU_DEVICE_H

#include "backend/cpu/parallel.h"

struct tt_gemm_state; /* gemm/variants.h */

struct tt_cpu {
    enum tt_cpu_isa isa;
    char *scratch; /* threads * TT_CPU_SCRATCH_BYTES */
    struct tt_gemm_state *gemm;
};

static inline struct tt_cpu *tt_cpu_of(const struct tt_device *device)
{
    return device->impl;
}

/* The best instruction set that the processor and the operating system support, or the lower one that `tuning` asks
 * for. Asking for more is TT_ERR_UNSUPPORTED. */
TT_MUST_USE tt_status tt_cpu_detect_isa(const struct tt_device_tuning *tuning, enum tt_cpu_isa *out);
const char *tt_cpu_isa_name(enum tt_cpu_isa isa);

enum { TT_CPU_HUGE_PAGE = 2 << 20 };
/* Asks the kernel for large pages in the part of the block that can have them. */
void tt_cpu_advise_huge(void *block, size_t bytes);

#endif
