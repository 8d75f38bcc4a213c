/* Qwen2 and Qwen2.5 (Qwen2Config): q, k and v always have a bias, o never; head_dim is not a key. */
#include "model/llama.h"

static tt_status parse(const struct tt_json *json, struct tt_model_facts *facts)
{
    TT_TRY(tt_llama_parse(json, &(struct tt_decoder_defaults){.kv_heads = 32, .positions = 32768}, facts));
    TT_FAMILY_OWN(facts, struct tt_llama)->attention_bias = true;
    return tt_family_parse_qwen_windows(json, 28, facts);
}

static const struct tt_gguf_family gguf = {
    .name = "qwen2", .add_keys = tt_llama_gguf_keys, .cannot = tt_llama_cannot_bias};

const struct tt_model_family tt_family_qwen2 = {
    .model_type = "qwen2",
    .architecture = "Qwen2ForCausalLM",
    .default_target_modules = "[\"q_proj\", \"v_proj\"]",
    .gguf = &gguf,
    .parse = parse,
    .build = tt_llama_build,
};
