/* The register tile of products with AVX2. */
#define KERNEL tt_gemm_kernel_avx2
#define LANES 8
#define MR 6
#define NV 2
#define PAIRS 0
#include "backend/cpu/gemm/kernel.inc"
