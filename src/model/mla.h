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
    double temperature;            /* of queries by position; 0: none */
    struct tt_mixture mixture;     /* of layers with experts */
};

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

#endif
