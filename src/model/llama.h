/* Llama, and families that differ from it by biases, norms of q and k, windows or layers without rotation: they share
 * its own struct, its build() and its names. */
#ifndef TT_MODEL_LLAMA_H
#define TT_MODEL_LLAMA_H

#include "model/family.h"

struct tt_llama {
    struct tt_decoder_shape shape;
    bool attention_bias; /* q, k, v have a bias */
    bool output_bias;    /* o has a bias */
    bool mlp_bias;
    bool qk_norm; /* q and k are normed per head */
};

/* Reads the shape, the activation and one rotation for all layers. */
TT_MUST_USE tt_status tt_llama_parse(const struct tt_json *json, const struct tt_decoder_defaults *defaults,
                                     struct tt_model_facts *facts);
void tt_llama_build(const struct tt_model_facts *facts, struct tt_builder *builder);

void tt_llama_gguf_keys(const struct tt_model_facts *facts, struct tt_gguf_keys *keys);
/* An activation other than SiLU, which no architecture of llama.cpp for these families has; NULL: it is SiLU. */
const char *tt_llama_cannot_activation(const struct tt_model_facts *facts);
/* The same, or biases of o and the MLP, which architectures made for other families lack; NULL: neither. */
const char *tt_llama_cannot_bias(const struct tt_model_facts *facts);

#endif
