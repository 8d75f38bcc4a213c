/* Qwen3-Next (Qwen3NextConfig): the layers of Qwen3.5, whose projections of a state are two fused matrices with rows by
 * key head, and experts in layers that mlp_only_layers and decoder_sparse_step leave them. */
#include <string.h>

#include "model/qwen3_5.h"

#define STATE "linear_attn."
#define LAYER "layers.#." STATE

static const struct tt_recurrence_names recurrence_names = {.module = "linear_attn",
                                                            .in = STATE "in_proj_qkvz",
                                                            .rates = STATE "in_proj_ba",
                                                            .out = STATE "out_proj",
                                                            .conv = STATE "conv1d",
                                                            .activation = STATE "act",
                                                            .gate_norm = STATE "norm",
                                                            .norm = "input_layernorm"};

/* The rows of q, k, v and z of a key head follow one another, and those of b and a: the parameters have all q first,
 * and so on (fix_query_key_value_ordering of modeling_qwen3_next.py). */
enum { QKVZ, BA };
#define PART(module)                                                                                         \
    {                                                                                                        \
        .tensor = LAYER module ".weight"                                                                     \
    }
static const struct tt_param_source sources[] = {
    {.param = LAYER "in_proj_qkvz.weight",
     .parts = {PART("in_proj_qkvz"), PART("in_proj_qkvz"), PART("in_proj_qkvz"), PART("in_proj_qkvz")}},
    {.param = LAYER "in_proj_ba.weight", .parts = {PART("in_proj_ba"), PART("in_proj_ba")}},
    TT_EXPERTS_SOURCES,
    {.param = NULL},
};

/* Parts of `rows` rows of each key head, one after the other. */
static void deal(struct tt_source_part *parts, const int64_t *rows, int count, int64_t unit_rows)
{
    int units = 0;
    for (int p = 0; p < count; p++) {
        parts[p].unit = units;
        parts[p].count = (int)(rows[p] / unit_rows);
        parts[p].unit_rows = unit_rows;
        units += parts[p].count;
    }
    for (int p = 0; p < count; p++) parts[p].units = units;
}

static int64_t common_divisor(int64_t a, int64_t b)
{
    while (b > 0) {
        int64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

static void set_sources(const struct tt_qwen3_5 *qwen, const struct tt_kv_states *state,
                        struct tt_param_sources *to)
{
    int64_t each = state->heads / qwen->key_heads, values = each * state->columns;
    const int64_t qkvz[] = {state->rows, state->rows, values, values}, ba[] = {each, each};
    deal(to->rows[QKVZ].parts, qkvz, 4, common_divisor(state->rows, values));
    deal(to->rows[BA].parts, ba, 2, each);
}

static bool has_experts(const struct tt_json *json)
{
    const struct tt_json_value *count = tt_json_get(json->root, "num_experts");
    return !tt_json_is_integer(count) || tt_json_integer(count) > 0;
}

static tt_status parse(const struct tt_json *json, struct tt_model_facts *facts)
{
    const struct tt_decoder_defaults defaults = {
        .vocab = 151936, .heads = 16, .kv_heads = 2, .head_dim = 256, .ffn = 5632, .positions = 32768};
    const struct tt_mixture_defaults experts = {
        .count = 512, .slots = 10, .ffn = 512, .ffn_key = "moe_intermediate_size", .bypassed = true};
    TT_TRY(tt_qwen3_5_parse(json, &defaults, &(struct tt_rope_rules){.partial = 0.25}, facts));
    if (has_experts(json)) {
        struct tt_mixture *mixture = &TT_FAMILY_OWN(facts, struct tt_qwen3_5)->mixture;
        TT_TRY(tt_qwen3_5_parse_experts(json, &experts, facts));
        TT_TRY(tt_json_opt_bool(json, json->root, "norm_topk_prob", &mixture->rule.normalizes));
        TT_TRY(tt_mixture_parse_dense_layers(json, facts));
    }
    TT_FAMILY_OWN(facts, struct tt_qwen3_5)->mixture.bypassed = true; /* also without experts */
    const struct tt_kv_states *state = tt_family_state(facts);
    if (state != NULL) set_sources(TT_FAMILY_OWN(facts, struct tt_qwen3_5), state, &facts->sources);
    return TT_OK;
}

static void build(const struct tt_model_facts *facts, struct tt_builder *builder)
{
    tt_qwen3_5_build_with(facts, builder, &recurrence_names);
}

/* z has a tensor of its own there; a and b are rows by key head, as in the files (conversion/qwen.py of llama.cpp). */
static void arrange(const struct tt_model_facts *facts, const char *tensor,
                    struct tt_gguf_arrangement *arrangement)
{
    const struct tt_qwen3_5 *qwen = TT_FAMILY_OWN_CONST(facts, struct tt_qwen3_5);
    const struct tt_kv_states *state = tt_family_state(facts);
    int64_t values = state->heads * state->columns, qkv = 2 * qwen->key_heads * state->rows + values;
    if (strcmp(tensor, STATE "in_proj_qkvz.weight") == 0)
        *arrangement = (struct tt_gguf_arrangement){.period = qkv + values, .part = qkv};
    if (strcmp(tensor, STATE "in_proj_ba.weight") == 0)
        *arrangement = (struct tt_gguf_arrangement){
            .groups = 2, .each = qwen->key_heads, .size = state->heads / qwen->key_heads};
    arrangement->negated_exp = strcmp(tensor, STATE "A_log") == 0;
}

static const char *cannot(const struct tt_model_facts *facts)
{
    const char *layers = tt_mixture_cannot_layers(facts, false), *qwen = tt_qwen3_5_cannot(facts);
    if (layers != NULL || qwen != NULL) return layers != NULL ? layers : qwen;
    return TT_FAMILY_OWN_CONST(facts, struct tt_qwen3_5)->mixture.rule.normalizes
               ? NULL
               : "norm_topk_prob false of this model type";
}

static const struct tt_gguf_family gguf = {.name = "qwen3next",
                                           .names = tt_qwen3_5_gguf_names,
                                           .add_keys = tt_qwen3_5_gguf_moe_keys,
                                           .arrange = arrange,
                                           .cannot = cannot};

const struct tt_model_family tt_family_qwen3_next = {
    .model_type = "qwen3_next",
    .architecture = "Qwen3NextForCausalLM",
    .gguf = &gguf,
    .older_experts = &tt_mixture_older,
    .sources = sources,
    .predicts_further = true,
    .parse = parse,
    .build = build,
};
