/* Qwen3-Next without experts (Qwen3NextConfig): the layers of Qwen3.5, whose projections of a state are two fused
 * matrices with rows by key head. */
#include <stdlib.h>
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

/* Which layers have experts instead of an MLP: all of every decoder_sparse_step-th that mlp_only_layers does not
 * name. */
static tt_status check_experts(const struct tt_json *json, const struct tt_model_facts *facts)
{
    int64_t experts = 512, step = 1;
    const struct tt_json_value *dense = tt_json_get(json->root, "mlp_only_layers");
    TT_TRY(tt_json_opt_int(json, json->root, "num_experts", &experts));
    TT_TRY(tt_family_parse_size(json, "decoder_sparse_step", INT32_MAX, &step));
    if (dense != NULL && !tt_json_is_null(dense))
        TT_TRY(tt_json_array(json, json->root, "mlp_only_layers", &dense));
    for (int64_t i = 0; i < facts->num_hidden_layers && experts > 0; i++) {
        bool has = (i + 1) % step == 0;
        for (size_t d = 0; d < tt_json_count(dense) && has; d++)
            has = !tt_json_is_integer(tt_json_at(dense, d)) || tt_json_integer(tt_json_at(dense, d)) != i;
        if (!has) continue;
        tt_status status = tt_fail(TT_ERR_UNSUPPORTED,
                                   "%s: layer %lld of a qwen3_next model needs routed experts (num_experts)",
                                   json->origin, (long long)i);
        tt_hint("docs/models.md lists what is supported: sizes without experts");
        return status;
    }
    return TT_OK;
}

static tt_status parse(const struct tt_json *json, struct tt_model_facts *facts)
{
    const struct tt_decoder_defaults defaults = {
        .vocab = 151936, .heads = 16, .kv_heads = 2, .head_dim = 256, .ffn = 5632, .positions = 32768};
    TT_TRY(tt_qwen3_5_parse(json, &defaults, &(struct tt_rope_rules){.partial = 0.25}, facts));
    TT_TRY(check_experts(json, facts));
    const struct tt_kv_states *state = tt_qwen3_5_state(facts);
    if (state != NULL) set_sources(TT_FAMILY_OWN(facts, struct tt_qwen3_5), state, &facts->sources);
    return TT_OK;
}

/* PEFT takes the names of the MLP's linears for those of experts in this model type
 * (convert_peft_config_for_transformers, 0.21), and then adapts no MLP. */
static void build(const struct tt_model_facts *facts, struct tt_builder *builder)
{
    tt_qwen3_5_build(facts, builder, &recurrence_names, true);
}

const struct tt_model_family tt_family_qwen3_next = {
    .model_type = "qwen3_next",
    .architecture = "Qwen3NextForCausalLM",
    .sources = sources,
    .parse = parse,
    .build = build,
};
