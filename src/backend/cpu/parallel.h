/* The services of the device for cpu ops: number of threads, instruction set, private scratch.
 *
 * A rank is one thread with its own OpenMP team, and several ranks run at the same time in one process. So every
 * parallel region names its team size, and nothing sets global OpenMP state:
 *
 *     int threads = tt_cpu_threads(stream, rows * cols);
 *     #pragma omp parallel for num_threads(threads) schedule(static)
 *     for (int64_t row = 0; row < rows; row++) row_kernel(...);
 *
 * Results must not depend on the number of threads: split over independent outputs, or sum in groups whose borders
 * depend on the shape alone and add the groups in order. */
#ifndef TT_BACKEND_CPU_PARALLEL_H
#define TT_BACKEND_CPU_PARALLEL_H

#include "backend/cpu/cpu_ops.h"

/* Ordered: each includes those before it. */
enum tt_cpu_isa {
    TT_CPU_PORTABLE,    /* the compiler's baseline */
    TT_CPU_AVX2,        /* AVX2, FMA, F16C */
    TT_CPU_AVX512,      /* AVX-512 F, BW, DQ, VL */
    TT_CPU_AVX512_BF16, /* AVX-512 BF16, for matrix products */
    TT_CPU_AMX,         /* AMX tiles of bf16, for matrix products */
};

struct tt_cpu; /* cpu/cpu_device.h */

enum {
    TT_CPU_SCRATCH_BYTES = 1 << 20, /* per thread */
    /* elements per thread below which waking a thread costs more than it saves */
    TT_CPU_GRAIN = 16384,
};

/* The number of threads for `work` elements that each cost about one load and a few operations: 1 .. the device's. */
static inline int tt_cpu_threads(const struct tt_stream *stream, int64_t work)
{
    int64_t useful = work / TT_CPU_GRAIN;
    if (useful <= 1) return 1;
    return useful < stream->device->threads ? (int)useful : stream->device->threads;
}

enum tt_cpu_isa tt_cpu_isa(const struct tt_stream *stream);

/* Scratch of TT_CPU_SCRATCH_BYTES, 64-byte aligned, private to team member `thread` (omp_get_thread_num()) until
 * the op returns; not initialised. The device allocates and counts it when it opens. */
void *tt_cpu_scratch(const struct tt_stream *stream, int thread);

#endif
