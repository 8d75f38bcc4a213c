/* Products in E4M3 of up to 64 rows with the transpose of a matrix, with a scale a row of both (ops/gemm_scaled.h),
 * as in generation, for Hopper. They are bound by reading the matrix, for which tiles of a large product leave most
 * processors idle: 5,120 columns are 40 of these.
 *
 * A CTA has a tile of 64 x 128 and a part of k; the CTAs of a cluster have the parts of one tile, whose sums they add
 * in the order of the parts, each for some of the rows. So the same bits come out every time.
 *
 * H200, 64 rows, cuBLASLt and this kernel in one call, 2026-11-30, tokens/s of decoding: 8B 10,850 and 12,108,
 * Qwen3-30B-A3B 4,983 and 5,173. The same kernel in bf16 was slower than cuBLASLt: 8B 10,370 instead of 11,670. */
#ifndef TT_BACKEND_CUDA_GEMM_FP8_FEW_H
#define TT_BACKEND_CUDA_GEMM_FP8_FEW_H

#include <cuda.h>

#include "backend/cuda/cuda.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { TT_FP8_FEW_ROWS = 64, TT_FP8_FEW_COLUMNS = 128, TT_FP8_FEW_DEPTH = 128, TT_FP8_FEW_PARTS_MAX = 8 };

/* The kernel's parameter. Boxes of the maps are 128 codes by 64 rows of a and by 128 rows of b. */
struct tt_fp8_few_params {
    CUtensorMap a, b;
    int m, n, steps; /* steps: along k */
    int parts;       /* of k, a power of two */
    const float *a_scale, *b_scale;
    const void *addend; /* NULL: none; of c's type and rows */
    void *c;
    int64_t c_row;
    bool c_is_bf16; /* or fp32 */
};

bool tt_cuda_fp8_few_is_built(void);
cudaError_t tt_cuda_fp8_few_launch(const struct tt_fp8_few_params *params, cudaStream_t stream);

/* fp8_few.c: TT_ERR_UNSUPPORTED, without a message, for an unsupported case. */
tt_status tt_cuda_gemm_scaled_few(struct tt_stream *stream, const struct tt_gemm_scaled_args *args);

#ifdef __cplusplus
}
#endif

#endif
