/* Families with multi-head latent attention (struct tt_latent of nn/self_attention.h): keys and modules that
 * they share, with dense layers and with experts. */
#ifndef TT_MODEL_MLA_H
#define TT_MODEL_MLA_H

#include "model/mixture.h"

struct tt_mla {
    struct tt_decoder_shape shape;
    int64_t q_rank;                /* of q's latent; 0: none */
    int64_t kv_rank;               /* of that of k and v */
    int64_t plain, rotated, value; /* qk_nope_head_dim, qk_rope_head_dim, v_head_dim */
    bool pairs, bias;              /* rope_interleave; attention_bias: of the stream's linears and o */
    double scale;                  /* of scores */
    double mscale_all;  /* mscale_all_dim, by which `scale` is that of a scaled rotation; 0: it is not */
    double temperature; /* of queries by position; 0: none */
    struct tt_mixture mixture; /* of layers with experts */
};

extern const double tt_mla_latent_eps; /* eps of the norms of latents, which rms_norm_eps does not change */

/* Values of missing keys; `rope`: NULL, or the rotation without rope_scaling and rope_parameters. */
struct tt_mla_defaults {
    struct tt_decoder_defaults decoder;
    int64_t q_rank, kv_rank, plain, rotated, value;
    const struct tt_rope *rope;
    /* partial_rotary_factor is of qk_head_dim, by default the share of the rotated columns */
    bool shares_columns;
};
TT_MUST_USE tt_status tt_mla_parse(const struct tt_json *json, const struct tt_mla_defaults *defaults,
                                   struct tt_model_facts *facts);
/* `experts`: of the layers that have them; NULL: none has. */
void tt_mla_build(const struct tt_model_facts *facts, struct tt_builder *builder,
                  const struct tt_experts_names *experts);
/* The names of tt_mixture_grouped_names. */
void tt_mla_build_grouped(const struct tt_model_facts *facts, struct tt_builder *builder);

/* ---- GGUF ---- */

/* Keys and values are made of the latent inside the scores there, so that kv_b_proj is a matrix for each head and for k
 * its transpose (conversion/deepseek.py, src/models/deepseek2.cpp of llama.cpp b10605). Architecture deepseek2. */
extern const struct tt_gguf_family tt_mla_gguf;
/* Its members, for an architecture with a name and names of tensors of its own. */
#define TT_MLA_GGUF_NAMES                                                                                    \
    {"self_attn.q_a_proj", "attn_q_a", false}, {"self_attn.q_a_layernorm", "attn_q_a_norm", false},          \
        {"self_attn.q_b_proj", "attn_q_b", false}, {"self_attn.kv_a_proj_with_mqa", "attn_kv_a_mqa", false}, \
        {"self_attn.kv_a_layernorm", "attn_kv_a_norm", false},                                               \
        {"self_attn.kv_b_proj", "attn_k_b attn_v_b", false},                                                 \
        {"mlp.gate.e_score_correction_bias", "exp_probs_b.bias", false},                                     \
        TT_SHARED_GGUF_NAMES("mlp.shared_experts")
#define TT_MLA_GGUF                                                                                          \
    .unadapted = tt_mla_gguf_unadapted, .add_keys = tt_mla_gguf_keys, .arrange = tt_mla_gguf_arrange,        \
    .cannot = tt_mla_gguf_cannot, .notice = tt_mla_gguf_notice, .yarn_scores = tt_mla_gguf_yarn_scores
extern const char *const tt_mla_gguf_unadapted[];
void tt_mla_gguf_keys(const struct tt_model_facts *facts, struct tt_gguf_keys *keys);
void tt_mla_gguf_arrange(const struct tt_model_facts *facts, const char *tensor,
                         struct tt_gguf_arrangement *arrangement);
const char *tt_mla_gguf_cannot(const struct tt_model_facts *facts);
const char *tt_mla_gguf_notice(const struct tt_model_facts *facts);
double tt_mla_gguf_yarn_scores(const struct tt_model_facts *facts);

#endif
