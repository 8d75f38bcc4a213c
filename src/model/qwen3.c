/* Qwen3, dense (Qwen3Config): q and k are normed per head before rope. */
#include "model/family.h"

static tt_status configure(const struct tt_json *json, struct tt_model_config *config)
{
    config->qk_norm = true;
    TT_TRY(tt_json_opt_bool(json, json->root, "attention_bias", &config->attention_bias));
    config->attention_output_bias = config->attention_bias;
    return tt_model_config_qwen_windows(json, config);
}

const struct tt_model_family tt_family_qwen3 = {
    .model_type = "qwen3",
    .architecture = "Qwen3ForCausalLM",
    .default_kv_heads = 32,
    .default_head_dim = 128,
    .default_max_position = 32768,
    .default_target_modules = "[\"q_proj\", \"v_proj\"]",
    .configure = configure,
};
