/* Scratch of the cpu's gemm_scaled; plans ask for it, too. */
#ifndef TT_BACKEND_CPU_GEMM_SCALED_H
#define TT_BACKEND_CPU_GEMM_SCALED_H

#include <stddef.h>
#include <stdint.h>

#include "base/integer.h"

enum { TT_CPU_SCALED_ROWS = 256 }; /* of a and y at a time */

/* Offsets in bytes: b and some rows of a in bf16, which has every code exactly, and the sums of these rows in fp32. */
struct tt_cpu_scaled_layout {
    size_t b, a, sums, bytes;
};

static inline struct tt_cpu_scaled_layout tt_cpu_gemm_scaled_layout(int64_t m, int64_t n, int64_t k)
{
    size_t rows = (size_t)(m < TT_CPU_SCALED_ROWS ? m : TT_CPU_SCALED_ROWS);
    struct tt_cpu_scaled_layout layout = {.b = 0};
    layout.a = tt_align_up((size_t)(n * k) * 2, 64);
    layout.sums = tt_align_up(layout.a + rows * (size_t)k * 2, 64);
    layout.bytes = tt_align_up(layout.sums + rows * (size_t)n * sizeof(float), 64);
    return layout;
}

#endif
