/* The register tile of products with AVX-512. */
#define KERNEL tt_gemm_kernel_avx512
#define LANES 16
#define MR 14
#define NV 2
#define PAIRS 0
#include "backend/cpu/gemm/kernel.inc"
