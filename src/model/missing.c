#include "model/missing.h"

#include <string.h>

/* A sign that the part is needed. */
enum sign {
    ABOVE, /* a number above `limit` */
    IS_TRUE,
    HOLDS, /* the word, or a list with it */
};

/* The keys of layer norms are those of other norms too in models with scans: WEAK parts are named where no other is. */
enum { WEAK = 6, GROUPS };

static const struct row {
    const char *part, *key;
    enum sign sign;
    double limit;
    const char *word;
    int group; /* one part is named of a group; 0: of none */
} rows[] = {
    {"an encoder", "is_encoder_decoder", IS_TRUE, 0, NULL, 0},
    {"routed experts", "num_experts", ABOVE, 1, NULL, 1},
    {"routed experts", "num_local_experts", ABOVE, 1, NULL, 1},
    {"routed experts", "n_routed_experts", ABOVE, 1, NULL, 1},
    {"routed experts", "moe_num_experts", ABOVE, 1, NULL, 1},
    {"routed experts", "num_experts_per_tok", ABOVE, 0, NULL, 1},
    {"routed experts", "enable_moe_block", IS_TRUE, 0, NULL, 1},
    {"a gated delta rule", "linear_num_value_heads", ABOVE, 0, NULL, 2},
    {"a state space scan", "mamba_d_state", ABOVE, 0, NULL, 2},
    {"a state space scan", "ssm_state_size", ABOVE, 0, NULL, 2},
    {"a state space scan", "state_size", ABOVE, 0, NULL, 2},
    {"a recurrence", "lru_width", ABOVE, 0, NULL, 2},
    {"a recurrence", "attention_hidden_size", ABOVE, 0, NULL, 2},
    {"linear attention", "layer_types", HOLDS, 0, "linear_attention", 2},
    {"short convolutions", "conv_L_cache", ABOVE, 0, NULL, 3},
    {"short convolutions", "layer_types", HOLDS, 0, "conv", 3},
    {"an indexer that chooses keys", "index_topk", ABOVE, 0, NULL, 0},
    {"attention in chunks", "attention_chunk_size", ABOVE, 0, NULL, 0},
    {"clamped gated units", "swiglu_limit", ABOVE, 0, NULL, 0},
    {"streams that mix (AltUp)", "altup_num_inputs", ABOVE, 1, NULL, 0},
    {"streams that mix (hyper-connections)", "hc_mult", ABOVE, 1, NULL, 0},
    {"streams that mix (hyper-connections)", "hc_count", ABOVE, 1, NULL, 0},
    {"differences of two attentions", "lambda_std_dev", ABOVE, 0, NULL, 0},
    {"a squared ReLU", "hidden_act", HOLDS, 0, "relu2", 4},
    {"a squared ReLU", "mlp_hidden_act", HOLDS, 0, "relu2", 4},
    {"embeddings of token types", "type_vocab_size", ABOVE, 0, NULL, 0},
    {"ALiBi positions", "alibi", IS_TRUE, 0, NULL, 5},
    {"positions of another kind", "n_positions", ABOVE, 0, NULL, 5},
    {"layer norms with a bias", "layer_norm_epsilon", ABOVE, 0, NULL, WEAK},
    {"layer norms with a bias", "layer_norm_eps", ABOVE, 0, NULL, WEAK},
    {"layer norms with a bias", "layernorm_epsilon", ABOVE, 0, NULL, WEAK},
    {"layer norms with a bias", "norm_epsilon", ABOVE, 0, NULL, WEAK},
};
enum { ROWS = sizeof rows / sizeof *rows };

static bool is_word(const struct tt_json_value *value, const char *word)
{
    const char *text = tt_json_text(value);
    return text != NULL && strcmp(text, word) == 0;
}

static bool has_sign(const struct tt_json_value *value, const struct row *row)
{
    switch (row->sign) {
    case ABOVE:
        return tt_json_is_number(value) && tt_json_number(value) > row->limit;
    case IS_TRUE:
        return tt_json_is_true(value);
    case HOLDS:
        break;
    }
    for (size_t i = 0; tt_json_is_list(value) && i < tt_json_count(value); i++)
        if (is_word(tt_json_at(value, i), row->word)) return true;
    return is_word(value, row->word);
}

/* Layer norms without a bias are a family's here: those of Cohere, which scale logits, and of files that say so. */
static bool has_no_bias(const struct tt_json_value *config)
{
    return tt_json_is_true(tt_json_get(config, "no_bias")) || tt_json_get(config, "logit_scale") != NULL;
}

tt_status tt_missing_write(const struct tt_json_value *config, struct tt_str *text)
{
    bool found[GROUPS] = {false}, any = false;
    const struct tt_json_value *part = tt_json_get(config, "text_config");
    if (tt_json_is_object(part)) config = part;
    for (int i = 0; i < ROWS; i++) {
        const struct row *row = &rows[i];
        const struct tt_json_value *value = tt_json_get(config, row->key);
        if ((row->group > 0 && found[row->group]) || value == NULL || !has_sign(value, row)) continue;
        if (row->group == WEAK && (any || has_no_bias(config))) continue;
        TT_TRY(tt_str_printf(text, "%s%s (%s)", any ? ", " : "", row->part, row->key));
        found[row->group] = any = true;
    }
    return TT_OK;
}
