/* The matrix product of the cpu device: a best-first list of variants, each able to decline with a reason. */
#ifndef TT_BACKEND_CPU_GEMM_H
#define TT_BACKEND_CPU_GEMM_H

#include "backend/cpu/cpu_device.h"

TT_MUST_USE tt_status tt_gemm_state_create(struct tt_device *device, struct tt_gemm_state **out);
void tt_gemm_state_destroy(struct tt_gemm_state *state); /* takes NULL */
/* "own kernels" or "oneDNN 2.6.3 (AMX)"; returns `text`. */
const char *tt_gemm_state_name(const struct tt_gemm_state *state, char *text, size_t text_bytes);

#endif
