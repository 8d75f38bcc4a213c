/* MiniMax-M2 (MiniMaxM2Config): q and k are normed over all heads, a part of each head rotates (rotary_dim), and all
 * layers have experts, chosen by sigmoids. Files have the names of Mixtral's. */
#include "model/mixture.h"

static const struct tt_experts_names names = {TT_EXPERTS_NAMES, .choice_bias = "mlp.e_score_correction_bias"};
static const struct tt_param_source sources[] = {
    TT_MIXTRAL_SOURCES,
    {.param = "layers.#.mlp.e_score_correction_bias",
     .parts = {{.tensor = "layers.#.block_sparse_moe.e_score_correction_bias"}},
     .vector = true},
    {.param = NULL},
};

/* Columns that rotate as a share of a head; partial_rotary_factor of the rotation wins. */
static tt_status read_share(const struct tt_json *json, double *share)
{
    int64_t columns = 128, width = 128;
    TT_TRY(tt_json_opt_int(json, json->root, "head_dim", &width));
    columns = width;
    TT_TRY(tt_json_opt_int(json, json->root, "rotary_dim", &columns));
    TT_TRY(tt_family_check_range(json, "rotary_dim", columns, 1, width));
    *share = (double)columns / (double)width;
    return TT_OK;
}

static tt_status parse(const struct tt_json *json, struct tt_model_facts *facts)
{
    struct tt_dense_mixture *own = TT_FAMILY_OWN(facts, struct tt_dense_mixture);
    const struct tt_decoder_defaults defaults = {
        .vocab = 200064, .heads = 48, .kv_heads = 8, .head_dim = 128, .ffn = 1536, .positions = 196608};
    const struct tt_mixture_defaults experts = {
        .count = 256, .slots = 8, .ffn = 1536, .ffn_key = "intermediate_size"};
    struct tt_rope_rules rules = {.theta = 5e6};
    TT_TRY(read_share(json, &rules.partial));
    TT_TRY(tt_dense_parse(json, &defaults, 1e-6, &rules, facts));
    TT_TRY(tt_mixture_parse(json, &experts, facts, &own->mixture));
    TT_TRY(tt_mixture_parse_balance(json, 0.001, &own->mixture, facts));
    own->dense.qk_norm = true;
    own->dense.qk_norm_kind = TT_QK_NORM_ALL;
    own->mixture.rule = (struct tt_route_rule){.score = TT_ROUTE_SIGMOID, .normalizes = true};
    return tt_mixture_refuse_jitter(json);
}

static void build(const struct tt_model_facts *facts, struct tt_builder *builder)
{
    static const struct tt_attention_names attention = {TT_ATTENTION_NAMES};
    tt_mixture_build(facts, builder, &attention, &names);
}

static const struct tt_gguf_name gguf_names[] = {
    {"mlp.e_score_correction_bias", "exp_probs_b.bias", false},
    {NULL, NULL, false},
};

static void add_keys(const struct tt_model_facts *facts, struct tt_gguf_keys *keys)
{
    tt_dense_mixture_gguf_keys(facts, keys);
    tt_gguf_add_u32(keys, "expert_gating_func", TT_GGUF_GATING_SIGMOID);
}

static const char *cannot(const struct tt_model_facts *facts)
{
    if (facts->tie_word_embeddings) return "tied embeddings of this model type";
    return tt_dense_mixture_cannot(facts, true);
}

static const struct tt_gguf_family gguf = {
    .name = "minimax-m2", .names = gguf_names, .add_keys = add_keys, .cannot = cannot};

const struct tt_model_family tt_family_minimax_m2 = {
    .model_type = "minimax_m2",
    .architecture = "MiniMaxM2ForCausalLM",
    .gguf = &gguf,
    .older_experts = &tt_mixtral_older,
    .sources = sources,
    .parse = parse,
    .build = build,
};
