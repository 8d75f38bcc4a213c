/* The text model of Qwen2.5-VL (Qwen2_5_VLTextConfig): Qwen2's layers. Also what it shares with that of Qwen3-VL. */
#include "model/qwen_vl.h"

tt_status tt_qwen_vl_read_sections(const struct tt_json *json, int32_t sections[4])
{
    static const char *const keys[] = {"rope_scaling", "rope_parameters"};
    for (int k = 0; k < 2; k++) {
        const struct tt_json_value *list = tt_json_get(tt_json_get(json->root, keys[k]), "mrope_section");
        for (size_t i = 0; i < 3 && i < tt_json_count(list); i++) {
            const struct tt_json_value *value = tt_json_at(list, i);
            int64_t columns = tt_json_is_integer(value) ? tt_json_integer(value) : -1;
            TT_TRY(tt_family_check_range(json, "mrope_section", columns, 0, 1 << 14));
            sections[i] = (int32_t)columns;
        }
    }
    return TT_OK;
}

tt_status tt_qwen_vl_parse(const struct tt_json *json, const struct tt_decoder_defaults *defaults,
                           struct tt_model_facts *facts)
{
    TT_TRY(tt_llama_parse(json, defaults, facts));
    return tt_qwen_vl_read_sections(json, TT_FAMILY_OWN(facts, struct tt_qwen_vl)->sections);
}

void tt_qwen_vl_gguf_keys(const struct tt_model_facts *facts, struct tt_gguf_keys *keys)
{
    tt_llama_gguf_keys(facts, keys);
    tt_gguf_add_i32s(keys, "rope.dimension_sections", TT_FAMILY_OWN_CONST(facts, struct tt_qwen_vl)->sections,
                     4);
}

const char *tt_qwen_vl_cannot(const struct tt_model_facts *facts)
{
    const struct tt_qwen_vl *own = TT_FAMILY_OWN_CONST(facts, struct tt_qwen_vl);
    return own->sections[0] == 0 ? "a model of this type without mrope_section" : tt_llama_cannot_bias(facts);
}

static tt_status parse(const struct tt_json *json, struct tt_model_facts *facts)
{
    struct tt_decoder_defaults defaults = {
        .kv_heads = 8, .positions = 32768, .rope_theta = 1e6, .norm_eps = 1e-5, .sections = true};
    TT_TRY(tt_qwen_vl_parse(json, &defaults, facts));
    TT_FAMILY_OWN(facts, struct tt_qwen_vl)->llama.attention_bias = true;
    return tt_family_parse_qwen_windows(json, 80, facts);
}

static const struct tt_gguf_family gguf = {
    .name = "qwen2vl", .add_keys = tt_qwen_vl_gguf_keys, .cannot = tt_qwen_vl_cannot};

const struct tt_model_family tt_family_qwen2_5_vl = {
    .model_type = "qwen2_5_vl_text",
    .architecture = "Qwen2_5_VLForConditionalGeneration",
    .default_target_modules = "[\"q_proj\", \"v_proj\"]",
    .gguf = &gguf,
    .parse = parse,
    .build = tt_llama_build,
};
