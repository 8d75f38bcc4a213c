/* Attention through cuDNN, for packed sequences (ragged tensors) or sequences of one length (dense tensors):
 * bf16, causal, grouped queries, an optional window; Hopper and newer. Graphs are composed of plain operations,
 * because cuDNN's own attention operation supports no causal mask before 9.21.
 *
 * A plan for packed sequences takes about a second to make, so it is made for numbers of sequences and tokens
 * that are rounded up. Slack costs nothing: superfluous sequences are empty and follow the last real one (H200,
 * cuDNN 9.19: 32 x 16384 is as fast as the exact plan). Plans are stored as files in $XDG_CACHE_HOME/trimtab
 * (else ~/.cache/trimtab): the next process needs 20 ms instead of 0.3 .. 1 s.
 *
 * lse of this variant is [T, H], stored inside the caller's H x T floats: the strides of a plan are fixed and
 * cannot be the batch's T. */
#ifndef TT_BACKEND_CUDA_ATTENTION_CUDNN_H
#define TT_BACKEND_CUDA_ATTENTION_CUDNN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "backend/ops/attention.h"

/* cuDNN's largest head dimension with a backward pass. */
enum { TT_CUDNN_HEAD_DIM_MAX = 256 };

struct tt_cuda_cudnn; /* owns the library, a handle, and the plans of one device */

/* Fails with TT_ERR_UNSUPPORTED and the reason when cuDNN cannot be used. */
TT_MUST_USE tt_status tt_cuda_cudnn_create(struct tt_device *device, struct tt_cuda_cudnn **out);
void tt_cuda_cudnn_destroy(struct tt_cuda_cudnn *cudnn); /* takes NULL */

/* Whether a batch gets a plan of its own: its sequences have one length, of 512 tokens or more. H200, cuDNN
 * 9.19, 2026-11-21, ms of such a plan / of a plan for packed sequences, forward and backward with the copying of
 * gradients, sustained: 4 x 4096, 32:8 heads of 128 0.99/1.09, 3.23/3.41; 16 x 1024 0.32/0.36, 1.20/1.36; 1 x
 * 2048, 64:8 heads 0.15/0.17, 0.50/0.56. Making it takes about 80 ms when a plan for the same heads has been
 * made before, else 1 s; reading it takes 2 ms. Only the first 16 shapes of batches get such a plan. The answer
 * for a batch never changes. */
bool tt_cuda_cudnn_is_dense(struct tt_cuda_cudnn *cudnn, const struct tt_attention_forward_args *args);

/* `dense`, here and below: true selects the plan for exactly this batch (tt_cuda_cudnn_is_dense must be true),
 * false the plan for packed sequences. Both write and read lse in the same order. */

/* Whether cuDNN supports these arguments; if not, `why` gets the reason. The first call for a shape builds its
 * plan. For the same arguments the answer never changes from yes to no. */
bool tt_cuda_cudnn_takes_forward(struct tt_cuda_cudnn *cudnn, const struct tt_attention_forward_args *args,
                                 bool dense, char *why, size_t why_bytes);
bool tt_cuda_cudnn_takes_backward(struct tt_cuda_cudnn *cudnn, const struct tt_attention_backward_args *args,
                                  bool dense, char *why, size_t why_bytes);

/* Plans have room for at least `tokens` from now on; 0: as many as a batch needs. The self-check sets it, so that its
 * small batch runs the plan of the real one. */
void tt_cuda_cudnn_least_tokens(struct tt_cuda_cudnn *cudnn, int64_t tokens);
const char *tt_cuda_cudnn_name(const struct tt_cuda_cudnn *cudnn); /* "cuDNN 9.19.0" */

/* Queue a pass whose arguments tt_cuda_cudnn_takes_* accepted. */
TT_MUST_USE tt_status tt_cuda_cudnn_forward(struct tt_cuda_cudnn *cudnn, struct tt_stream *stream,
                                            const struct tt_attention_forward_args *args, bool dense);
TT_MUST_USE tt_status tt_cuda_cudnn_backward(struct tt_cuda_cudnn *cudnn, struct tt_stream *stream,
                                             const struct tt_attention_backward_args *args, bool dense);

/* The window of the graph. A window no shorter than the longest sequence hides nothing and would make the plan
 * slower, so it becomes 0. */
static inline int64_t tt_cudnn_window(const struct tt_attention_forward_args *args)
{
    return args->window < args->max_length_q ? args->window : 0;
}

/* Offsets in bytes in the scratch of a backward pass. cuDNN writes dQ, and the fp32 sums of dQ, with Q's row
 * stride, so a dQ with another row stride is computed here and copied. The gradients of each query head's keys
 * and values have H heads before they are summed over groups. Their row stride is dK's times H / K, so a dK that
 * is a slice of a wider matrix is made contiguous here and copied. */
struct tt_cudnn_scratch {
    size_t sums, delta, full_k, full_v, staged_q, staged_k, staged_v, total;
    bool has_full, stages_q, stages_kv;
};

static inline size_t tt_cudnn_take(size_t *total, int64_t count, size_t element_bytes)
{
    size_t at = *total;
    *total += ((size_t)count * element_bytes + 255) / 256 * 256;
    return at;
}

static inline struct tt_cudnn_scratch tt_cudnn_scratch_layout(int64_t tokens, int64_t heads, int64_t kv_heads,
                                                              int64_t head_dim, int64_t q_row_stride,
                                                              int64_t dq_row_stride, int64_t dk_row_stride)
{
    struct tt_cudnn_scratch s = {.has_full = heads != kv_heads, .stages_q = q_row_stride != dq_row_stride};
    s.stages_kv = s.has_full && dk_row_stride != kv_heads * head_dim;
    s.sums = tt_cudnn_take(&s.total, tokens * q_row_stride, 4);
    s.delta = tt_cudnn_take(&s.total, tokens * heads, 4);
    if (s.has_full) s.full_k = tt_cudnn_take(&s.total, tokens * heads * head_dim, 2);
    if (s.has_full) s.full_v = tt_cudnn_take(&s.total, tokens * heads * head_dim, 2);
    if (s.stages_q) s.staged_q = tt_cudnn_take(&s.total, tokens * q_row_stride, 2);
    if (s.stages_kv) s.staged_k = tt_cudnn_take(&s.total, tokens * kv_heads * head_dim, 2);
    if (s.stages_kv) s.staged_v = tt_cudnn_take(&s.total, tokens * kv_heads * head_dim, 2);
    return s;
}

/* The same for sequences of one length: cuDNN writes all gradients to their destinations, and the scratch has
 * row strides of its own. It is never larger than the scratch above. */
static inline struct tt_cudnn_scratch tt_cudnn_dense_scratch_layout(int64_t tokens, int64_t heads,
                                                                    int64_t kv_heads, int64_t head_dim)
{
    int64_t q = heads * head_dim, k = kv_heads * head_dim;
    return tt_cudnn_scratch_layout(tokens, heads, kv_heads, head_dim, q, q, k);
}

#endif
