/* Decoders of attention and MLP that are Llama with other options: where the norms are, what rotates, biases and
 * multipliers. A family reads its keys into a struct tt_dense, and builds with names of its own or with those here. */
#ifndef TT_MODEL_DENSE_H
#define TT_MODEL_DENSE_H

#include "model/family.h"

struct tt_dense {
    struct tt_decoder_shape shape;
    bool attention_bias, output_bias, mlp_bias; /* of q, k and v; of o; of the MLP */
    bool qk_norm, qk_norm_bare;
    enum tt_qk_norm qk_norm_kind;
    bool pairs;        /* neighbouring columns rotate together */
    int query_rope;    /* the rotation of q; 0: the layer's */
    bool beside;       /* the MLP reads what attention has read, by its norm */
    bool norm_centers; /* layer norms, without a bias, of the stream */
    bool norm_offset;  /* weights of the layers' norms are distances from 1 */
    double post_norm_eps, embedding_norm_eps, logit_cap; /* struct tt_attention_spec, tt_decoder_spec */
    /* 0: none; of scores 1 / sqrt(head_dim) */
    double embedding_scale, score_scale, residual_scale, logit_scale;
};

/* Reads the shape, with `norm_eps` where rms_norm_eps is missing, the activation, and rotation 0 by `rules` (NULL: for
 * all columns of a head, with the defaults' theta). */
TT_MUST_USE tt_status tt_dense_parse(const struct tt_json *json, const struct tt_decoder_defaults *defaults,
                                     double norm_eps, const struct tt_rope_rules *rules,
                                     struct tt_model_facts *facts);
/* sliding_window of the layers that layer_types has so, or without it all but every pattern-th (0: all); null: no
 * windows. */
TT_MUST_USE tt_status tt_dense_parse_windows(const struct tt_json *json, int64_t pattern,
                                             struct tt_model_facts *facts);
void tt_dense_build(const struct tt_model_facts *facts, struct tt_builder *builder,
                    const struct tt_attention_names *attention, const struct tt_mlp_names *mlp);
/* The same with halves of other kinds in some layers: with a state, or experts; NULL: none. */
struct tt_dense_halves {
    const struct tt_recurrence_spec *recurrence;
    const struct tt_experts_spec *experts;
};
void tt_dense_build_with(const struct tt_model_facts *facts, struct tt_builder *builder,
                         const struct tt_attention_names *attention, const struct tt_mlp_names *mlp,
                         const struct tt_dense_halves *halves);
/* Granite's parse: Llama's keys, biases and multipliers; and its keys in GGUF. */
TT_MUST_USE tt_status tt_granite_parse(const struct tt_json *json, const struct tt_decoder_defaults *defaults,
                                       struct tt_model_facts *facts);
void tt_granite_gguf_keys(const struct tt_model_facts *facts, struct tt_gguf_keys *keys);

extern const struct tt_mlp_names tt_dense_mlp_names; /* Llama's */
/* build() with Llama's names: norms before the halves, or with the same modules and norms behind the halves instead
 * (OLMo 2). */
void tt_dense_build_pre(const struct tt_model_facts *facts, struct tt_builder *builder);
void tt_dense_build_post(const struct tt_model_facts *facts, struct tt_builder *builder);

/* Names in GGUF of the norms behind the halves; keys of all. */
extern const struct tt_gguf_name tt_dense_post_gguf_names[];
void tt_dense_gguf_keys(const struct tt_model_facts *facts, struct tt_gguf_keys *keys);
/* An activation other than SiLU, or biases of o or the MLP, which no architecture of llama.cpp for these families has;
 * NULL: neither. */
const char *tt_dense_cannot(const struct tt_model_facts *facts);
/* It knows windows by a constant period: all layers but the last of every `period` have one. */
const char *tt_dense_cannot_windows(const struct tt_model_facts *facts, int64_t period);

#endif
