/* Heads of single tokens, ready for attention: all that generation does behind the linear of q, k and v, for tokens
 * that each have a sequence of their own: norms, the rotation, and keys and values into the rows of a cache.
 *     q = rope(norm(q)),  k = rope(norm(k)) in place;  k_cache[rows[t]] = k[t],  v_cache[rows[t]] = v[t]
 * The norm is that of ops/rmsnorm.h over each head, whose result is rounded to its type before the rotation of
 * tt_rope (ops/attention.h) turns its first columns; either may be missing. Letters: T tokens, H heads of q, K of k and
 * v, E columns of a head, C = K E, R rows of the cache, P rows of the tables.
 *
 * On a GPU it replaces up to five launches, each of which takes longer to start than to run. */
#ifndef TT_BACKEND_OPS_READY_HEADS_H
#define TT_BACKEND_OPS_READY_HEADS_H

#include "backend/device.h"
#include "tensor/tensor.h"

struct tt_head_norm {
    bool is;            /* there is one */
    tt_tensor weight_E; /* f32 | bf16; empty: zeros */
    float offset;
    double eps;
};

struct tt_ready_heads_args {
    /* f32 | bf16, of one type; columns of a head, and heads of k and v, are contiguous. */
    tt_tensor q_THE, k_TKE, v_TKE;
    struct tt_head_norm q_norm, k_norm;
    tt_tensor positions_T, cos_PE, sin_PE; /* as for tt_rope; cos empty: no rotation */
    bool pairs;
    tt_tensor rows_T;                 /* i32, as those of tt_scatter_rows with `keep` */
    tt_tensor k_cache_RC, v_cache_RC; /* q's type */
};
TT_MUST_USE tt_status tt_ready_heads(struct tt_stream *stream, const struct tt_ready_heads_args *args);

#endif
