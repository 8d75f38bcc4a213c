/* The text model of Qwen2.5-VL (Qwen2_5_VLTextConfig): Qwen2's layers. It rotates by sections of three positions, which
 * are one for text. */
#include "model/llama.h"

static tt_status parse(const struct tt_json *json, struct tt_model_facts *facts)
{
    struct tt_decoder_defaults defaults = {
        .kv_heads = 8, .positions = 32768, .rope_theta = 1e6, .norm_eps = 1e-5, .sections = true};
    TT_TRY(tt_llama_parse(json, &defaults, facts));
    TT_FAMILY_OWN(facts, struct tt_llama)->attention_bias = true;
    return tt_family_parse_qwen_windows(json, facts);
}

const struct tt_model_family tt_family_qwen2_5_vl = {
    .model_type = "qwen2_5_vl_text",
    .architecture = "Qwen2_5_VLForConditionalGeneration",
    .default_target_modules = "[\"q_proj\", \"v_proj\"]",
    .parse = parse,
    .build = tt_llama_build,
};
