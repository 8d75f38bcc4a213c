/* Shared by the text models of Qwen3.5 and Qwen3-Next, with MLPs and with experts: layers with a state by the gated
 * delta rule, and attention whose q makes a gate of the output too. */
#ifndef TT_MODEL_QWEN3_5_H
#define TT_MODEL_QWEN3_5_H

#include "model/mixture.h"

struct tt_qwen3_5 {
    struct tt_decoder_shape shape;
    int64_t key_heads;
    int32_t sections[4]; /* of the rotation, for GGUF alone; 0: it has none */
    bool attention_bias;
    struct tt_mixture mixture; /* of layers with experts */
};

/* Reads all but the sections; `rules` of the rotation without the width of a head. */
TT_MUST_USE tt_status tt_qwen3_5_parse(const struct tt_json *json, const struct tt_decoder_defaults *defaults,
                                       const struct tt_rope_rules *rules, struct tt_model_facts *facts);
/* Reads all, with Qwen3.5's rotation. */
TT_MUST_USE tt_status tt_qwen3_5_parse_vl(const struct tt_json *json,
                                          const struct tt_decoder_defaults *defaults,
                                          struct tt_model_facts *facts);
/* Reads the experts of all layers, and of the expert that every token has shared_expert_intermediate_size. */
TT_MUST_USE tt_status tt_qwen3_5_parse_experts(const struct tt_json *json,
                                               const struct tt_mixture_defaults *defaults,
                                               struct tt_model_facts *facts);
void tt_qwen3_5_build_with(const struct tt_model_facts *facts, struct tt_builder *builder,
                           const struct tt_recurrence_names *names);
/* Qwen3.5's names are used. */
void tt_qwen3_5_build(const struct tt_model_facts *facts, struct tt_builder *builder);

extern const struct tt_gguf_name tt_qwen3_5_gguf_names[];
void tt_qwen3_5_gguf_arrange(const struct tt_model_facts *facts, const char *tensor,
                             struct tt_gguf_arrangement *arrangement);
void tt_qwen3_5_gguf_keys(const struct tt_model_facts *facts, struct tt_gguf_keys *keys);
/* The same and those of the experts. */
void tt_qwen3_5_gguf_moe_keys(const struct tt_model_facts *facts, struct tt_gguf_keys *keys);
const char *tt_qwen3_5_cannot(const struct tt_model_facts *facts);

#endif
