/* DeepSeek V3 and R1 (DeepseekV3Config): multi-head latent attention, and experts behind the first layers. Kimi K2
 * names a type of its own for the same class. */
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
    static const struct tt_mixture_defaults experts = {.count = 256,
                                                       .slots = 8,
                                                       .ffn = 2048,
                                                       .ffn_key = "moe_intermediate_size",
                                                       .bypassed = true,
                                                       .dense_layers = 3,
                                                       .shared = 1,
                                                       .groups = 8,
                                                       .kept_groups = 4,
                                                       .factor = 2.5};
    TT_TRY(tt_mla_parse(json, &defaults, facts));
    return tt_mixture_parse_grouped(json, &experts, facts, &TT_FAMILY_OWN(facts, struct tt_mla)->mixture);
}

const struct tt_model_family tt_family_deepseek_v3 = {
    .model_type = "deepseek_v3",
    .other_type = "kimi_k2",
    .architecture = "DeepseekV3ForCausalLM",
    .gguf = &tt_mla_gguf,
    .older_experts = &tt_mixture_older,
    .sources = tt_mixture_sources,
    .predicts_further = true,
    .parse = parse,
    .build = tt_mla_build_grouped,
};
