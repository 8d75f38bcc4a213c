/* Products of few rows with the transpose of a matrix in bf16, as in generation: y = x W^T, alone, with the rotation of
 * heads, or with SwiGLU. They are bound by reading W. The sum of an element depends on its own row alone, not on the
 * number of rows. Each call returns TT_ERR_UNSUPPORTED, without a message, for an unsupported case. */
#ifndef TT_BACKEND_CUDA_GEMM_FEW_H
#define TT_BACKEND_CUDA_GEMM_FEW_H

#include "backend/cuda/cuda.h"

#ifdef __cplusplus
extern "C" {
#endif

tt_status tt_cuda_gemm_few(struct tt_stream *stream, const struct tt_gemm_args *args);
tt_status tt_cuda_gemm_few_lora(struct tt_stream *stream, const struct tt_gemm_lora_args *args);
tt_status tt_cuda_gemm_few_swiglu(struct tt_stream *stream, const struct tt_gemm_swiglu_args *args);

#ifdef __cplusplus
}
#endif

#endif
