/* The product that supports everything: any mix of types, any alignment, K = 0. It multiplies the operands
 * exactly as they are stored and adds in fp32 in the order of k. It serves the cases that cuBLASLt declines, at
 * a tenth of its speed or less. */
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
