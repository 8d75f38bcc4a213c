/* DeepSeek V3 (DeepseekV3Config) with dense layers alone: multi-head latent attention. */
#include "model/mla.h"

static tt_status parse(const struct tt_json *json, struct tt_model_facts *facts)
{
    static const struct tt_mla_defaults defaults = {
        .decoder = {.vocab = 129280, .heads = 128, .kv_heads = 128, .ffn = 18432, .positions = 4096},
        .q_rank = 1536,
        .kv_rank = 512,
        .plain = 128,
        .rotated = 64,
        .value = 128};
    TT_TRY(tt_mla_parse(json, &defaults, facts));
    return tt_mla_check_dense(json, 3, facts);
}

const struct tt_model_family tt_family_deepseek_v3 = {
    .model_type = "deepseek_v3",
    .architecture = "DeepseekV3ForCausalLM",
    .parse = parse,
    .build = tt_mla_build,
};
