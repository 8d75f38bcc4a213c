/* The product that takes everything: any mix of types, any alignment, K = 0. Exact products of the operands
 * as they are stored, added in fp32 in the order of k. For what cuBLASLt declines; a tenth of its speed or
 * less. */
#ifndef TT_BACKEND_CUDA_GEMM_PLAIN_H
#define TT_BACKEND_CUDA_GEMM_PLAIN_H

#include "backend/cuda/cuda.h"

#ifdef __cplusplus
extern "C" {
#endif

tt_status tt_cuda_gemm_plain(struct tt_stream *stream, const struct tt_gemm_args *args);

#ifdef __cplusplus
}
#endif

#endif
