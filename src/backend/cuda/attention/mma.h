/* This library's own attention kernels, the alternative to cuDNN's. bf16 with head dimensions that are multiples
 * of 8, up to TT_MMA_HEAD_DIM_MAX, uses tensor cores through mma.sync (compute capability 8.0 and up); wider heads have
 * kernels of their own on Hopper (wide.h). Everything else that the op allows uses plain fp32 arithmetic (any.cu).
 *
 * Guarantees that cuDNN does not give: repeats are equal bit for bit; the backward pass needs one float per row
 * and head as scratch; every head dimension has a backward pass on every chip. lse is [H, T], natural
 * logarithm. */
#ifndef TT_BACKEND_CUDA_ATTENTION_MMA_H
#define TT_BACKEND_CUDA_ATTENTION_MMA_H

#ifdef __cplusplus
extern "C" {
#endif

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "backend/ops/attention.h"

enum { TT_MMA_HEAD_DIM_MAX = 256 };

/* Whether the kernels below support these (checked) arguments. If not, `why` gets the reason. */
bool tt_cuda_mma_attention_serves(const struct tt_attention_forward_args *args, bool backward, char *why,
                                  size_t why_bytes);
tt_status tt_cuda_mma_attention_forward(struct tt_stream *stream,
                                        const struct tt_attention_forward_args *args);
tt_status tt_cuda_mma_attention_backward(struct tt_stream *stream,
                                         const struct tt_attention_backward_args *args);

/* Bytes of args->scratch, which holds delta[h, t] = sum over e of do o in fp32. */
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
