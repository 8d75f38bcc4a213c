/* Shared by the text models of Qwen2.5-VL and Qwen3-VL beside what is Llama's: rotation by sections of three positions
 * (time, height, width), which are one for text. The sections go into GGUF files alone. */
#ifndef TT_MODEL_QWEN_VL_H
#define TT_MODEL_QWEN_VL_H

#include "model/llama.h"

struct tt_qwen_vl {
    struct tt_llama llama;
    int32_t sections[4]; /* mrope_section, and 0; all 0: the configuration has none */
};

/* Reads mrope_section; without it the sections are unchanged. */
TT_MUST_USE tt_status tt_qwen_vl_read_sections(const struct tt_json *json, int32_t sections[4]);
/* Llama's parse, and the sections. */
TT_MUST_USE tt_status tt_qwen_vl_parse(const struct tt_json *json, const struct tt_decoder_defaults *defaults,
                                       struct tt_model_facts *facts);
void tt_qwen_vl_gguf_keys(const struct tt_model_facts *facts, struct tt_gguf_keys *keys);
const char *tt_qwen_vl_cannot(const struct tt_model_facts *facts);

#endif
