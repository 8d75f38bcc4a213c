/* The attention half of a layer (nn/half.h), with its norm:
 *     x_next = x + o_proj(attention(rope(q), rope(k), v)),  q, k, v = linears of norm(x)
 * Some families norm q and k first, per head or over all heads at once, or norm them per head after the rotation; some
 * layers rotate only the first columns of a head, or none; a few families do not norm the stream.
 *
 * Kept for backward, in elements per token (c: compute type, f: fp32): q, k, v (H + 2K) E c, o H E c, lse H f, rstd 1
 * f, LoRA h of q, k, v and o. Without q/k norms q and k are kept after rope. With them the outputs of the linears are
 * kept (rotated where the norms follow the rotation), plus (H + K) f of rstd (2 f over all heads), and normed and
 * rotated again in backward: one copy either way.
 *
 * A gate multiplies the output before o_proj by its sigmoid; it is gate_proj(norm(x)), whose LoRA h is kept too, or
 * columns of q_proj behind each head of q (Qwen3-Next). It keeps H E c.
 *
 * Values may be normed too: with their own linear that keeps K E c more at TT_KEEP_ALL. Values that are the keys before
 * norm and rotation have no linear; their norm's result is kept in its place.
 *
 * A norm after o_proj keeps its input and rstd too: D c, 1 f.
 *
 * A layer may offer its keys and values to layers behind it, which then have neither k nor v of their own (nn/side.h):
 * those keep q alone, H E c instead of (H + 2K) E c, and the side value, 2 K E c, is kept by the pass. Its gradient
 * joins that of the layer's own k and v.
 *
 * At TT_KEEP_ALL also the normed input D c where LoRA or a weight of q, k, v trains, and with q/k norms the normed and
 * rotated q and k, (H + K) E c. */
#ifndef TT_NN_SELF_ATTENTION_H
#define TT_NN_SELF_ATTENTION_H

#include "nn/half.h"
#include "nn/side.h"

/* Multi-head latent attention (MLA; DeepSeek-V2, arXiv 2405.04434): linears of the stream make a latent of q, one of k
 * and v, and columns of k that all heads share; linears of the normed latents make the heads, of which a part rotates
 * (backend/ops/latent_heads.h). The latent of q may be missing.
 *
 * Heads of q, k and v have head_dim columns, the larger of their own widths. Kept: the latents and the shared columns
 * c, 2 f of rstd, LoRA h of all linears, q, k and v 3 H E c, o and lse; at TT_KEEP_ALL also the normed latents c where
 * LoRA or a weight reads them. */
struct tt_latent {
    struct tt_norm q_norm, kv_norm;
    struct tt_linear_group q, kv;  /* of the latents; q.count 0: a linear of the stream makes q */
    int64_t q_columns, kv_columns; /* of the latents, or of q without one */
    /* columns of a head of q and k that do not rotate, and do; of a head of v */
    int64_t plain, rotated, value;
    int rope;           /* index in the pass' tables */
    double temperature; /* of queries by position; 0: none */
    int64_t original_positions;
};

/* Where q_norm and k_norm act, if they exist. */
enum tt_qk_norm {
    TT_QK_NORM_HEADS,      /* each head, before the rotation */
    TT_QK_NORM_ALL,        /* all heads as one row, before the rotation */
    TT_QK_NORM_AFTER_ROPE, /* each head, after the rotation */
};

struct tt_self_attention {
    struct tt_norm norm;
    struct tt_linear_group qkv;     /* with `latent`: of the latents and the shared columns */
    const struct tt_latent *latent; /* NULL, or q, k and v are made of latents; without rope and q/k norms */
    struct tt_linear_group gate; /* of the output of attention, [T, H E], through a sigmoid; count 0: none */
    struct tt_linear_group o;
    struct tt_norm q_norm, k_norm; /* weight NULL: none */
    struct tt_norm v_norm;         /* of each head of v, bare; only beside q_norm */
    bool gates_heads;         /* q's linear makes the gate too: [H, 2E], behind each head of q its gate */
    bool keys_as_values;      /* v is k before norm and rotation: there is no linear of v */
    struct tt_norm post_norm; /* of o's output; weight NULL: none */
    int64_t heads, kv_heads, head_dim;
    int64_t window; /* 0: none */
    int rope;       /* index in the pass' tables; -1: q and k are not rotated */
    int query_rope; /* the table of q: `rope`, or one of its own */
    bool pairs;     /* neighbouring columns rotate together (backend/ops/attention.h) */
    enum tt_qk_norm qk_norm;
    double scale;
    float soft_cap;  /* of scores; 0: none */
    tt_param *sinks; /* [H]: scores of a key without a value (backend/ops/attention.h); NULL: none */
    int layer;       /* index in a key/value cache: its own, or that of the layer whose keys it reads */
    /* NULL, or its keys and values [T, 2 K E], ready for attention, for layers behind */
    const struct tt_side *offers;
    const struct tt_side *reads; /* NULL, or those of a layer before: it has no linears of k and v */
};

#endif
