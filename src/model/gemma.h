/* Shared by Gemma 2 and 3: their struct, keys and build, and their names in GGUF. */
#ifndef TT_MODEL_GEMMA_H
#define TT_MODEL_GEMMA_H

#include "model/family.h"

struct tt_gemma {
    struct tt_decoder_shape shape;
    double score_scale, score_cap, logit_cap; /* a cap of 0: none */
    bool attention_bias;
    bool qk_norm; /* q and k are normed per head */
};

extern const struct tt_gguf_name tt_gemma_gguf_names[];
/* Reads all that both have alike, with the defaults of vocab_size and max_position_embeddings, and refuses attention to
 * later tokens. */
TT_MUST_USE tt_status tt_gemma_parse(const struct tt_json *json, int64_t vocab, int64_t positions,
                                     struct tt_model_facts *facts);
void tt_gemma_build(const struct tt_model_facts *facts, struct tt_builder *builder);
/* Reads a cap; null is none, which is 0; without the key it is `missing`. */
TT_MUST_USE tt_status tt_gemma_parse_cap(const struct tt_json *json, const char *key, double missing,
                                         double *cap);

/* An activation other than the one that llama.cpp has here; NULL: it is that one. */
const char *tt_gemma_cannot_activation(const struct tt_decoder_shape *shape);
/* llama.cpp computes the scale of scores from the shape: 1 / sqrt(head_dim), and 1 / sqrt(hidden_size / heads) for the
 * 27B model, which it knows by its `large` layers. */
bool tt_gemma_gguf_has_scale(const struct tt_model_facts *facts, const struct tt_decoder_shape *shape,
                             int64_t large, double scale);
/* It knows windows by a constant period: all layers but the last of every `period` have one. */
bool tt_gemma_gguf_has_windows(const struct tt_model_facts *facts, int64_t period);

#endif
