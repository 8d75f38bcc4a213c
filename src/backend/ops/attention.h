/* Causal attention over concatenated sequences of variable length, without padding; grouped queries (H a multiple of K:
 * query head h reads key/value head h / (H/K)); without an N x N matrix: Dao et al., arXiv 2205.14135 and 2307.08691.
 *     p = softmax over j <= i of scale * q[i] . k[j];   o[i] = sum_j p[i,j] v[j];   lse[h,i] = log sum_j exp(..)
 * Sequence b owns query rows cu_q[b] .. cu_q[b+1] and key rows cu_k[b] .. cu_k[b+1]. When there are more keys than
 * queries (decoding with a cache), the last query is aligned with the last key (bottom-right causal). window > 0:
 * a query attends only to the last `window` keys up to its own (Mistral: j > i - window). soft_cap > 0: scores are
 * soft_cap tanh(score / soft_cap) (Gemma 2). Sinks s (gpt-oss): each query head h sees one more key, of score s[h] and
 * value 0: p = exp(score - lse) with lse[h,i] = log(exp(s[h]) + sum_j exp(..)); scale and cap leave it alone.
 * Tensors are rank 3 with contiguous last dimension and any token and head stride (fused q,k,v). Sums and softmax
 * are fp32. E is at most TT_ATTENTION_HEAD_DIM_MAX. A sequence of length 0 is allowed. */
#ifndef TT_BACKEND_OPS_ATTENTION_H
#define TT_BACKEND_OPS_ATTENTION_H

#include "backend/device.h"
#include "tensor/tensor.h"

enum { TT_ATTENTION_HEAD_DIM_MAX = 512 };

struct tt_attention_forward_args {
    tt_tensor q_THE;        /* f32 | bf16 */
    tt_tensor k_TKE, v_TKE; /* q's type; their own number of rows */
    const int32_t *cu_q;    /* HOST memory, B + 1 entries, cu_q[0] = 0 */
    const int32_t *cu_k;    /* HOST memory; may be the same pointer */
    /* i32 [B + 1]: the same numbers in device memory, for devices that are not the host */
    tt_tensor device_cu_q;
    tt_tensor device_cu_k;
    int64_t sequence_count; /* B */
    int64_t max_length_q, max_length_k;
    double scale;
    int64_t window;    /* 0: none */
    float soft_cap;    /* 0: none */
    tt_tensor sinks_H; /* f32, contiguous; empty: none */
    tt_tensor o_THE;   /* q's type */
    tt_tensor lse_HT;  /* f32 [H, T]; empty when no backward follows */
};
TT_MUST_USE tt_status tt_attention_forward(struct tt_stream *stream,
                                           const struct tt_attention_forward_args *args);

struct tt_attention_backward_args {
    struct tt_attention_forward_args forward; /* the same views; o and lse are the results of forward */
    tt_tensor do_THE;
    tt_tensor dq_THE, dk_TKE, dv_TKE; /* overwritten; the inputs' type; may not alias the inputs */
    tt_tensor dsinks_H; /* f32, contiguous, accumulated into (tokens in order); empty: frozen, or none */
    /* u8 [tt_attention_backward_scratch], 256-byte aligned; empty when that is 0 */
    tt_tensor scratch;
};
/* Bytes of device memory for the scratch of this backward pass, from the shapes and strides of q, k, dq and dk alone;
 * the same for a device and its plan. 0 where the device is the host. Row strides matter, because the fp32 sums of dQ
 * have Q's layout (cuDNN's rule), and gradients in another layout than cuDNN's are computed in the scratch first. */
size_t tt_attention_backward_scratch(const struct tt_device *device,
                                     const struct tt_attention_backward_args *args);
TT_MUST_USE tt_status tt_attention_backward(struct tt_stream *stream,
                                            const struct tt_attention_backward_args *args);

/* Attention of single queries to sequences that a cache holds, for generation: query t is the last token of its
 * sequence, whose keys and values are the rows first[t] .. first[t] + count[t] - 1 of the cache. As
 * tt_attention_forward otherwise. The result of a row depends on the row and its keys alone, not on the other rows:
 * sums are made of parts whose borders follow from the number of keys. Where count is 0, o is 0. */
struct tt_attention_decode_args {
    tt_tensor q_THE;            /* f32 | bf16 */
    tt_tensor k_RKE, v_RKE;     /* q's type; all rows of the cache */
    tt_tensor first_T, count_T; /* i32, device memory */
    int64_t max_count;          /* no count is larger */
    double scale;
    int64_t window;    /* 0: none; else the last `window` keys */
    float soft_cap;    /* 0: none */
    tt_tensor sinks_H; /* f32, contiguous; empty: none */
    tt_tensor o_THE;
    tt_tensor scratch; /* u8 [tt_attention_decode_scratch], 256-byte aligned; empty when that is 0 */
};
size_t tt_attention_decode_scratch(const struct tt_device *device,
                                   const struct tt_attention_decode_args *args);
TT_MUST_USE tt_status tt_attention_decode(struct tt_stream *stream,
                                          const struct tt_attention_decode_args *args);

/* Where devices split: parts of this many keys, and longer ones where there would be too many parts. */
enum { TT_DECODE_PART = 128, TT_DECODE_PARTS_MAX = 32 };
static inline int64_t tt_decode_parts(int64_t max_count)
{
    const int64_t most = TT_DECODE_PARTS_MAX;
    int64_t parts = (max_count + TT_DECODE_PART - 1) / TT_DECODE_PART;
    return parts < most ? parts : most;
}

/* Rotary positions (Su et al., arXiv 2104.09864) in the half-split layout of Hugging Face's Llama: with E2 = E/2,
 *     y[e] = x[e] cos[p,e] - x[e+E2] sin[p,e];   y[e+E2] = x[e+E2] cos[p,e] + x[e] sin[p,e],  e < E2
 * in place over all heads; `inverse` rotates back (the gradient). With `pairs` the columns 2e and 2e + 1 rotate
 * together instead of e and e + E2 (the paper's layout; GLM-4, ERNIE 4.5, Cohere). */
struct tt_rope_args {
    tt_tensor x_THE;          /* f32 | bf16, in place */
    tt_tensor positions_T;    /* i32: the row of the tables that each token reads, in any order */
    tt_tensor cos_PE, sin_PE; /* f32 [rows, E/2] */
    bool inverse, pairs;
    /* Empty, or of rows [T, C] whose first columns are x, with heads one beside the other: their rows in FP8 after the
     * rotation, as by tt_quantize_rows (gemm_scaled.h). */
    tt_tensor rows_TC, codes_TC, scale_T; /* x's type; F8_E4M3 contiguous; f32 */
};
TT_MUST_USE tt_status tt_rope(struct tt_stream *stream, const struct tt_rope_args *args);

#endif
