/* Qwen2 and Qwen2.5 (Qwen2Config): q, k and v always have a bias, o never; head_dim is not a key. */
#include "model/family.h"

static tt_status configure(const struct tt_json *json, struct tt_model_config *config)
{
    config->attention_bias = true;
    return tt_model_config_qwen_windows(json, config);
}

const struct tt_model_family tt_family_qwen2 = {
    .model_type = "qwen2",
    .architecture = "Qwen2ForCausalLM",
    .default_kv_heads = 32,
    .default_max_position = 32768,
    .default_target_modules = "[\"q_proj\", \"v_proj\"]",
    .configure = configure,
};
