/* The text model of Qwen3-VL (Qwen3VLTextConfig): Qwen3's layers without windows. */
#include "model/qwen_vl.h"

static tt_status parse(const struct tt_json *json, struct tt_model_facts *facts)
{
    struct tt_decoder_defaults defaults = {
        .kv_heads = 32, .head_dim = 128, .positions = 128000, .rope_theta = 5e5, .sections = true};
    TT_TRY(tt_qwen_vl_parse(json, &defaults, facts));
    struct tt_llama *llama = &TT_FAMILY_OWN(facts, struct tt_qwen_vl)->llama;
    llama->qk_norm = true;
    TT_TRY(tt_json_opt_bool(json, json->root, "attention_bias", &llama->attention_bias));
    llama->output_bias = llama->attention_bias;
    return TT_OK;
}

/* Readers widen the rows of images by the layers that get features of the tower. */
static void add_keys(const struct tt_model_facts *facts, struct tt_gguf_keys *keys)
{
    tt_qwen_vl_gguf_keys(facts, keys);
    tt_gguf_add_u32(keys, "n_deepstack_layers", facts->image_layers);
}

static const char *cannot(const struct tt_model_facts *facts)
{
    const struct tt_llama *llama = &TT_FAMILY_OWN_CONST(facts, struct tt_qwen_vl)->llama;
    return llama->attention_bias ? "attention_bias of this model type" : tt_qwen_vl_cannot(facts);
}

static const struct tt_gguf_family gguf = {.name = "qwen3vl", .add_keys = add_keys, .cannot = cannot};

const struct tt_model_family tt_family_qwen3_vl = {
    .model_type = "qwen3_vl_text",
    .architecture = "Qwen3VLForConditionalGeneration",
    .default_target_modules = "[\"q_proj\", \"v_proj\"]",
    .gguf = &gguf,
    .parse = parse,
    .build = tt_llama_build,
};
