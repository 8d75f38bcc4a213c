/* Parts that models of other types need, by the keys of their configuration: each row of the table, alone and beside
 * others of its group. */
#include "model/missing.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "support/must.h"

static void expect(const char *config, const char *wanted)
{
    struct tt_json json = {0};
    struct tt_str text = {0};
    test_must(tt_json_parse(config, strlen(config), "config.json", &json));
    test_must(tt_missing_write(json.root, &text));
    if (strcmp(tt_str_text(&text), wanted) != 0) fail_msg("%s: '%s'", config, tt_str_text(&text));
    tt_str_deinit(&text);
    tt_json_deinit(&json);
}

static void each_key_names_its_part(void **state)
{
    static const struct {
        const char *config, *part;
    } rows[] = {
        {"{\"is_encoder_decoder\": true}", "an encoder (is_encoder_decoder)"},
        {"{\"num_experts\": 4}", "routed experts (num_experts)"},
        {"{\"num_local_experts\": 4}", "routed experts (num_local_experts)"},
        {"{\"n_routed_experts\": 4}", "routed experts (n_routed_experts)"},
        {"{\"moe_num_experts\": 4}", "routed experts (moe_num_experts)"},
        {"{\"num_experts_per_tok\": 1}", "routed experts (num_experts_per_tok)"},
        {"{\"enable_moe_block\": true}", "routed experts (enable_moe_block)"},
        {"{\"linear_num_value_heads\": 1}", "a gated delta rule (linear_num_value_heads)"},
        {"{\"mamba_d_state\": 8}", "a state space scan (mamba_d_state)"},
        {"{\"ssm_state_size\": 8}", "a state space scan (ssm_state_size)"},
        {"{\"state_size\": 8}", "a state space scan (state_size)"},
        {"{\"lru_width\": 8}", "a recurrence (lru_width)"},
        {"{\"attention_hidden_size\": 8}", "a recurrence (attention_hidden_size)"},
        {"{\"layer_types\": [\"full_attention\", \"linear_attention\"]}", "linear attention (layer_types)"},
        {"{\"conv_L_cache\": 3}", "short convolutions (conv_L_cache)"},
        {"{\"layer_types\": [\"conv\"]}", "short convolutions (layer_types)"},
        {"{\"index_topk\": 8}", "an indexer that chooses keys (index_topk)"},
        {"{\"attention_chunk_size\": 8}", "attention in chunks (attention_chunk_size)"},
        {"{\"swiglu_limit\": 7.0}", "clamped gated units (swiglu_limit)"},
        {"{\"altup_num_inputs\": 4}", "streams that mix (AltUp) (altup_num_inputs)"},
        {"{\"hc_mult\": 4}", "streams that mix (hyper-connections) (hc_mult)"},
        {"{\"hc_count\": 4}", "streams that mix (hyper-connections) (hc_count)"},
        {"{\"lambda_std_dev\": 0.1}", "differences of two attentions (lambda_std_dev)"},
        {"{\"hidden_act\": \"relu2\"}", "a squared ReLU (hidden_act)"},
        {"{\"mlp_hidden_act\": \"relu2\"}", "a squared ReLU (mlp_hidden_act)"},
        {"{\"n_positions\": 8}", "positions of another kind (n_positions)"},
        {"{\"type_vocab_size\": 2}", "embeddings of token types (type_vocab_size)"},
        {"{\"alibi\": true}", "ALiBi positions (alibi)"},
        {"{\"layer_norm_epsilon\": 1e-5}", "layer norms with a bias (layer_norm_epsilon)"},
        {"{\"layer_norm_eps\": 1e-5}", "layer norms with a bias (layer_norm_eps)"},
        {"{\"layernorm_epsilon\": 1e-5}", "layer norms with a bias (layernorm_epsilon)"},
        {"{\"norm_epsilon\": 1e-5}", "layer norms with a bias (norm_epsilon)"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) expect(rows[i].config, rows[i].part);
}

static void parts_are_listed_once(void **state)
{
    (void)state;
    expect("{\"num_experts\": 1, \"num_local_experts\": 0, \"alibi\": false, \"index_topk\": null, "
           "\"hidden_act\": \"silu\", \"layer_types\": [\"full_attention\", 3]}",
           "");
    expect("{\"num_experts\": 8, \"num_experts_per_tok\": 2, \"index_topk\": 8}",
           "routed experts (num_experts), an indexer that chooses keys (index_topk)");
    expect("{\"linear_num_value_heads\": 4, \"layer_types\": [\"linear_attention\"]}",
           "a gated delta rule (linear_num_value_heads)");
    /* the same key is that of other norms beside a scan; Cohere's have no bias; Gemma 4 has both of these parts */
    expect("{\"state_size\": 8, \"layer_norm_epsilon\": 1e-5}", "a state space scan (state_size)");
    expect("{\"layer_norm_eps\": 1e-5, \"logit_scale\": 0.1}", "");
    expect("{\"layer_norm_epsilon\": 1e-5, \"no_bias\": true}", "");
    expect("{\"hidden_size_per_layer_input\": 256, \"num_kv_shared_layers\": 2}", "");
    expect("{\"num_experts\": 8, \"text_config\": {\"index_topk\": 8}}",
           "an indexer that chooses keys (index_topk)");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_key_names_its_part),
        cmocka_unit_test(parts_are_listed_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
