/* Youtu-LLM (YoutuConfig): DeepSeek V3's attention in dense layers. */
#include <math.h>

#include "model/mla.h"

static tt_status parse(const struct tt_json *json, struct tt_model_facts *facts)
{
    static const struct tt_mla_defaults defaults = {
        .decoder = {.vocab = 128256, .heads = 16, .kv_heads = 16, .ffn = 6144, .positions = 131072},
        .q_rank = 1536,
        .kv_rank = 512,
        .plain = 128,
        .rotated = 64,
        .value = 128};
    const struct tt_json_value *range = tt_json_get(json->root, "initializer_range");
    if (tt_json_get(json->root, "tie_word_embeddings") == NULL) facts->tie_word_embeddings = true;
    TT_TRY(tt_mla_parse(json, &defaults, facts));
    if (range == NULL || tt_json_is_null(range))
        facts->initializer_range = 2 / sqrt(5 * (double)facts->hidden_size);
    return TT_OK;
}

const struct tt_model_family tt_family_youtu = {
    .model_type = "youtu",
    .architecture = "YoutuForCausalLM",
    .gguf = &tt_mla_gguf,
    .parse = parse,
    .build = tt_mla_build_grouped,
};
