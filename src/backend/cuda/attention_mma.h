/* This library's own attention kernels, beside cuDNN's: tensor cores through mma.sync for bf16 (compute
 * capability 8.0 and up; head dimensions that are multiples of 8), and plain fp32 arithmetic for all else
 * that the op allows (attention_any.cu).
 *
 * What they promise that cuDNN does not: repeats are equal bit for bit, the backward pass needs no memory
 * beside one float a row and head, head dimensions up to 256 go backward on every chip. lse is [H, T],
 * natural logarithm. */
#ifndef TT_BACKEND_CUDA_ATTENTION_MMA_H
#define TT_BACKEND_CUDA_ATTENTION_MMA_H

#ifdef __cplusplus
extern "C" {
#endif

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "backend/ops/attention.h"

/* Whether the kernels below take these (checked) arguments; otherwise `why` gets the reason. */
bool tt_cuda_mma_attention_serves(const struct tt_attention_forward_args *args, bool backward, char *why,
                                  size_t why_bytes);
tt_status tt_cuda_mma_attention_forward(struct tt_stream *stream,
                                        const struct tt_attention_forward_args *args);
tt_status tt_cuda_mma_attention_backward(struct tt_stream *stream,
                                         const struct tt_attention_backward_args *args);

/* Bytes of args->scratch: delta[h, t] = sum over e of do o, fp32. */
static inline size_t tt_mma_attention_backward_scratch(int64_t tokens, int64_t heads, int64_t kv_heads,
                                                       int64_t head_dim)
{
    (void)kv_heads;
    (void)head_dim;
    size_t bytes = (size_t)tokens * (size_t)heads * sizeof(float);
    return (bytes + 255) / 256 * 256;
}

#ifdef __cplusplus
}
#endif

#endif
