/* Attention through cuDNN: packed sequences (ragged tensors), or sequences of one length (dense tensors);
 * bf16, causal, grouped queries, an optional window; Hopper and newer. Graphs are composed of plain
 * operations, because cuDNN's own attention operation knows no causal mask before 9.21.
 *
 * A plan for packed sequences is made for numbers of sequences and tokens rounded up, since it costs a second
 * and slack costs nothing: sequences that do not exist are empty and lie behind the last (H200, cuDNN 9.19:
 * 32 x 16384 is as fast as the exact plan). Plans are kept as files in $XDG_CACHE_HOME/trimtab (else
 * ~/.cache/trimtab): 20 ms instead of 0.3 .. 1 s in the next process.
 *
 * lse in this variant is [T, H] inside the H x T floats that it is given: the stride of a plan cannot be the
 * batch's T. */
#ifndef TT_BACKEND_CUDA_CUDNN_ATTENTION_H
#define TT_BACKEND_CUDA_CUDNN_ATTENTION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "backend/ops/attention.h"

struct tt_cuda_cudnn; /* the library, a handle, the plans of one device */

/* TT_ERR_UNSUPPORTED says why cuDNN cannot be used here. */
TT_MUST_USE tt_status tt_cuda_cudnn_create(struct tt_device *device, struct tt_cuda_cudnn **out);
void tt_cuda_cudnn_destroy(struct tt_cuda_cudnn *cudnn); /* takes NULL */

/* Whether a batch gets a plan of its own: sequences of one length, 512 tokens or more. H200, cuDNN 9.19,
 * 2026-11-21, ms of such a plan / of one for packed sequences, forward and backward with the copying of
 * gradients, sustained: 4 x 4096, 32:8 heads of 128 0.99/1.09, 3.23/3.41; 16 x 1024 0.32/0.36, 1.20/1.36;
 * 1 x 2048, 64:8 heads 0.15/0.17, 0.50/0.56. It takes some 80 ms to make when one of the same heads has been
 * made before, else 1 s, and 2 ms to read. The first 16 batches have one; what is said of a batch never
 * changes. */
bool tt_cuda_cudnn_is_dense(struct tt_cuda_cudnn *cudnn, const struct tt_attention_forward_args *args);

/* `dense`, here and below: with a plan for just this batch, of which the above is true; else with one for
 * packed sequences. Both leave and read lse in the same order. */

/* Whether cuDNN takes these arguments; `why` gets the reason when not. At first sight of a shape this builds
 * its plan. For the same arguments the answer never changes from yes to no. */
bool tt_cuda_cudnn_takes_forward(struct tt_cuda_cudnn *cudnn, const struct tt_attention_forward_args *args,
                                 bool dense, char *why, size_t why_bytes);
bool tt_cuda_cudnn_takes_backward(struct tt_cuda_cudnn *cudnn, const struct tt_attention_backward_args *args,
                                  bool dense, char *why, size_t why_bytes);

/* From now on plans have room for at least `tokens`; 0: what a batch needs. So the self-check, whose batch is
 * small, runs the plan of the real one. */
void tt_cuda_cudnn_least_tokens(struct tt_cuda_cudnn *cudnn, int64_t tokens);
const char *tt_cuda_cudnn_name(const struct tt_cuda_cudnn *cudnn); /* "cuDNN 9.19.0" */

/* For arguments that are taken. */
TT_MUST_USE tt_status tt_cuda_cudnn_forward(struct tt_cuda_cudnn *cudnn, struct tt_stream *stream,
                                            const struct tt_attention_forward_args *args, bool dense);
TT_MUST_USE tt_status tt_cuda_cudnn_backward(struct tt_cuda_cudnn *cudnn, struct tt_stream *stream,
                                             const struct tt_attention_backward_args *args, bool dense);

/* The window that a graph needs: one no shorter than the longest sequence hides nothing, and makes for a
 * slower plan. */
static inline int64_t tt_cudnn_window(const struct tt_attention_forward_args *args)
{
    return args->window < args->max_length_q ? args->window : 0;
}

/* Where things lie in the backward pass's scratch. cuDNN writes dQ, and its fp32 sums, with Q's row stride,
 * so a dQ of another one is made here and copied. Gradients of each query head's keys and values have H heads
 * before they are summed over groups, and the row stride of dK times H / K, so a dK that is a slice of a
 * wider matrix is made contiguous here and copied. */
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

/* The same for sequences of one length: cuDNN writes all gradients where they are wanted, and scratch has its
 * own row strides. So it is never more than the above. */
static inline struct tt_cudnn_scratch tt_cudnn_dense_scratch_layout(int64_t tokens, int64_t heads,
                                                                    int64_t kv_heads, int64_t head_dim)
{
    int64_t q = heads * head_dim, k = kv_heads * head_dim;
    return tt_cudnn_scratch_layout(tokens, heads, kv_heads, head_dim, q, q, k);
}

#endif
