/* The text model of Qwen3.5 with experts (Qwen3_5MoeTextConfig): the layers of Qwen3.5, and in each a mixture of
 * experts and one that every token has, behind a gate. Folders of the vision class have fused tensors, those of the
 * text model alone one tensor for each linear of an expert. */
#include "model/qwen3_5.h"

static tt_status parse(const struct tt_json *json, struct tt_model_facts *facts)
{
    const struct tt_decoder_defaults defaults = {.vocab = 248320,
                                                 .heads = 16,
                                                 .kv_heads = 2,
                                                 .head_dim = 256,
                                                 .ffn = 512, /* no layer has an MLP */
                                                 .positions = 32768};
    const struct tt_mixture_defaults experts = {
        .count = 256, .slots = 8, .ffn = 512, .ffn_key = "moe_intermediate_size"};
    TT_TRY(tt_qwen3_5_parse_vl(json, &defaults, facts));
    return tt_qwen3_5_parse_experts(json, &experts, facts);
}

void tt_qwen3_5_gguf_moe_keys(const struct tt_model_facts *facts, struct tt_gguf_keys *keys)
{
    const struct tt_mixture *mixture = &TT_FAMILY_OWN_CONST(facts, struct tt_qwen3_5)->mixture;
    tt_qwen3_5_gguf_keys(facts, keys);
    tt_mixture_gguf_keys(mixture, true, keys);
    tt_gguf_add_u32(keys, "expert_shared_feed_forward_length", mixture->shared_ffn);
}

static const struct tt_gguf_family gguf = {.name = "qwen35moe",
                                           .names = tt_qwen3_5_gguf_names,
                                           .add_keys = tt_qwen3_5_gguf_moe_keys,
                                           .arrange = tt_qwen3_5_gguf_arrange,
                                           .cannot = tt_qwen3_5_cannot};

const struct tt_model_family tt_family_qwen3_5_moe = {
    .model_type = "qwen3_5_moe_text",
    .architecture = "Qwen3_5MoeForCausalLM",
    .gguf = &gguf,
    .sources = tt_mixture_sources,
    .parse = parse,
    .build = tt_qwen3_5_build,
};
