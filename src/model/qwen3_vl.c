/* The text model of Qwen3-VL (Qwen3VLTextConfig): Qwen3's layers without windows. It rotates by interleaved sections of
 * three positions, which are one for text. */
#include "model/llama.h"

static tt_status parse(const struct tt_json *json, struct tt_model_facts *facts)
{
    struct tt_llama *llama = TT_FAMILY_OWN(facts, struct tt_llama);
    struct tt_decoder_defaults defaults = {
        .kv_heads = 32, .head_dim = 128, .positions = 128000, .rope_theta = 5e5, .sections = true};
    TT_TRY(tt_llama_parse(json, &defaults, facts));
    llama->qk_norm = true;
    TT_TRY(tt_json_opt_bool(json, json->root, "attention_bias", &llama->attention_bias));
    llama->output_bias = llama->attention_bias;
    return TT_OK;
}

const struct tt_model_family tt_family_qwen3_vl = {
    .model_type = "qwen3_vl_text",
    .architecture = "Qwen3VLForConditionalGeneration",
    .default_target_modules = "[\"q_proj\", \"v_proj\"]",
    .parse = parse,
    .build = tt_llama_build,
};
