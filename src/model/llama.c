/* Llama 1, 2, 3 and 3.x, and what follows their architecture (LlamaConfig). */
#include "model/family.h"

static tt_status configure(const struct tt_json *json, struct tt_model_config *config)
{
    TT_TRY(tt_json_opt_bool(json, json->root, "attention_bias", &config->attention_bias));
    config->attention_output_bias = config->attention_bias;
    return tt_json_opt_bool(json, json->root, "mlp_bias", &config->mlp_bias);
}

const struct tt_model_family tt_family_llama = {
    .model_type = "llama",
    .architecture = "LlamaForCausalLM",
    .default_max_position = 2048,
    .default_target_modules = "[\"q_proj\", \"v_proj\"]",
    .configure = configure,
};
