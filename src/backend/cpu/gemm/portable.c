/* The register tile of products on any processor. */
#define KERNEL tt_gemm_kernel_portable
#define LANES 4
#define MR 4
#define NV 2
#define PAIRS 0
#include "backend/cpu/gemm/kernel.inc"
