/* Private header of the attention half: self_attention.c, and attention_keys.c (keys and values that it shares). */
#ifndef TT_NN_SELF_ATTENTION_IMPL_H
#define TT_NN_SELF_ATTENTION_IMPL_H

#include "backend/ops/attention.h"
#include "nn/self_attention.h"

/* q, k and v as [T, heads, E]. */
struct qkv {
    tt_tensor q_THE, k_TKE, v_TKE;
};

/* The heads of k, and of v, that the half itself makes. */
static inline int64_t tt_attention_kv_heads(const struct tt_self_attention *attention)
{
    return attention->reads == NULL ? attention->kv_heads : 0;
}

/* All heads of a token as one row. */
tt_tensor tt_heads_as_rows(tt_tensor x_THE);
/* Sets k and v to columns of [T, .. + 2 K E], from `first` on; nothing where that is empty. */
void tt_attention_set_keys(const struct tt_self_attention *attention, tt_tensor all_TC, int64_t first,
                           struct qkv *qkv);

/* ---- Of and for other layers (nn/side.h) ---- */

/* Sets k and v to those of another layer; they stay empty over a cache, which has them. */
void tt_attention_read_keys(const struct tt_self_attention *attention, const struct tt_pass *pass,
                            struct qkv *ready);
/* Offers k and v that are ready for attention. */
TT_MUST_USE tt_status tt_attention_offer_keys(const struct tt_self_attention *attention,
                                              const struct tt_pass *pass, const struct qkv *ready);
/* Memory for the gradients of keys and values that another layer has made. */
TT_MUST_USE tt_status tt_attention_push_key_gradients(const struct tt_self_attention *attention,
                                                      const struct tt_pass *pass, struct qkv *grad,
                                                      tt_tensor *dkv_TC);
/* Passes these on, or adds those of the layers behind to the half's own, in columns of dqkv_TC. */
TT_MUST_USE tt_status tt_attention_pass_key_gradients(const struct tt_self_attention *attention,
                                                      const struct tt_pass *pass, tt_tensor dqkv_TC,
                                                      tt_tensor dkv_TC);

/* ---- Over a cache ---- */

/* Attention in a pass of single tokens: appends their keys and values, unless another layer has, and reads all before.
 * qkv_TC: what the linears made, ready for attention. */
TT_MUST_USE tt_status tt_attention_attend_single(const struct tt_self_attention *attention,
                                                 const struct tt_pass *pass, const struct qkv *ready,
                                                 tt_tensor qkv_TC, tt_tensor o_TC);
/* The keys and values of a pass of several tokens, likewise. */
TT_MUST_USE tt_status tt_attention_take_cached(const struct tt_self_attention *attention,
                                               const struct tt_pass *pass, tt_tensor qkv_TC,
                                               struct tt_attention_forward_args *args);

#endif
