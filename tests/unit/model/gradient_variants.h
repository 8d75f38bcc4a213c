/* Small models of every kind of layer: texts of config.json, what is built of them, what trains. */
#ifndef TT_TESTS_UNIT_MODEL_GRADIENT_VARIANTS_H
#define TT_TESTS_UNIT_MODEL_GRADIENT_VARIANTS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include "model/llama.h"
#include "support/model_facts.h"
#include "support/model_runner.h"

struct variant {
    const char *name;
    const char *text; /* config.json; NULL: a llama with the features below */
    bool attention_bias, output_bias, mlp_bias, qk_norm, tied, train_base;
    bool no_rope; /* the last layer has no rotation */
    int64_t window;
    const char *target_modules, *target_parameters, *modules_to_save, *layers_to_transform;
    double dropout, smoothing, noise;
    bool unaligned; /* weights of a group do not lie next to each other */
};

static const char phi3[] =
    "{\"model_type\": \"phi3\", \"vocab_size\": 37, \"hidden_size\": 16, \"intermediate_size\": 24, "
    "\"num_hidden_layers\": 2, \"num_attention_heads\": 4, \"num_key_value_heads\": 2, "
    "\"head_dim\": 8, \"max_position_embeddings\": 256, \"original_max_position_embeddings\": "
    "64, \"rms_norm_eps\": 1e-5, \"pad_token_id\": null, \"rope_parameters\": {\"rope_type\": "
    "\"longrope\", \"rope_theta\": 100, \"partial_rotary_factor\": 0.5, \"short_factor\": [1, "
    "1.5], \"long_factor\": [2, 3]}}";

static const char gemma3[] =
    "{\"model_type\": \"gemma3_text\", \"vocab_size\": 37, \"hidden_size\": 16, "
    "\"intermediate_size\": 24, \"num_hidden_layers\": 2, \"num_attention_heads\": 4, "
    "\"num_key_value_heads\": 2, \"head_dim\": 8, \"max_position_embeddings\": 64, "
    "\"rms_norm_eps\": 1e-5, \"query_pre_attn_scalar\": 10, \"sliding_window\": 4, "
    "\"sliding_window_pattern\": 2, \"tie_word_embeddings\": true, \"rope_theta\": 100, "
    "\"rope_local_base_freq\": 50}";

static const char gemma2[] =
    "{\"model_type\": \"gemma2\", \"vocab_size\": 37, \"hidden_size\": 16, "
    "\"intermediate_size\": 24, \"num_hidden_layers\": 2, \"num_attention_heads\": 4, "
    "\"num_key_value_heads\": 2, \"head_dim\": 8, \"max_position_embeddings\": 64, "
    "\"rms_norm_eps\": 1e-5, \"query_pre_attn_scalar\": 60, \"sliding_window\": 4, "
    "\"attn_logit_softcapping\": 2, \"final_logit_softcapping\": 3, "
    "\"tie_word_embeddings\": true, \"rope_theta\": 100}";

#define DENSE(type, more)                                                                                    \
    "{\"model_type\": \"" type "\", \"vocab_size\": 37, \"hidden_size\": 16, \"intermediate_size\": 24, "    \
    "\"num_hidden_layers\": 2, \"num_attention_heads\": 4, \"num_key_value_heads\": 2, \"head_dim\": 8, "    \
    "\"max_position_embeddings\": 64, \"rms_norm_eps\": 1e-5, \"rope_theta\": 100" more "}"

static const char glm4[] = DENSE("glm4", "");
static const char granite[] =
    DENSE("granite", ", \"embedding_multiplier\": 3, \"attention_multiplier\": 0.5, "
                     "\"residual_multiplier\": 0.6, \"logits_scaling\": 1.7");
static const char olmo2[] = DENSE("olmo2", "");
static const char exaone4[] = DENSE("exaone4", ", \"sliding_window\": 4, \"sliding_window_pattern\": 2");
static const char hunyuan[] = DENSE("hunyuan_v1_dense", ", \"attention_bias\": true");

static const char ministral3[] = DENSE(
    "ministral3", ", \"rope_parameters\": {\"rope_type\": \"yarn\", \"factor\": 4, \"rope_theta\": 100, "
                  "\"original_max_position_embeddings\": 3, \"llama_4_scaling_beta\": 0.5}");

static const char cohere2[] =
    DENSE("cohere2", ", \"sliding_window\": 4, \"sliding_window_pattern\": 2, \"logit_scale\": 0.6");

static const char muse[] = DENSE(
    "muse_glimmer_text", ", \"sliding_window\": 4, \"attention_bias\": true, \"layer_rope_theta\": [1, 0], "
                         "\"qk_scale_factor\": 2, \"output_multiplier\": 2, \"final_logit_softcapping\": 3");

static const char gemma4[] =
    DENSE("gemma4_text",
          ", \"hidden_size_per_layer_input\": 0, \"sliding_window\": 4, \"attention_k_eq_v\": true, "
          "\"global_head_dim\": 12, \"num_global_key_value_heads\": 1, \"final_logit_softcapping\": 3, "
          "\"layer_types\": [\"sliding_attention\", \"full_attention\"]");

static const char gemma4_e[] =
    DENSE("gemma4_text",
          ", \"hidden_size_per_layer_input\": 6, \"vocab_size_per_layer_input\": 37, \"sliding_window\": 4, "
          "\"num_kv_shared_layers\": 1, \"use_double_wide_mlp\": true, \"global_head_dim\": 12, "
          "\"layer_types\": [\"full_attention\", \"full_attention\"]");

static const char gemma4_moe[] = DENSE(
    "gemma4_text", ", \"hidden_size_per_layer_input\": 0, \"sliding_window\": 4, \"enable_moe_block\": true, "
                   "\"num_experts\": 3, \"top_k_experts\": 3, \"moe_intermediate_size\": 5, "
                   "\"layer_types\": [\"sliding_attention\", \"full_attention\"]");

static const char qwen3_5[] =
    DENSE("qwen3_5_text",
          ", \"linear_num_key_heads\": 2, \"linear_num_value_heads\": 4, \"linear_key_head_dim\": 16, "
          "\"linear_value_head_dim\": 5, \"partial_rotary_factor\": 0.5, "
          "\"layer_types\": [\"linear_attention\", \"full_attention\"]");

static const char granite4[] = DENSE(
    "granitemoehybrid", ", \"num_local_experts\": 0, \"shared_intermediate_size\": 24, \"mamba_n_heads\": 4, "
                        "\"mamba_n_groups\": 2, \"mamba_d_state\": 6, \"residual_multiplier\": 0.6, "
                        "\"layer_types\": [\"mamba\", \"attention\"]");
static const char lfm2[] =
    DENSE("lfm2", ", \"conv_bias\": true, \"block_multiple_of\": 8, \"full_attn_idxs\": [1]");

#define LATENT(type, more) LATENT_AT(type, "2", more)
#define LATENT_AT(type, dense, more)                                                                         \
    "{\"model_type\": \"" type "\", \"vocab_size\": 37, \"hidden_size\": 16, \"intermediate_size\": 24, "    \
    "\"num_hidden_layers\": 2, \"num_attention_heads\": 4, \"num_key_value_heads\": 4, "                     \
    "\"max_position_embeddings\": 64, \"rms_norm_eps\": 1e-5, \"first_k_dense_replace\": " dense ", "        \
    "\"kv_lora_rank\": 6, \"qk_nope_head_dim\": 6, \"qk_rope_head_dim\": 4" more "}"

static const char deepseek_v3[] = LATENT(
    "deepseek_v3", ", \"q_lora_rank\": 7, \"v_head_dim\": 5, \"attention_bias\": true, "
                   "\"rope_scaling\": {\"type\": \"yarn\", \"factor\": 4, \"mscale\": 1, \"mscale_all_dim\": "
                   "0.7, \"original_max_position_embeddings\": 16}");
static const char mistral4[] =
    LATENT("mistral4", ", \"q_lora_rank\": 8, \"v_head_dim\": 10, \"rope_parameters\": {\"type\": \"yarn\", "
                       "\"rope_theta\": 100, \"factor\": 4, \"llama_4_scaling_beta\": 0.3, "
                       "\"original_max_position_embeddings\": 2}");
static const char glm4_moe_lite[] =
    LATENT("glm4_moe_lite", ", \"q_lora_rank\": null, \"v_head_dim\": 12, \"rope_theta\": 100, "
                            "\"rope_interleave\": false, \"mlp_layer_types\": [\"dense\", \"dense\"]");

/* Every token has all experts: where it has some, the loss jumps as its choice changes. */
static const char qwen3_moe[] =
    DENSE("qwen3_moe", ", \"num_experts\": 4, \"num_experts_per_tok\": 4, \"moe_intermediate_size\": 10, "
                       "\"norm_topk_prob\": true, \"mlp_only_layers\": [0]");
static const char olmoe[] = DENSE("olmoe", ", \"num_experts\": 3, \"num_experts_per_tok\": 3");
/* an eps that keeps what is normed away from 0, where differences of fp32 say nothing */
static const char qwen3_next[] =
    "{\"model_type\": \"qwen3_next\", \"vocab_size\": 37, \"hidden_size\": 16, \"intermediate_size\": 24, "
    "\"num_hidden_layers\": 2, \"num_attention_heads\": 4, \"num_key_value_heads\": 2, \"head_dim\": 8, "
    "\"max_position_embeddings\": 64, \"rms_norm_eps\": 0.1, \"rope_theta\": 100, \"num_experts\": 3, "
    "\"num_experts_per_tok\": 3, \"moe_intermediate_size\": 10, \"shared_expert_intermediate_size\": 12, "
    "\"mlp_only_layers\": [1], "
    "\"partial_rotary_factor\": 0.5, \"linear_num_key_heads\": 2, \"linear_num_value_heads\": 4, "
    "\"linear_key_head_dim\": 16, \"linear_value_head_dim\": 6, "
    "\"layer_types\": [\"linear_attention\", \"full_attention\"]}";
static const char nemotron_h[] =
    "{\"model_type\": \"nemotron_h\", \"vocab_size\": 37, \"hidden_size\": 16, \"intermediate_size\": 24, "
    "\"num_attention_heads\": 4, \"num_key_value_heads\": 2, \"head_dim\": 8, \"n_groups\": 2, "
    "\"max_position_embeddings\": 64, \"mamba_num_heads\": 4, \"mamba_head_dim\": 5, "
    "\"ssm_state_size\": 6, \"mlp_bias\": true, \"hybrid_override_pattern\": \"M*-\"}";

#define EXPERTS3                                                                                             \
    ", \"n_routed_experts\": 3, \"num_experts_per_tok\": 3, \"moe_intermediate_size\": 10, \"n_group\": 1, " \
    "\"topk_group\": 1"
static const char glm4_moe[] = DENSE("glm4_moe", EXPERTS3 ", \"use_qk_norm\": true, \"n_shared_experts\": 2");
static const char mistral4_experts[] =
    LATENT_AT("mistral4", "1", EXPERTS3 ", \"q_lora_rank\": 8, \"v_head_dim\": 10, \"rope_theta\": 100");
static const char gpt_oss[] =
    DENSE("gpt_oss", ", \"num_local_experts\": 3, \"num_experts_per_tok\": 3, \"sliding_window\": 3");
static const char qwen2_moe[] =
    DENSE("qwen2_moe", ", \"num_experts\": 3, \"num_experts_per_tok\": 3, \"moe_intermediate_size\": 10, "
                       "\"shared_expert_intermediate_size\": 12");

static const struct variant variants[] = {
    {.name = "full", .train_base = true},
    {.name = "full, heads of latents, narrow values", .text = deepseek_v3, .train_base = true},
    {.name = "lora, heads of latents, narrow values",
     .text = deepseek_v3,
     .target_modules = "all-linear",
     .dropout = 0.2},
    {.name = "full, heads of latents, a temperature of queries", .text = mistral4, .train_base = true},
    {.name = "lora, heads of latents, a temperature of queries",
     .text = mistral4,
     .target_modules = "all-linear"},
    {.name = "full, heads of a latent of k and v, wide values", .text = glm4_moe_lite, .train_base = true},
    {.name = "lora, heads of a latent of k and v, wide values",
     .text = glm4_moe_lite,
     .target_modules = "all-linear",
     .dropout = 0.2},
    {.name = "lora on the heads of latents alone",
     .text = deepseek_v3,
     .target_modules = "[\"q_b_proj\", \"kv_b_proj\"]"},
    {.name = "full, experts behind a dense layer", .text = qwen3_moe, .train_base = true},
    {.name = "lora, experts and router", .text = qwen3_moe, .target_modules = "all-linear"},
    {.name = "lora on attention beside experts",
     .text = qwen3_moe,
     .target_modules = "[\"q_proj\", \"k_proj\", \"v_proj\", \"o_proj\"]",
     .dropout = 0.2},
    {.name = "lora on experts and attention",
     .text = qwen3_moe,
     .target_modules = "[\"q_proj\", \"v_proj\"]",
     .target_parameters = "[\"gate_up_proj\", \"down_proj\"]"},
    {.name = "lora on down of experts alone",
     .text = glm4_moe,
     .target_parameters = "[\"experts.down_proj\"]"},
    {.name = "lora on gate and up of experts alone",
     .text = mistral4_experts,
     .target_parameters = "[\"experts.gate_up_proj\"]"},
    {.name = "lora on experts with biases",
     .text = gpt_oss,
     .target_parameters = "[\"gate_up_proj\", \"down_proj\"]"},
    {.name = "full, experts by sigmoids and shared ones", .text = glm4_moe, .train_base = true},
    {.name = "lora, experts by sigmoids, router in fp32", .text = glm4_moe, .target_modules = "all-linear"},
    {.name = "lora on a router alone", .text = glm4_moe, .target_parameters = "[\"mlp.gate.weight\"]"},
    {.name = "full, sinks and experts with biases", .text = gpt_oss, .train_base = true},
    {.name = "lora, sinks, biased experts", .text = gpt_oss, .target_modules = "all-linear", .dropout = 0.2},
    {.name = "full, heads of latents and experts", .text = mistral4_experts, .train_base = true},
    {.name = "lora, heads of latents and experts",
     .text = mistral4_experts,
     .target_modules = "all-linear",
     .dropout = 0.2},
    {.name = "full, experts and one behind a gate", .text = qwen2_moe, .train_base = true},
    {.name = "lora, experts and one behind a gate",
     .text = qwen2_moe,
     .target_modules = "all-linear",
     .dropout = 0.2},
    {.name = "full, experts whose weights do not add up to 1", .text = olmoe, .train_base = true},
    {.name = "full, two projections of a state", .text = qwen3_next, .train_base = true},
    {.name = "lora, two projections of a state", .text = qwen3_next, .target_modules = "all-linear"},
    {.name = "full, one half a layer, ReLU^2", .text = nemotron_h, .train_base = true},
    {.name = "lora, one half a layer, ReLU^2",
     .text = nemotron_h,
     .target_modules = "all-linear",
     .dropout = 0.2},
    {.name = "full, a state by Mamba-2", .text = granite4, .train_base = true},
    {.name = "lora, a state by Mamba-2", .text = granite4, .target_modules = "all-linear", .dropout = 0.2},
    {.name = "full, a convolution between gates", .text = lfm2, .train_base = true},
    {.name = "lora, a convolution between gates",
     .text = lfm2,
     .target_modules = "all-linear",
     .dropout = 0.2},
    {.name = "full, a state by the delta rule, a gate beside each head of q",
     .text = qwen3_5,
     .train_base = true},
    {.name = "lora, a state by the delta rule, a gate beside each head of q",
     .text = qwen3_5,
     .target_modules = "all-linear",
     .dropout = 0.2},
    {.name = "lora on the rates of a state alone",
     .text = qwen3_5,
     .target_modules = "[\"in_proj_a\", \"in_proj_b\"]"},
    {.name = "full, embeddings for each layer, keys of an earlier one", .text = gemma4_e, .train_base = true},
    {.name = "lora, embeddings for each layer, keys of an earlier one",
     .text = gemma4_e,
     .target_modules = "all-linear",
     .dropout = 0.2},
    {.name = "full, experts beside an MLP, their sum normed", .text = gemma4_moe, .train_base = true},
    {.name = "lora, experts beside an MLP, their sum normed",
     .text = gemma4_moe,
     .target_modules = "all-linear"},
    {.name = "full, values that are keys, normed values, heads of two sizes",
     .text = gemma4,
     .train_base = true},
    {.name = "lora, values that are keys, normed values, heads of two sizes",
     .text = gemma4,
     .target_modules = "all-linear",
     .dropout = 0.2},
    {.name = "full, a gate on attention, norms without weights", .text = muse, .train_base = true},
    {.name = "lora, a gate on attention, norms without weights",
     .text = muse,
     .target_modules = "all-linear",
     .dropout = 0.2},
    {.name = "lora on a gate alone",
     .text = muse,
     .target_modules = "[\"self_attn.gate_proj\"]",
     .layers_to_transform = "[0]"},
    {.name = "full, halves beside on one layer norm", .text = cohere2, .train_base = true},
    {.name = "lora, halves beside on one layer norm",
     .text = cohere2,
     .target_modules = "all-linear",
     .dropout = 0.2},
    {.name = "full, YaRN and a temperature of queries", .text = ministral3, .train_base = true},
    {.name = "lora, YaRN and a temperature of queries", .text = ministral3, .target_modules = "all-linear"},
    {.name = "full, rotation of neighbours in part", .text = glm4, .train_base = true},
    {.name = "lora, rotation of neighbours in part", .text = glm4, .target_modules = "all-linear"},
    {.name = "full, multipliers", .text = granite, .train_base = true},
    {.name = "lora, multipliers", .text = granite, .target_modules = "all-linear", .dropout = 0.2},
    {.name = "lora on a head behind a multiplier", .text = granite, .target_modules = "[\"lm_head\"]"},
    {.name = "full, norms behind halves alone, q/k norms over all heads", .text = olmo2, .train_base = true},
    {.name = "lora, norms behind halves alone, q/k norms over all heads",
     .text = olmo2,
     .target_modules = "all-linear",
     .dropout = 0.2},
    {.name = "full, norms behind halves alone, q/k norms", .text = exaone4, .train_base = true},
    {.name = "full, q/k norms after the rotation", .text = hunyuan, .train_base = true},
    {.name = "lora, q/k norms after the rotation", .text = hunyuan, .target_modules = "all-linear"},
    {.name = "full, norms around 1 and behind a half, GELU, scaled embeddings",
     .text = gemma3,
     .train_base = true},
    {.name = "lora, norms around 1 and behind a half, GELU, scaled embeddings",
     .text = gemma3,
     .target_modules = "all-linear",
     .dropout = 0.2},
    {.name = "full, capped scores and logits, smoothing",
     .text = gemma2,
     .train_base = true,
     .smoothing = 0.1},
    {.name = "lora, capped scores and logits",
     .text = gemma2,
     .target_modules = "all-linear",
     .dropout = 0.2},
    {.name = "full, fused linears, rotation in part, LongRoPE", .text = phi3, .train_base = true},
    {.name = "lora, fused linears, rotation in part, LongRoPE",
     .text = phi3,
     .target_modules = "all-linear",
     .dropout = 0.2},
    {.name = "full, tied, smoothing", .train_base = true, .tied = true, .smoothing = 0.1},
    {.name = "full, tied, noise on embeddings", .train_base = true, .tied = true, .noise = 5},
    {.name = "full, noise on scaled embeddings", .text = gemma3, .train_base = true, .noise = 5},
    {.name = "full, biases",
     .train_base = true,
     .attention_bias = true,
     .output_bias = true,
     .mlp_bias = true},
    {.name = "full, q/k norms", .train_base = true, .qk_norm = true},
    {.name = "full, window", .train_base = true, .window = 4},
    {.name = "full, a layer without rotation", .train_base = true, .no_rope = true},
    {.name = "lora, q/k norms, a layer without rotation",
     .target_modules = "all-linear",
     .qk_norm = true,
     .no_rope = true},
    {.name = "full, odd sizes",
     .train_base = true,
     .unaligned = true,
     .attention_bias = true,
     .qk_norm = true},
    {.name = "lora", .target_modules = "all-linear"},
    {.name = "lora, default targets, biases", .attention_bias = true},
    {.name = "lora, dropout", .target_modules = "all-linear", .dropout = 0.4},
    {.name = "lora, q/k norms, window", .target_modules = "all-linear", .qk_norm = true, .window = 3},
    {.name = "lora, odd sizes", .target_modules = "all-linear", .unaligned = true},
    {.name = "lora, odd sizes, dropout", .target_modules = "all-linear", .unaligned = true, .dropout = 0.3},
    {.name = "lora on some", .target_modules = "[\"k_proj\", \"up_proj\", \"o_proj\"]"},
    {.name = "lora, last layer only",
     .target_modules = "[\"v_proj\", \"down_proj\"]",
     .layers_to_transform = "1"},
    {.name = "lora, mlp of the first layer",
     .target_modules = "[\"gate_proj\"]",
     .layers_to_transform = "[0]"},
    {.name = "lora on the head, dropout", .target_modules = "[\"lm_head\", \"q_proj\"]", .dropout = 0.3},
    {.name = "lora on a tied head", .target_modules = "[\"lm_head\"]", .tied = true},
    {.name = "lora, saved head", .target_modules = "[\"q_proj\"]", .modules_to_save = "[\"lm_head\"]"},
    {.name = "lora, saved embedding and norms", .modules_to_save = "[\"embed_tokens\", \"norm\"]"},
    {.name = "lora, tied, saved embedding", .tied = true, .modules_to_save = "[\"embed_tokens\"]"},
    {.name = "lora, tied, saved head", .tied = true, .modules_to_save = "[\"lm_head\"]"},
};

static inline void set_features(const struct variant *variant, struct tt_model_facts *facts)
{
    struct tt_llama *llama = TT_FAMILY_OWN(facts, struct tt_llama);
    facts->tie_word_embeddings = variant->tied;
    facts->layers[1].window = variant->window;
    if (variant->no_rope) facts->layers[1].rope = -1;
    llama->attention_bias = variant->attention_bias;
    llama->output_bias = variant->output_bias;
    llama->mlp_bias = variant->mlp_bias;
    llama->qk_norm = variant->qk_norm;
}

/* A model with values that are nowhere special. */
static inline struct tt_model_runner *variant_runner(const struct variant *variant, tt_dtype dtype)
{
    static const char even[] =
        "{\"model_type\": \"llama\", \"vocab_size\": 37, \"hidden_size\": 16, \"intermediate_size\": 24, "
        "\"num_hidden_layers\": 2, \"num_attention_heads\": 4, \"num_key_value_heads\": 2, \"head_dim\": 8, "
        "\"max_position_embeddings\": 64, \"rms_norm_eps\": 1e-5, \"rope_theta\": 100}";
    static const char odd[] =
        "{\"model_type\": \"llama\", \"vocab_size\": 37, \"hidden_size\": 9, \"intermediate_size\": 21, "
        "\"num_hidden_layers\": 2, \"num_attention_heads\": 4, \"num_key_value_heads\": 2, \"head_dim\": 6, "
        "\"max_position_embeddings\": 64, \"rms_norm_eps\": 1e-5, \"rope_theta\": 100}";
    struct tt_model_facts facts;
    assert_int_equal(test_facts(variant->text != NULL ? variant->text
                                : variant->unaligned  ? odd
                                                      : even,
                                &facts),
                     TT_OK);
    if (variant->text == NULL) set_features(variant, &facts);
    struct tt_model_options options = {.compute_dtype = dtype, .train_base = variant->train_base};
    if (!variant->train_base) {
        options.lora = (struct tt_lora_config){.enabled = true,
                                               .r = 3,
                                               .alpha = 5,
                                               .dropout = variant->dropout,
                                               .target_modules = variant->target_modules,
                                               .target_parameters = variant->target_parameters,
                                               .modules_to_save = variant->modules_to_save,
                                               .layers_to_transform = variant->layers_to_transform};
    }
    struct tt_model_runner *runner = tt_runner_create(&facts, &options);
    tt_runner_fill(runner, 5, 0.3);
    runner->pass.in.label_smoothing = (float)variant->smoothing;
    runner->pass.in.embedding_noise = (float)variant->noise;
    return runner;
}

#endif
