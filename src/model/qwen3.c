/* Qwen3, dense (Qwen3Config): q and k are normed per head before rope. */
#include "model/llama.h"

static tt_status parse(const struct tt_json *json, struct tt_model_facts *facts)
{
    struct tt_llama *llama = TT_FAMILY_OWN(facts, struct tt_llama);
    struct tt_decoder_defaults defaults = {.kv_heads = 32, .head_dim = 128, .positions = 32768};
    TT_TRY(tt_llama_parse(json, &defaults, facts));
    llama->qk_norm = true;
    TT_TRY(tt_json_opt_bool(json, json->root, "attention_bias", &llama->attention_bias));
    llama->output_bias = llama->attention_bias;
    return tt_family_parse_qwen_windows(json, 28, facts);
}

static const char *cannot(const struct tt_model_facts *facts)
{
    const struct tt_llama *llama = TT_FAMILY_OWN_CONST(facts, struct tt_llama);
    if (llama->attention_bias) return "attention_bias of this model type";
    return tt_llama_cannot_bias(facts);
}

static const struct tt_gguf_family gguf = {.name = "qwen3", .add_keys = tt_llama_gguf_keys, .cannot = cannot};

const struct tt_model_family tt_family_qwen3 = {
    .model_type = "qwen3",
    .architecture = "Qwen3ForCausalLM",
    .default_target_modules = "[\"q_proj\", \"v_proj\"]",
    .gguf = &gguf,
    .parse = parse,
    .build = tt_llama_build,
};
