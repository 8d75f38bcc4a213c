/* Private header of the attention half: self_attention.c, attention_keys.c (keys and values that it
 * shares) and attention_gate.c (the gate of its output). */
#ifndef TT_NN_SELF_ATTENTION_IMPL_H
#define TT_NN_SELF_ATTENTION_IMPL_H

#include "backend/ops/attention.h"
#include "nn/self_attention.h"

/* q, k and v as [T, heads, E]. */
struct qkv {
    tt_tensor q_THE, k_TKE, v_TKE;
};

/* Tensors that forward keeps for backward. */
struct tt_attention_saved {
    tt_tensor qkv_TC, h_qkv_TR, o_TC, h_o_TR, lse_HT, rstd_T, rstd_q_N, rstd_k_N;
    tt_tensor rstd_v_N;           /* with a norm of values */
    tt_tensor gate_TC, h_gate_TR; /* with a linear of the gate; backward replaces it by its gradient */
    tt_tensor out_TD, rstd_out_T; /* with a post norm: its input */
    tt_tensor n_TD, ready_qk_TC;  /* empty: recomputed */
    /* of latents; the normed ones are empty where they are recomputed */
    tt_tensor latent_TC, h_latent_q_TR, h_latent_kv_TR, rstd_latent_q_T, rstd_latent_kv_T;
    tt_tensor latent_q_TL, latent_kv_TL;
};
_Static_assert(sizeof(struct tt_attention_saved) <= TT_HALF_SAVED_BYTES,
               "the layer's record has room for it");

/* Columns of q's linear: with a gate behind each head twice as many as the heads have. */
static inline int64_t tt_attention_q_columns(const struct tt_self_attention *attention)
{
    return attention->heads * attention->head_dim * (attention->gates_heads ? 2 : 1);
}

/* The heads of k, and of v, that the half itself makes. */
static inline int64_t tt_attention_kv_heads(const struct tt_self_attention *attention)
{
    return attention->reads == NULL ? attention->kv_heads : 0;
}

/* Columns of a head of o's input. */
static inline int64_t tt_attention_value_dim(const struct tt_self_attention *attention)
{
    return attention->latent != NULL ? attention->latent->value : attention->head_dim;
}

/* The columns of q, k and v; of q alone where another layer makes k and v. */
struct qkv tt_attention_split(const struct tt_self_attention *attention, tt_tensor qkv_TC);
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

/* ---- Sequences that begin with tokens of others ---- */

/* Rows of queries that attention computes: tokens, or keys of all sequences where it computes these whole. */
int64_t tt_attention_query_rows(const struct tt_self_attention *attention, const struct tt_pass *pass,
                                int64_t tokens);
/* Replaces keys and values, with whole sequences queries and the output too, by those of all sequences, in scratch that
 * is pushed here; nothing where each token belongs to one sequence, as all below. */
TT_MUST_USE tt_status tt_attention_copy_keys(const struct tt_self_attention *attention,
                                             const struct tt_pass *pass,
                                             struct tt_attention_forward_args *args);
/* The output of each token, of that of all sequences. */
TT_MUST_USE tt_status tt_attention_take_output(const struct tt_self_attention *attention,
                                               const struct tt_pass *pass,
                                               const struct tt_attention_forward_args *args, tt_tensor o_THE);
/* Replaces the gradients likewise, behind tt_attention_copy_keys, and fills what backward reads: `o_THE` is the output
 * of each token. Then makes the gradients of the tokens of those. */
TT_MUST_USE tt_status tt_attention_push_copies(const struct tt_self_attention *attention,
                                               const struct tt_pass *pass, tt_tensor o_THE,
                                               struct tt_attention_backward_args *args);
TT_MUST_USE tt_status tt_attention_join_copies(const struct tt_self_attention *attention,
                                               const struct tt_pass *pass,
                                               const struct tt_attention_backward_args *args,
                                               const struct qkv *grad);

/* ---- The gate of the output ---- */

/* Whether backward reads the normed input. */
bool tt_attention_needs_input(const struct tt_self_attention *attention);
/* Kept memory of a gate with a linear of its own. */
TT_MUST_USE tt_status tt_attention_push_gate(const struct tt_self_attention *attention,
                                             const struct tt_pass *pass, int64_t tokens,
                                             struct tt_attention_saved *saved);
/* Memory for the normed stream, which that linear reads too, unless it has some. */
TT_MUST_USE tt_status tt_attention_push_input(const struct tt_self_attention *attention,
                                              const struct tt_pass *pass, tt_tensor x_TD, tt_tensor *n_TD);
TT_MUST_USE tt_status tt_attention_project_gate(const struct tt_self_attention *attention,
                                                const struct tt_pass *pass, tt_tensor n_TD,
                                                const struct tt_quantized_rows *rows,
                                                const struct tt_attention_saved *saved);
/* The input of o: the output of attention, or with a gate its product with that, in scratch that is pushed here, or
 * where no backward follows in its place. */
TT_MUST_USE tt_status tt_attention_apply_gate(const struct tt_self_attention *attention,
                                              const struct tt_pass *pass, bool keep,
                                              const struct tt_attention_saved *saved, tt_tensor *gated_TC);
/* The gradient of the gated output, in *do_TC -> that of attention's output, in scratch that is pushed here, and the
 * gate's, in the place of the gate or in its columns of dqkv; *gated_TC: the gated output once more, in place of its
 * gradient. */
TT_MUST_USE tt_status tt_attention_gate_back(const struct tt_self_attention *attention,
                                             const struct tt_pass *pass,
                                             const struct tt_attention_saved *saved, tt_tensor dqkv_TC,
                                             tt_tensor *gated_TC, tt_tensor *do_TC);
/* The gradient of the gate's own linear, which joins dn where that is wanted. */
TT_MUST_USE tt_status tt_attention_gate_linear_back(const struct tt_self_attention *attention,
                                                    const struct tt_pass *pass,
                                                    const struct tt_attention_saved *saved, tt_tensor n_TD,
                                                    tt_tensor dn_TD);

/* ---- Latents ---- */

/* Takes NULL, as all below take an attention without latents. */
bool tt_latent_trains(const struct tt_latent *latent);
/* Kept memory. */
TT_MUST_USE tt_status tt_latent_push_kept(const struct tt_self_attention *attention,
                                          const struct tt_pass *pass, int64_t tokens, bool keep,
                                          struct tt_attention_saved *saved);
/* The normed stream, as x of `call` -> q, k and v ready for attention. */
TT_MUST_USE tt_status tt_latent_project(const struct tt_self_attention *attention,
                                        const struct tt_linear_call *call,
                                        const struct tt_attention_saved *saved);
/* dqkv -> the gradients of what the stream's linears make, in scratch that is pushed here. */
TT_MUST_USE tt_status tt_latent_back(const struct tt_self_attention *attention, const struct tt_pass *pass,
                                     const struct tt_attention_saved *saved, tt_tensor dqkv_TC,
                                     tt_tensor *dlatent_TC);
/* The output of attention -> the columns of its heads that values have; and the gradient of these -> that of the whole
 * output. In scratch that is pushed here, or as it is where all columns are values. */
TT_MUST_USE tt_status tt_latent_take_values(const struct tt_self_attention *attention,
                                            const struct tt_pass *pass, tt_tensor *o_TC);
TT_MUST_USE tt_status tt_latent_widen_gradient(const struct tt_self_attention *attention,
                                               const struct tt_pass *pass, tt_tensor *do_TC);
double tt_latent_flops(const struct tt_latent *latent, bool full);

/* Sinks in fp32, which the ops take: those that train are lent in the compute type. Empty: none. Scratch stays
 * pushed. */
TT_MUST_USE tt_status tt_attention_widen_sinks(const struct tt_self_attention *attention,
                                               const struct tt_pass *pass, tt_tensor *sinks_H);

/* ---- Over a cache ---- */

/* Attention in a pass of single tokens: appends their keys and values, unless another layer has or they are `stored`,
 * and reads all before. qkv_TC: what the linears made, ready for attention. */
TT_MUST_USE tt_status tt_attention_attend_single(const struct tt_self_attention *attention,
                                                 const struct tt_pass *pass, const struct qkv *ready,
                                                 bool stored, tt_tensor qkv_TC, tt_tensor o_TC);
/* The keys and values of a pass of several tokens, likewise. */
TT_MUST_USE tt_status tt_attention_take_cached(const struct tt_self_attention *attention,
                                               const struct tt_pass *pass, tt_tensor qkv_TC,
                                               struct tt_attention_forward_args *args);

#endif
