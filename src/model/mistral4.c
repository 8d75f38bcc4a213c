/* Mistral 4 (Mistral4Config) with dense layers alone: DeepSeek V3's attention with YaRN and a temperature of queries by
 * position. Folders are of the class mistral3 (io/text_part.c). */
#include "model/mla.h"

/* Mistral4Config without rope_parameters. */
static const struct tt_rope default_rope = {.type = TT_ROPE_YARN,
                                            .theta = 1e4,
                                            .factor = 128,
                                            .original_max_position = 8192,
                                            .attention_factor = 1,
                                            .beta_fast = 32,
                                            .beta_slow = 1,
                                            .truncate = true,
                                            .temperature = 0.1};

static tt_status parse(const struct tt_json *json, struct tt_model_facts *facts)
{
    static const struct tt_mla_defaults defaults = {
        .decoder = {.vocab = 131072, .heads = 32, .kv_heads = 32, .ffn = 12288, .positions = 1048576},
        .q_rank = 1024,
        .kv_rank = 256,
        .plain = 64,
        .rotated = 64,
        .value = 128,
        .rope = &default_rope,
        .shares_columns = true};
    TT_TRY(tt_mla_parse(json, &defaults, facts));
    return tt_mla_check_dense(json, 0, facts);
}

const struct tt_model_family tt_family_mistral4 = {
    .model_type = "mistral4",
    .architecture = "Mistral4ForCausalLM",
    .parse = parse,
    .build = tt_mla_build,
};
