/* config.json: both spellings, defaults, windows, and everything absurd refused with the key's name. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>
#include "model/llama.h"

static const char base[] =
    "{\"model_type\": \"llama\", \"vocab_size\": 100, \"hidden_size\": 32, \"intermediate_size\": 48, "
    "\"num_hidden_layers\": 3, \"num_attention_heads\": 4}";

/* The base configuration with members replaced (or removed, by JSON text "absent"). */
static tt_status parse(const char *changes, struct tt_model_facts *config)
{
    struct tt_json json = {0}, change = {0};
    const char *key;
    const struct tt_json_value *value;
    assert_int_equal(tt_json_parse(base, strlen(base), "config.json", &json), TT_OK);
    assert_int_equal(tt_json_make_editable(&json), TT_OK);
    assert_int_equal(tt_json_parse(changes, strlen(changes), "changes", &change), TT_OK);
    for (size_t member = 0; tt_json_next_member(change.root, &member, &key, &value);) {
        if (tt_json_is_string(value) && strcmp(tt_json_text(value), "absent") == 0) {
            assert_true(tt_json_remove(json.root, key));
        } else {
            assert_int_equal(tt_json_set_copy(json.root, key, value), 0);
        }
    }
    tt_status status = tt_model_facts_parse(&json, config);
    tt_json_deinit(&json);
    tt_json_deinit(&change);
    return status;
}

static struct tt_model_facts parsed(const char *changes)
{
    struct tt_model_facts config;
    tt_status status = parse(changes, &config);
    if (status != TT_OK) fail_msg("%s: %s", changes, tt_error_last()->message);
    return config;
}

static void defaults(void **state)
{
    (void)state;
    struct tt_model_facts config = parsed("{}");
    assert_string_equal(config.architecture, "LlamaForCausalLM");
    assert_int_equal(config.layers[2].kv_heads, 4);
    assert_int_equal(config.layers[2].head_dim, 8);
    assert_int_equal(config.max_position_embeddings, 2048);
    const struct tt_llama *llama = TT_FAMILY_OWN_CONST(&config, struct tt_llama);
    assert_true(llama->shape.norm_eps == 1e-6 && config.ropes[0].theta == 10000 &&
                config.initializer_range == 0.02);
    assert_int_equal(config.rope_count, 1);
    assert_int_equal(config.ropes[0].type, TT_ROPE_DEFAULT);
    assert_int_equal(config.ropes[0].columns, 8);
    assert_false(config.tie_word_embeddings || llama->attention_bias || llama->mlp_bias || llama->qk_norm);
    assert_int_equal(config.dtype, TT_F32);
    assert_int_equal(config.bos_token_id, -1);
    assert_int_equal(config.eos_token_count, 0);
    assert_true(config.layers[0].window == 0 && config.layers[2].window == 0);

    config = parsed(
        "{\"num_key_value_heads\": null, \"head_dim\": null, \"torch_dtype\": null, \"rope_scaling\": null}");
    assert_int_equal(config.layers[0].kv_heads, 4);
    assert_int_equal(config.layers[0].head_dim, 8);
    config = parsed("{\"model_type\": \"qwen3\", \"num_key_value_heads\": 2}");
    assert_int_equal(config.layers[0].head_dim, 128);
    assert_true(llama->qk_norm);
    config = parsed("{\"model_type\": \"qwen2\", \"num_key_value_heads\": 2}");
    assert_true(llama->attention_bias && !llama->output_bias);
    config = parsed("{\"attention_bias\": true, \"mlp_bias\": true}");
    assert_true(llama->attention_bias && llama->output_bias && llama->mlp_bias);
}

static void both_spellings(void **state)
{
    (void)state;
    const char *v4 = "{\"torch_dtype\": \"bfloat16\", \"rope_theta\": 500000.0, \"rope_scaling\": {\"type\": "
                     "\"linear\", \"factor\": 4}}";
    const char *v5 = "{\"dtype\": \"bfloat16\", \"rope_parameters\": {\"rope_type\": \"linear\", \"factor\": "
                     "4.0, \"rope_theta\": 500000}}";
    struct tt_model_facts a = parsed(v4), b = parsed(v5);
    assert_true(a.ropes[0].theta == 500000 && b.ropes[0].theta == 500000 && a.ropes[0].factor == 4 &&
                b.ropes[0].factor == 4);
    assert_int_equal(b.ropes[0].type, TT_ROPE_LINEAR);
    assert_int_equal(b.dtype, TT_BF16);
    assert_int_equal(a.ropes[0].type, TT_ROPE_LINEAR);
    assert_int_equal(a.dtype, TT_BF16);
    a = parsed("{\"eos_token_id\": [2, 7, 9], \"bos_token_id\": 1}");
    assert_int_equal(a.eos_token_count, 3);
    assert_int_equal(a.eos_token_ids[2], 9);
    a = parsed("{\"eos_token_id\": 5}");
    assert_int_equal(a.eos_token_count, 1);
}

static void windows(void **state)
{
    (void)state;
    struct tt_model_facts config =
        parsed("{\"model_type\": \"mistral\", \"num_key_value_heads\": 2, \"sliding_window\": null}");
    assert_int_equal(config.layers[0].window, 0);
    config = parsed("{\"model_type\": \"mistral\", \"num_key_value_heads\": 2}");
    assert_int_equal(config.layers[0].window, 4096);
    assert_int_equal(config.layers[2].window, 4096);
    config = parsed("{\"model_type\": \"mistral\", \"num_key_value_heads\": 2, \"layer_types\": null}");
    assert_int_equal(config.layers[2].window, 4096);
    config = parsed("{\"model_type\": \"mistral\", \"num_key_value_heads\": 2, \"layer_types\": "
                    "[\"sliding_attention\", \"full_attention\", \"sliding_attention\"]}");
    assert_true(config.layers[0].window == 4096 && config.layers[1].window == 0);
    assert_int_equal(config.layers[2].window, 4096);
    /* Qwen: a window that is switched off is none, whatever the other keys say. */
    config = parsed("{\"model_type\": \"qwen2\", \"num_key_value_heads\": 2, \"sliding_window\": 64, "
                    "\"use_sliding_window\": false}");
    assert_int_equal(config.layers[2].window, 0);
    config = parsed("{\"model_type\": \"qwen2\", \"num_key_value_heads\": 2, \"sliding_window\": 64, "
                    "\"use_sliding_window\": true, "
                    "\"max_window_layers\": 2}");
    assert_int_equal(config.layers[1].window, 0);
    assert_int_equal(config.layers[2].window, 64);
    config = parsed("{\"model_type\": \"qwen3\", \"num_key_value_heads\": 2, \"sliding_window\": 64, "
                    "\"use_sliding_window\": true, "
                    "\"layer_types\": [\"sliding_attention\", \"full_attention\", \"full_attention\"]}");
    assert_true(config.layers[0].window == 64 && config.layers[1].window == 0);
    config = parsed("{\"model_type\": \"qwen2\", \"num_key_value_heads\": 2, \"sliding_window\": 64, "
                    "\"use_sliding_window\": true, "
                    "\"max_window_layers\": 28}");
    assert_int_equal(config.layers[2].window, 0); /* no layer has it */
    config = parsed("{\"model_type\": \"ministral\", \"num_key_value_heads\": 2, \"sliding_window\": 64, "
                    "\"layer_types\": [\"full_attention\", \"sliding_attention\", \"full_attention\"]}");
    assert_true(config.layers[0].window == 0 && config.layers[1].window == 64);
    assert_int_equal(config.layers[2].window, 0);
    config = parsed("{\"model_type\": \"ministral\", \"num_key_value_heads\": 2, \"sliding_window\": null}");
    assert_int_equal(config.layers[0].window, 0);
    config = parsed("{\"model_type\": \"gemma2\", \"num_key_value_heads\": 2}");
    assert_true(config.layers[0].window == 4096 && config.layers[1].window == 0);
    assert_int_equal(config.layers[2].window, 4096);
    config = parsed("{\"model_type\": \"gemma2\", \"num_key_value_heads\": 2, \"sliding_window\": null}");
    assert_int_equal(config.layers[0].window, 0);
}

struct refusal {
    const char *changes;
    tt_status status;
    const char *word; /* in the message */
};

#define HEADS2(type) "{\"model_type\": \"" type "\", \"num_key_value_heads\": 2, "

static const struct refusal refusals[] = {
    {"{\"model_type\": \"absent\"}", TT_ERR_DATA, "model_type"},
    {"{\"model_type\": \"gpt2\"}", TT_ERR_UNSUPPORTED, "gpt2"},
    {"{\"model_type\": 3}", TT_ERR_DATA, "model_type"},
    {"{\"architectures\": [\"LlamaForSequenceClassification\"]}", TT_ERR_UNSUPPORTED,
     "'LlamaForSequenceClassification' gives each sequence scores of 2 labels"},
    {"{\"architectures\": [\"LlamaForSequenceClassification\"], \"num_labels\": 0}", TT_ERR_DATA,
     "num_labels"},
    {"{\"architectures\": [\"LlamaForSequenceClassification\"], \"num_labels\": 1, \"problem_type\": "
     "\"regression\"}",
     TT_ERR_UNSUPPORTED, "'LlamaForSequenceClassification' gives each sequence scores of 1 label, and"},
    {"{\"architectures\": [\"LlamaTextForSequenceClassification\"]}", TT_ERR_UNSUPPORTED,
     "scores of 2 labels"},
    {"{\"architectures\": [\"MistralForSequenceClassification\"]}", TT_ERR_UNSUPPORTED,
     "(for model_type 'llama' it is LlamaForCausalLM)"},
    {"{\"architectures\": [\"LlamaForTokenClassification\"]}", TT_ERR_UNSUPPORTED,
     "(for model_type 'llama' it is LlamaForCausalLM)"},
    {"{\"architectures\": [\"LlamaForQuestionAnswering\"]}", TT_ERR_UNSUPPORTED,
     "(for model_type 'llama' it is LlamaForCausalLM)"},
    {"{\"hidden_size\": \"absent\"}", TT_ERR_DATA, "hidden_size"},
    {"{\"hidden_size\": -32}", TT_ERR_DATA, "hidden_size"},
    {"{\"hidden_size\": 0}", TT_ERR_DATA, "hidden_size"},
    {"{\"hidden_size\": 32.5}", TT_ERR_DATA, "hidden_size"},
    {"{\"hidden_size\": 4611686018427387904}", TT_ERR_DATA, "hidden_size"},
    {"{\"hidden_size\": 33}", TT_ERR_DATA, "hidden_size"},
    {"{\"hidden_size\": 1e400}", TT_ERR_DATA, "hidden_size"},
    {"{\"hidden_size\": 99999999999999999999}", TT_ERR_DATA, "hidden_size"},
    {"{\"hidden_size\": NaN}", TT_ERR_DATA, "hidden_size"},
    {"{\"rope_theta\": 1e400}", TT_ERR_DATA, "rope_theta"},
    {"{\"rope_theta\": NaN}", TT_ERR_DATA, "rope_theta"},
    {"{\"rms_norm_eps\": -Infinity}", TT_ERR_DATA, "rms_norm_eps"},
    {"{\"vocab_size\": 0}", TT_ERR_DATA, "vocab_size"},
    {"{\"vocab_size\": 2147483647}", TT_ERR_DATA, "vocab_size"},
    {"{\"intermediate_size\": -1}", TT_ERR_DATA, "intermediate_size"},
    {"{\"num_hidden_layers\": 1000000}", TT_ERR_DATA, "num_hidden_layers"},
    {"{\"num_hidden_layers\": 0}", TT_ERR_DATA, "num_hidden_layers"},
    {"{\"num_attention_heads\": 0}", TT_ERR_DATA, "num_attention_heads"},
    {"{\"num_key_value_heads\": 3}", TT_ERR_DATA, "num_key_value_heads"},
    {"{\"num_key_value_heads\": 0}", TT_ERR_DATA, "num_key_value_heads"},
    {"{\"num_key_value_heads\": 8}", TT_ERR_DATA, "num_key_value_heads"},
    {"{\"head_dim\": 7}", TT_ERR_DATA, "head_dim"},
    {"{\"head_dim\": 514}", TT_ERR_DATA, "head_dim"},
    {"{\"max_position_embeddings\": 0}", TT_ERR_DATA, "max_position_embeddings"},
    {"{\"rms_norm_eps\": 0}", TT_ERR_DATA, "rms_norm_eps"},
    {"{\"rms_norm_eps\": -1e-5}", TT_ERR_DATA, "rms_norm_eps"},
    {"{\"rms_norm_eps\": \"small\"}", TT_ERR_DATA, "rms_norm_eps"},
    {"{\"rope_theta\": 0}", TT_ERR_DATA, "rope_theta"},
    {"{\"rope_theta\": -5}", TT_ERR_DATA, "rope_theta"},
    {"{\"tie_word_embeddings\": \"yes\"}", TT_ERR_DATA, "tie_word_embeddings"},
    {"{\"hidden_act\": \"gelu_10\"}", TT_ERR_UNSUPPORTED, "hidden_act 'gelu_10'"},
    {"{\"hidden_act\": \"quick_gelu\"}", TT_ERR_UNSUPPORTED, "hidden_act 'quick_gelu'"},
    {"{\"dtype\": \"int8\"}", TT_ERR_UNSUPPORTED, "int8"},
    {"{\"quantization_config\": {\"quant_method\": \"gptq\"}}", TT_ERR_UNSUPPORTED, "gptq"},
    {"{\"quantization_config\": {\"quant_method\": \"bitsandbytes\"}}", TT_ERR_DATA, "neither of"},
    {"{\"quantization_config\": {\"quant_method\": \"bitsandbytes\", \"load_in_4bit\": true, "
     "\"bnb_4bit_quant_type\": \"int3\"}}",
     TT_ERR_UNSUPPORTED, "int3"},
    {"{\"partial_rotary_factor\": 0.5, \"rope_scaling\": {\"type\": \"linear\", \"factor\": 2}}",
     TT_ERR_UNSUPPORTED, "partial_rotary_factor is 0.5"},
    {"{\"partial_rotary_factor\": 2}", TT_ERR_DATA, "partial_rotary_factor"},
    {"{\"rope_scaling\": {\"type\": \"dynamic\"}}", TT_ERR_DATA, "factor"},
    {"{\"rope_scaling\": {\"type\": \"su\"}}", TT_ERR_UNSUPPORTED, "the rope type 'su'"},
    {"{\"rope_scaling\": {\"rope_type\": \"longrope\"}}", TT_ERR_DATA, "short_factor"},
    {"{\"model_type\": \"phi3\", \"rope_scaling\": {\"type\": \"dynamic\", \"factor\": 2}}",
     TT_ERR_UNSUPPORTED, "dynamic"},
    {"{\"model_type\": \"phi3\", \"rope_scaling\": {\"type\": \"longrope\"}}", TT_ERR_DATA, "short_factor"},
    {"{\"model_type\": \"phi3\", \"rope_scaling\": {\"type\": \"su\", \"short_factor\": [1, 2, 3]}}",
     TT_ERR_DATA, "short_factor"},
    {"{\"model_type\": \"phi3\", \"rope_scaling\": {\"type\": \"longrope\", \"short_factor\": [1, 1, 1, 0], "
     "\"long_factor\": [1, 1, 1, 1]}}",
     TT_ERR_DATA, "short_factor"},
    {"{\"model_type\": \"phi3\", \"rope_scaling\": {\"type\": \"llama3\"}}", TT_ERR_UNSUPPORTED, "llama3"},
    {"{\"model_type\": \"phi3\", \"partial_rotary_factor\": 0.1}", TT_ERR_DATA, "partial_rotary_factor"},
    {"{\"model_type\": \"gemma2\", \"attn_logit_softcapping\": 0}", TT_ERR_DATA, "attn_logit_softcapping"},
    {"{\"model_type\": \"gemma2\", \"final_logit_softcapping\": -30}", TT_ERR_DATA,
     "final_logit_softcapping"},
    {"{\"model_type\": \"gemma2\", \"hidden_activation\": \"relu\"}", TT_ERR_UNSUPPORTED,
     "hidden_activation 'relu'"},
    {"{\"model_type\": \"gemma2\", \"use_bidirectional_attention\": true}", TT_ERR_UNSUPPORTED,
     "use_bidirectional_attention"},
    {"{\"model_type\": \"gemma2\", \"sliding_window\": 0}", TT_ERR_DATA, "sliding_window"},
    {"{\"rope_scaling\": {\"type\": \"linear\"}}", TT_ERR_DATA, "factor"},
    {"{\"rope_scaling\": {\"type\": \"linear\", \"factor\": 0}}", TT_ERR_DATA, "factor"},
    {"{\"rope_scaling\": [2]}", TT_ERR_DATA, "rope_scaling"},
    {"{\"rope_parameters\": {\"full_attention\": {\"rope_theta\": 1e4}}}", TT_ERR_UNSUPPORTED,
     "rope_parameters"},
    {"{\"rope_scaling\": {\"rope_type\": \"llama3\", \"factor\": 8, \"low_freq_factor\": 4, "
     "\"high_freq_factor\": 4, "
     "\"original_max_position_embeddings\": 64}}",
     TT_ERR_DATA, "high_freq_factor"},
    {"{\"rope_scaling\": {\"rope_type\": \"llama3\", \"factor\": 8, \"low_freq_factor\": 1, "
     "\"high_freq_factor\": 4, "
     "\"original_max_position_embeddings\": 0}}",
     TT_ERR_DATA, "original_max_position_embeddings"},
    {"{\"eos_token_id\": 100}", TT_ERR_DATA, "eos_token_id"},
    {"{\"eos_token_id\": [1, \"x\"]}", TT_ERR_DATA, "eos_token_id"},
    {"{\"eos_token_id\": [1,1,1,1,1,1,1,1,1]}", TT_ERR_DATA, "eos_token_id"},
    {"{\"bos_token_id\": -7}", TT_ERR_DATA, "bos_token_id"},
    {"{\"model_type\": \"mistral\", \"num_key_value_heads\": 2, \"sliding_window\": 0}", TT_ERR_DATA,
     "sliding_window"},
    {"{\"model_type\": \"mistral\", \"num_key_value_heads\": 2, \"layer_types\": [\"full_attention\"]}",
     TT_ERR_DATA, "layer_types"},
    {"{\"model_type\": \"qwen2\", \"num_key_value_heads\": 2, \"use_sliding_window\": true, \"layer_types\": "
     "[\"full_attention\"]}",
     TT_ERR_DATA, "layer_types"},
    {"{\"model_type\": \"qwen2\", \"num_key_value_heads\": 2, \"use_sliding_window\": true, "
     "\"layer_types\": [\"full_attention\", \"chunked_attention\", \"full_attention\"]}",
     TT_ERR_UNSUPPORTED, "chunked_attention"},
    {"{\"model_type\": \"qwen3_moe\", \"num_experts\": 4}", TT_ERR_DATA, "num_experts_per_tok is 8"},
    {"{\"model_type\": \"qwen3_moe\", \"num_experts\": 1025}", TT_ERR_DATA, "num_experts is 1025"},
    {"{\"model_type\": \"qwen3_moe\", \"mlp_only_layers\": [\"0\"]}", TT_ERR_DATA,
     "an entry that is no number of a layer"},
    {"{\"model_type\": \"mixtral\", \"num_key_value_heads\": 2, \"router_jitter_noise\": 0.1}",
     TT_ERR_UNSUPPORTED, "router_jitter_noise is 0.1"},
    {"{\"model_type\": \"mixtral\", \"num_key_value_heads\": 2, \"router_aux_loss_coef\": -1}", TT_ERR_DATA,
     "router_aux_loss_coef is -1; it must be 0 to 1e6"},
    {"{\"model_type\": \"olmoe\", \"clip_qkv\": 8}", TT_ERR_UNSUPPORTED, "clip_qkv of an olmoe model"},
    {"{\"model_type\": \"qwen3_next\", \"num_experts\": 8}", TT_ERR_DATA, "num_experts_per_tok is 10"},
    {HEADS2("glm4_moe") "\"n_group\": 3}", TT_ERR_DATA, "128 experts cannot be in 3 groups (n_group)"},
    {HEADS2("glm4_moe") "\"n_group\": 2, \"topk_group\": 3}", TT_ERR_DATA, "topk_group is 3"},
    {HEADS2("glm4_moe") "\"n_group\": 64, \"topk_group\": 3}", TT_ERR_DATA,
     "num_experts_per_tok is 8; topk_group leaves 6 experts"},
    {HEADS2("glm4_moe") "\"routed_scaling_factor\": 0}", TT_ERR_DATA, "routed_scaling_factor is 0"},
    {HEADS2("gpt_oss") "\"swiglu_limit\": 8}", TT_ERR_UNSUPPORTED, "swiglu_limit is 8; only 7 is supported"},
    {HEADS2("minimax_m2") "\"rotary_dim\": 130}", TT_ERR_DATA, "rotary_dim is 130"},
    {HEADS2("minimax_m2") "\"router_jitter_noise\": 0.5}", TT_ERR_UNSUPPORTED, "router_jitter_noise is 0.5"},
    {"{\"model_type\": \"qwen3_next\", \"num_experts\": 0, \"linear_num_value_heads\": 17}", TT_ERR_DATA,
     "linear_num_value_heads is not a multiple"},
    {"{\"model_type\": \"nemotron_h\"}", TT_ERR_DATA, "neither layers_block_type nor hybrid_override"},
    {HEADS2("nemotron_h") "\"moe_latent_size\": 8, \"hybrid_override_pattern\": \"M-E\"}", TT_ERR_UNSUPPORTED,
     "moe_latent_size, experts behind a narrow linear"},
    {HEADS2("nemotron_h") "\"hybrid_override_pattern\": \"M-X\"}", TT_ERR_UNSUPPORTED,
     "layer type 'X' of layer 2"},
    {HEADS2("nemotron_h") "\"layers_block_type\": [\"mamba\", \"mlp\", 3]}", TT_ERR_UNSUPPORTED,
     "layer type '(not a string)' of layer 2"},
    {HEADS2("nemotron_h") "\"num_hidden_layers\": 4, \"hybrid_override_pattern\": \"M-*\"}", TT_ERR_DATA,
     "num_hidden_layers is 4, and there are types of 3 layers"},
    {HEADS2("nemotron_h") "\"hybrid_override_pattern\": \"M-*\", \"num_hidden_layers\": 3, "
                          "\"mamba_hidden_act\": \"gelu\"}",
     TT_ERR_UNSUPPORTED, "mamba_hidden_act 'gelu'"},
    {HEADS2("nemotron_h") "\"num_hidden_layers\": 3, \"hybrid_override_pattern\": \"M-*\", \"n_groups\": 3}",
     TT_ERR_DATA, "mamba_num_heads is not a multiple of n_groups"},
};

static void absurd_values_are_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof refusals / sizeof refusals[0]; i++) {
        struct tt_model_facts config = {.vocab_size = -77};
        tt_status status = parse(refusals[i].changes, &config);
        if (status != refusals[i].status)
            fail_msg("%s: status %s", refusals[i].changes, tt_status_name(status));
        if (strstr(tt_error_last()->message, refusals[i].word) == NULL) {
            fail_msg("%s: the message is '%s'", refusals[i].changes, tt_error_last()->message);
        }
        assert_int_equal(config.vocab_size, -77); /* written on success only */
    }
}

/* The setting router_aux_loss_coef. */
static void another_coefficient(void **state)
{
    (void)state;
    struct tt_model_facts facts;
    assert_int_equal(parse("{\"model_type\": \"mixtral\", \"num_key_value_heads\": 2}", &facts), TT_OK);
    assert_true(facts.balance.experts == 8 && facts.balance.slots == 2 && facts.balance.coefficient == 0.001);
    assert_int_equal(tt_model_facts_balance(&facts, -1), TT_OK);
    assert_true(facts.balance.coefficient == 0.001);
    assert_int_equal(tt_model_facts_balance(&facts, 0.5), TT_OK);
    assert_true(facts.balance.coefficient == 0.5);
    assert_int_equal(parse("{}", &facts), TT_OK);
    assert_int_equal(tt_model_facts_balance(&facts, 0), TT_OK);
    assert_int_equal(tt_model_facts_balance(&facts, 0.5), TT_ERR_USAGE);
    assert_non_null(strstr(tt_error_last()->message, "has no experts whose load could be balanced"));
}

#define TEXT                                                                                                 \
    "\"vocab_size\": 100, \"hidden_size\": 32, \"intermediate_size\": 48, \"num_hidden_layers\": 3, "        \
    "\"num_attention_heads\": 4, \"num_key_value_heads\": 2"

static tt_status parse_whole(const char *text, struct tt_model_facts *facts)
{
    struct tt_json json = {0};
    assert_int_equal(tt_json_parse(text, strlen(text), "config.json", &json), TT_OK);
    tt_status status = tt_model_facts_parse(&json, facts);
    tt_json_deinit(&json);
    return status;
}

/* The text part of a vision folder, in old and new files, and which of two values counts. */
static void text_parts(void **state)
{
    (void)state;
    static const struct {
        const char *text, *model_type, *path;
        bool tied;
        double theta;
        tt_dtype dtype;
    } wholes[] = {
        /* text_config without a model_type, and all that published files of Gemma 3 leave out */
        {"{\"model_type\": \"gemma3\", \"torch_dtype\": \"bfloat16\", \"text_config\": {\"hidden_size\": "
         "2560, "
         "\"intermediate_size\": 10240, \"num_hidden_layers\": 34, \"rope_scaling\": {\"factor\": 8.0, "
         "\"rope_type\": \"linear\"}, \"sliding_window\": 1024}, \"eos_token_id\": [1, 106]}",
         "gemma3_text", "model.language_model", true, 1e6, TT_BF16},
        /* what text_config says of ties does not count, nor its default */
        {"{\"model_type\": \"mistral3\", \"text_config\": {\"model_type\": \"mistral\", \"dtype\": "
         "\"float16\", "
         "\"tie_word_embeddings\": false, " TEXT "}}",
         "mistral", "model.language_model", true, 1e4, TT_F16},
        {"{\"model_type\": \"mistral3\", \"tie_word_embeddings\": false, \"text_config\": {" TEXT "}}",
         "mistral", "model.language_model", false, 1e4, TT_F32},
        /* flat, as published before 4.52 */
        {"{\"model_type\": \"qwen2_5_vl\", \"rope_scaling\": {\"type\": \"mrope\", \"mrope_section\": [1, 1, "
         "2]}, "
         "\"rope_theta\": 5e4, " TEXT "}",
         "qwen2_5_vl_text", "model.language_model", false, 5e4, TT_F32},
        {"{\"model_type\": \"qwen2_5_vl\", \"text_config\": {\"model_type\": \"qwen2_5_vl_text\", "
         "\"tie_word_embeddings\": true, " TEXT "}}",
         "qwen2_5_vl_text", "model.language_model", true, 1e6, TT_F32},
        {"{\"model_type\": \"qwen3_vl\", \"text_config\": {\"tie_word_embeddings\": true, " TEXT "}}",
         "qwen3_vl_text", "model.language_model", false, 5e5, TT_F32},
        {"{\"model_type\": \"qwen3_5\", \"text_config\": {\"rope_theta\": 2e4, " TEXT "}}", "qwen3_5_text",
         "model.language_model", false, 2e4, TT_F32},
        {"{\"model_type\": \"lfm2_vl\", \"text_config\": {\"rope_theta\": 3e4, " TEXT "}}", "lfm2",
         "model.language_model", true, 3e4, TT_F32},
        {"{\"model_type\": \"smolvlm\", \"architectures\": [\"SmolVLMModel\"], \"text_config\": {" TEXT "}}",
         "llama", "model.text_model", false, 1e4, TT_F32},
        {"{\"model_type\": \"gemma4\", \"text_config\": {\"hidden_size_per_layer_input\": 0, " TEXT "}}",
         "gemma4_text", "model.language_model", true, 1e6, TT_F32},
        {"{\"model_type\": \"muse_glimmer\", \"text_config\": {" TEXT "}}", "muse_glimmer_text",
         "model.language_model", false, 1e4, TT_F32},
    };
    for (size_t i = 0; i < sizeof wholes / sizeof *wholes; i++) {
        static struct tt_model_facts facts;
        if (parse_whole(wholes[i].text, &facts) != TT_OK)
            fail_msg("%s: %s", wholes[i].text, tt_error_last()->message);
        assert_string_equal(facts.model_type, wholes[i].model_type);
        assert_string_equal(tt_model_text_path(&facts), wholes[i].path);
        assert_int_equal(facts.tie_word_embeddings, wholes[i].tied);
        assert_true(facts.ropes[0].theta == wholes[i].theta);
        assert_int_equal(facts.dtype, wholes[i].dtype);
        if (i > 0) continue;
        assert_int_equal(facts.vocab_size, 262208);
        assert_int_equal(facts.layers[0].kv_heads, 4);
        assert_int_equal(facts.eos_token_count, 2);
    }
    static const char other[] =
        "{\"model_type\": \"gemma3\", \"architectures\": [\"Gemma3ForSequenceClassification\"], "
        "\"text_config\": {" TEXT "}}",
                      inner[] = "{\"model_type\": \"mistral3\", \"text_config\": {\"model_type\": \"gpt2\"}}";
    struct tt_model_facts facts;
    assert_int_equal(parse_whole(other, &facts), TT_ERR_UNSUPPORTED);
    assert_non_null(strstr(tt_error_last()->message, "Gemma3ForConditionalGeneration"));
    assert_int_equal(parse_whole(inner, &facts), TT_ERR_UNSUPPORTED);
    assert_non_null(strstr(tt_error_last()->message, "'gpt2' are not supported as a text part"));
    assert_non_null(strstr(tt_error_last()->hint, "docs/models.md"));
}

/* Keys that only one family has, refused by their names. */
static void keys_of_families_are_refused(void **state)
{
#define GEMMA4(more) "{\"model_type\": \"gemma4_text\", \"hidden_size_per_layer_input\": 0, " TEXT more "}"
#define MUSE(more) "{\"model_type\": \"muse_glimmer_text\", " TEXT more "}"
#define LATENT(type, more)                                                                                   \
    "{\"model_type\": \"" type "\", \"vocab_size\": 100, \"hidden_size\": 32, \"intermediate_size\": 48, "   \
    "\"num_hidden_layers\": 3, \"num_attention_heads\": 4, \"num_key_value_heads\": 4" more "}"
    static const struct {
        const char *text, *message;
    } cases[] = {
        {LATENT("glm4_moe_lite", ", \"mlp_layer_types\": [\"dense\", \"sparse\"]"),
         "mlp_layer_types has 2 entries for 3 layers"},
        {LATENT("deepseek_v3", ", \"qk_rope_head_dim\": 7"), "qk_rope_head_dim is 7"},
        {LATENT("deepseek_v3", ", \"qk_nope_head_dim\": 500"),
         "qk_nope_head_dim + qk_rope_head_dim is 564; it must be between 1 and 512"},
        {LATENT("deepseek_v3", ", \"kv_lora_rank\": 0"), "kv_lora_rank is 0"},
        {LATENT("mistral4", ", \"rope_parameters\": {\"type\": \"yarn\", \"factor\": 4, "
                            "\"partial_rotary_factor\": 0.25}"),
         "32 columns of a head rotate by partial_rotary_factor, and 64 by qk_rope_head_dim"},
        {"{\"model_type\": \"deepseek_v3\", " TEXT "}",
         "num_key_value_heads is 2; latents make k and v of as many heads as q, 4"},
        {GEMMA4(", \"enable_moe_block\": true"), "num_experts"},
        {GEMMA4(", \"enable_moe_block\": true, \"num_experts\": 4"), "top_k_experts"},
        {GEMMA4(", \"enable_moe_block\": true, \"num_experts\": 4, \"top_k_experts\": 5, "
                "\"moe_intermediate_size\": 8"),
         "top_k_experts is 5; it must be between 1 and 4"},
        {GEMMA4(", \"num_kv_shared_layers\": 3"), "num_kv_shared_layers is 3; it must be between 0 and 2"},
        {GEMMA4(", \"num_kv_shared_layers\": 2, \"layer_types\": [\"full_attention\", \"sliding_attention\", "
                "\"full_attention\"]"),
         "no layer of the type of layer 1 has keys of its own"},
        {"{\"model_type\": \"gemma4_text\", \"hidden_size_per_layer_input\": -1, " TEXT "}",
         "hidden_size_per_layer_input is -1"},
        {GEMMA4(", \"use_bidirectional_attention\": \"all\""), "needs attention to later tokens"},
        {GEMMA4(", \"per_layer_config\": {\"2\": {\"num_key_value_heads\": 3}}"),
         "4 heads cannot share 3 key/value heads of 256 columns"},
        {GEMMA4(", \"per_layer_config\": {\"2\": {\"head_dim\": 514}}"), "head_dim is 514"},
        {GEMMA4(", \"per_layer_config\": {\"1\": {\"head_dim\": 128}}"),
         "head_dim of layer 1 differs from that of others of its type"},
        {"{\"model_type\": \"gemma4_text\", \"vocab_size_per_layer_input\": 2, " TEXT "}",
         "vocab_size_per_layer_input is 2"},
        {GEMMA4(", \"per_layer_config\": {\"03\": {\"head_dim\": 128}}"), "'03' is no layer of 3"},
        {GEMMA4(", \"per_layer_config\": {\"1x\": {\"head_dim\": 128}}"), "'1x' is no layer of 3"},
        {"{\"model_type\": \"mistral3\", \"text_config\": {\"layer_types\": [\"sliding_attention\", "
         "\"full_attention\", \"sliding_attention\"], " TEXT "}}",
         "layer_types of a mistral model has layers without the window"},
        {MUSE(", \"layer_rope_theta\": [1, 0]"), "layer_rope_theta has 2 entries for 3 layers"},
        {MUSE(", \"layer_rope_theta\": [1, 0, \"x\"]"), "layer_rope_theta is not a list of numbers"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        static struct tt_model_facts facts;
        assert_true(parse_whole(cases[i].text, &facts) != TT_OK);
        if (strstr(tt_error_last()->message, cases[i].message) == NULL)
            fail_msg("%s: %s", cases[i].text, tt_error_last()->message);
    }
}

/* Heads by layer in published and in saved files, the rotations of both types of layers, and the last layer's type. */
static void layers_of_gemma4(void **state)
{
    static const char *const texts[] = {
        GEMMA4(", \"attention_k_eq_v\": true, \"global_head_dim\": 64, \"num_global_key_value_heads\": 1, "
               "\"head_dim\": 16, \"layer_types\": [\"full_attention\", \"sliding_attention\", "
               "\"sliding_attention\"]"),
        GEMMA4(", \"attention_k_eq_v\": true, \"per_layer_config\": {\"0\": {\"head_dim\": 64, "
               "\"num_key_value_heads\": 1}, \"02\": {\"head_dim\": 64, \"num_key_value_heads\": 1}}, "
               "\"head_dim\": 16, \"layer_types\": [\"full_attention\", \"sliding_attention\", "
               "\"full_attention\"]"),
    };
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        static struct tt_model_facts facts;
        assert_int_equal(parse_whole(texts[i], &facts), TT_OK);
        for (int layer = 0; layer < 3; layer++) {
            const struct tt_layer_facts *each = &facts.layers[layer];
            bool full = layer != 1;
            assert_int_equal(each->head_dim, full ? 64 : 16);
            assert_int_equal(each->kv_heads, full ? 1 : 2);
            assert_int_equal(each->window, full ? 0 : 512);
            assert_int_equal(each->keys_as_values, full);
        }
        const struct tt_rope *full = &facts.ropes[facts.layers[0].rope],
                             *sliding = &facts.ropes[facts.layers[1].rope];
        assert_true(full->type == TT_ROPE_PROPORTIONAL && full->columns == 64 && full->turning == 8);
        assert_true(full->theta == 1e6 && sliding->theta == 1e4 && sliding->columns == 16);
    }
}

/* Values of transformers 5.23, ROPE_INIT_FUNCTIONS: {"rope_type": "yarn", "factor": 4,
 * "original_max_position_embeddings": 64}, theta 1e4, head_dim 16; inv_freq and attention_factor. */
static void yarn_frequencies(void **state)
{
    (void)state;
    static const double frequency[] = {1,
                                       0.237170815,
                                       0.049999997,
                                       0.00790569466,
                                       0.00249999994,
                                       0.000790569466,
                                       0.000250000012,
                                       7.90569466e-05};
    struct tt_model_facts config =
        parsed("{\"head_dim\": 16, \"max_position_embeddings\": 256, \"rope_scaling\": {\"rope_type\": "
               "\"yarn\", \"factor\": 4.0, \"original_max_position_embeddings\": 64}}");
    struct tt_rope_parts parts;
    float cos_PE[2 * 8], sin_PE[2 * 8];
    tt_rope_parts_make(&config, 2, &parts);
    tt_model_fill_rope(&config.ropes[0], &parts, cos_PE, sin_PE);
    for (int e = 0; e < 8; e++) {
        double factor = 1.13862943611;
        assert_true(fabs(cos_PE[8 + e] - factor * cos(frequency[e])) < 2e-7);
        assert_true(fabs(sin_PE[8 + e] - factor * sin(frequency[e])) < 2e-7);
        assert_true(fabs(cos_PE[e] - factor) < 2e-7 && sin_PE[e] == 0);
    }
}

/* Against the definition in fp64: a part with the short factors for sequences within the original positions, and one
 * with the long factors for longer ones, from position 0. */
static void longrope_tables(void **state)
{
    (void)state;
    enum { COLUMNS = 6, HALF = COLUMNS / 2, ORIGINAL = 8, LENGTH = 11, ROWS = ORIGINAL + LENGTH };
    static struct tt_model_facts facts = {.rope_count = 1};
    static const struct tt_rope rope = {.type = TT_ROPE_LONGROPE,
                                        .columns = COLUMNS,
                                        .theta = 100,
                                        .original_max_position = ORIGINAL,
                                        .attention_factor = 1.25,
                                        .short_factor = {1, 1.5f, 2},
                                        .long_factor = {3, 5, 7}};
    struct tt_rope_parts parts;
    float cosine[ROWS * HALF], sine[ROWS * HALF];
    facts.ropes[0] = rope;
    tt_rope_parts_make(&facts, LENGTH, &parts);
    assert_true(parts.count == 2 && parts.rows == ROWS);
    for (int64_t length = 1; length <= LENGTH; length++)
        assert_int_equal(tt_rope_part_of(&parts, length), length > ORIGINAL);
    tt_model_fill_rope(&rope, &parts, cosine, sine);
    for (int64_t i = 0; i < ROWS * HALF; i++) {
        int64_t e = i % HALF, row = i / HALF, position = row < ORIGINAL ? row : row - ORIGINAL;
        const float *factors = row < ORIGINAL ? rope.short_factor : rope.long_factor;
        double angle = (double)position / ((double)factors[e] * pow(100, 2.0 * (double)e / COLUMNS));
        assert_true(fabs(cosine[i] - 1.25 * cos(angle)) < 2e-6);
        assert_true(fabs(sine[i] - 1.25 * sin(angle)) < 2e-6);
    }
}

/* Borders of two rotations, in order and each once; none beyond the longest sequence. */
static void rope_parts(void **state)
{
    (void)state;
    static struct tt_model_facts facts = {
        .rope_count = 2,
        .ropes = {{.type = TT_ROPE_LONGROPE, .original_max_position = 8},
                  {.type = TT_ROPE_LONGROPE, .original_max_position = 5}},
    };
    struct tt_rope_parts parts;
    tt_rope_parts_make(&facts, 20, &parts);
    assert_true(parts.count == 3 && parts.rows == 33);
    assert_true(parts.ends[0] == 5 && parts.ends[1] == 8 && parts.ends[2] == 20);
    assert_true(parts.first_rows[0] == 0 && parts.first_rows[1] == 5 && parts.first_rows[2] == 13);
    assert_true(tt_rope_part_of(&parts, 5) == 0 && tt_rope_part_of(&parts, 6) == 1);
    assert_true(tt_rope_part_of(&parts, 8) == 1 && tt_rope_part_of(&parts, 9) == 2);
    tt_rope_parts_make(&facts, 8, &parts);
    assert_true(parts.count == 2 && parts.rows == 13);
    facts.ropes[1].original_max_position = 8;
    tt_rope_parts_make(&facts, 9, &parts);
    assert_true(parts.count == 2 && parts.rows == 17);
    facts.ropes[0].type = facts.ropes[1].type = TT_ROPE_YARN;
    tt_rope_parts_make(&facts, 20, &parts);
    assert_true(parts.count == 1 && parts.rows == 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(defaults),
        cmocka_unit_test(both_spellings),
        cmocka_unit_test(windows),
        cmocka_unit_test(absurd_values_are_refused),
        cmocka_unit_test(another_coefficient),
        cmocka_unit_test(text_parts),
        cmocka_unit_test(yarn_frequencies),
        cmocka_unit_test(longrope_tables),
        cmocka_unit_test(rope_parts),
        cmocka_unit_test(keys_of_families_are_refused),
        cmocka_unit_test(layers_of_gemma4),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
