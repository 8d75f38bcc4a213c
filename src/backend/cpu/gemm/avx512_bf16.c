/* The register tile of products with the bf16 instructions of AVX-512. */
#define KERNEL tt_gemm_kernel_avx512_bf16
#define LANES 16
#define MR 14
#define NV 2
#define PAIRS 1
#include "backend/cpu/gemm/kernel.inc"
