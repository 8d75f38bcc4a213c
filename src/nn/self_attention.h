/* The attention half of a decoder layer, with its norm:
 *     out = o_proj(attention(rope(q), rope(k), v)),  q, k, v = linears of norm(x)
 * Some families norm q and k per head first; some layers rotate only the first columns of a head, or none.
 *
 * Kept for backward, in elements per token (c: compute type, f: fp32): q, k, v (H + 2K) E c, o H E c, lse H f, rstd 1
 * f, LoRA h of q, k, v and o. Without q/k norms q and k are kept after rope. With them the outputs of the linears are
 * kept, plus (H + K) f of rstd, and normed and rotated again in backward: one copy either way.
 *
 * A norm after o_proj keeps its input and rstd too: D c, 1 f.
 *
 * At TT_KEEP_ALL also the normed input D c where LoRA or a weight of q, k, v trains, and with q/k norms the normed and
 * rotated q and k, (H + K) E c. */
#ifndef TT_NN_SELF_ATTENTION_H
#define TT_NN_SELF_ATTENTION_H

#include "nn/linear.h"
#include "nn/norm.h"

struct tt_self_attention {
    struct tt_norm norm;
    struct tt_linear_group qkv;
    struct tt_linear_group o;
    struct tt_norm q_norm, k_norm; /* weight NULL: none */
    struct tt_norm post_norm;      /* of o's output, before the residual; weight NULL: none */
    int64_t heads, kv_heads, head_dim;
    int64_t window; /* 0: none */
    int rope;       /* index in the pass' tables; -1: q and k are not rotated */
    double scale;
    float soft_cap; /* of scores; 0: none */
    int layer;      /* index in a key/value cache */
};

struct tt_self_attention_saved {
    tt_tensor qkv_TC, h_qkv_TR, o_TC, h_o_TR, lse_HT, rstd_T, rstd_q_N, rstd_k_N;
    tt_tensor out_TD, rstd_out_T; /* with a post norm: its input */
    tt_tensor n_TD, ready_qk_TC;  /* empty: recomputed */
};

/* All of `saved` is pushed and stays with `keep`; otherwise everything is popped. The new keys and values are appended
 * to the cached ones where pass->lent.cache is set. */
TT_MUST_USE tt_status tt_self_attention_forward(const struct tt_self_attention *attention,
                                                const struct tt_pass *pass, tt_tensor x_TD, bool keep,
                                                struct tt_self_attention_saved *saved, tt_tensor out_TD);
/* The linear that multiplies dmid itself; NULL behind a post norm. */
const struct tt_linear_group *tt_self_attention_gradient_reader(const struct tt_self_attention *attention);
/* dmid_TD is the gradient of x + out, dmid_rows its rows in FP8 (without codes: none); dx_TD (may be empty) becomes the
 * whole gradient of x. */
TT_MUST_USE tt_status tt_self_attention_backward(const struct tt_self_attention *attention,
                                                 const struct tt_pass *pass, tt_tensor x_TD,
                                                 const struct tt_self_attention_saved *saved,
                                                 tt_tensor dmid_TD, const struct tt_quantized_rows *dmid_rows,
                                                 tt_tensor dx_TD);
bool tt_self_attention_trains(const struct tt_self_attention *attention);

#endif
