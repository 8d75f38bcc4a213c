/* Mistral 4 (Mistral4Config): DeepSeek V3's attention with YaRN and a temperature of queries by position, and experts
 * chosen by softmax (Mistral4TopkRouter). Folders are of the class mistral3 (io/text_part.c); their experts are fused
 * tensors, as the class's. */
#include "model/mla.h"

static const struct tt_experts_names experts_names = {TT_EXPERTS_NAMES,
                                                      TT_SHARED_NAMES("mlp.shared_experts")};

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
    static const struct tt_mixture_defaults experts = {.count = 128,
                                                       .slots = 4,
                                                       .ffn = 2048,
                                                       .ffn_key = "moe_intermediate_size",
                                                       .shared = 1,
                                                       .groups = 1,
                                                       .kept_groups = 1,
                                                       .factor = 1};
    struct tt_mixture *mixture = &TT_FAMILY_OWN(facts, struct tt_mla)->mixture;
    TT_TRY(tt_mla_parse(json, &defaults, facts));
    TT_TRY(tt_mixture_parse_grouped(json, &experts, facts, mixture));
    mixture->rule.score = TT_ROUTE_SOFTMAX;
    mixture->rule.rounds_scores = true;
    mixture->wide_logits = false;
    return TT_OK;
}

static void build(const struct tt_model_facts *facts, struct tt_builder *builder)
{
    tt_mla_build(facts, builder, &experts_names);
}

/* Gate and up of all experts stay one tensor, as in the converter's files (conversion/mistral3.py). */
static const struct tt_gguf_name gguf_names[] = {
    TT_MLA_GGUF_NAMES,
    {"mlp.experts.gate_up_proj", "ffn_gate_up_exps.weight", false},
    {NULL, NULL, false},
};
static const struct tt_gguf_family gguf = {
    .name = "mistral4", .yarn_apart = true, .names = gguf_names, TT_MLA_GGUF};

const struct tt_model_family tt_family_mistral4 = {
    .model_type = "mistral4",
    .architecture = "Mistral4ForCausalLM",
    .gguf = &gguf,
    .parse = parse,
    .build = build,
};
