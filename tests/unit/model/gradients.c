/* The gradient of every parameter of whole small models against finite differences in fp32, for every variant
 * of the layers. A direction of random signs is followed from the current values: the change of the loss
 * along it must be the inner product with the gradient. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>
#include "base/alloc.h"
#include "model/llama.h"
#include "support/model_facts.h"
#include "support/model_runner.h"

enum { TOKENS = 19, VOCAB = 37 };
static const int64_t lengths[] = {7, 1, 11};

struct variant {
    const char *name;
    const char *text; /* config.json; NULL: a llama with the features below */
    bool attention_bias, output_bias, mlp_bias, qk_norm, tied, train_base;
    bool no_rope; /* the last layer has no rotation */
    int64_t window;
    const char *target_modules, *modules_to_save, *layers_to_transform;
    double dropout, smoothing, noise;
    bool unaligned; /* weights of a group do not lie next to each other */
};

static void set_features(const struct variant *variant, struct tt_model_facts *facts)
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

static struct tt_model_runner *make(const struct variant *variant, tt_dtype dtype)
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
                                               .modules_to_save = variant->modules_to_save,
                                               .layers_to_transform = variant->layers_to_transform};
    }
    struct tt_model_runner *runner = tt_runner_create(&facts, &options);
    int32_t ids[TOKENS], labels[TOKENS];
    for (int t = 0; t < TOKENS; t++) {
        ids[t] = (t * 7 + 3) % VOCAB;
        labels[t] = t % 3 == 1 ? -100 : (t * 11 + 5) % VOCAB;
    }
    tt_runner_fill(runner, 5, 0.3);
    tt_runner_set_batch(runner, ids, lengths, 3, labels);
    runner->pass.in.loss_scale = 1.0f / 8;
    runner->pass.in.training = true;
    runner->pass.in.label_smoothing = (float)variant->smoothing;
    runner->pass.in.embedding_noise = (float)variant->noise;
    return runner;
}

static double sign_of(struct tt_rng rng, int64_t element)
{
    return tt_rng_u64(rng, (uint64_t)element) & 1 ? 1 : -1;
}

/* Moves a parameter along the direction by `step` from `start`. */
static void move(const tt_param *param, const float *start, struct tt_rng rng, double step)
{
    float *value = param->value.data;
    for (int64_t e = 0; e < tt_param_count(param); e++) value[e] = (float)(start[e] + step * sign_of(rng, e));
}

static double loss_at(struct tt_model_runner *runner, const tt_param *param, const float *start,
                      struct tt_rng rng, double step)
{
    move(param, start, rng, step);
    return tt_runner_loss(runner, false);
}

/* Fourth-order central difference: (8 (f1 - f-1) - (f2 - f-2)) / 12 h. The gradient along random signs is of
 * the size of the gradient's norm, so that is what the error is compared with. */
static void check_param(struct tt_model_runner *runner, const struct variant *variant, tt_param *param)
{
    int64_t count = tt_param_count(param);
    float *start = tt_calloc((size_t)count, sizeof *start);
    const float *grad = param->grad.data;
    const double h = 4e-3 / sqrt(sqrt((double)count));
    double norm = 0, worst = 0;
    assert_non_null(start);
    memcpy(start, param->value.data, (size_t)count * sizeof *start);
    for (int64_t e = 0; e < count; e++) norm += (double)grad[e] * grad[e];
    norm = sqrt(norm);
    if (!(norm > 1e-5)) fail_msg("%s: the gradient of %s is %g", variant->name, param->name, norm);
    for (uint64_t direction = 0; direction < 3; direction++) {
        struct tt_rng rng = tt_rng_derive_index(tt_rng_make(99), direction);
        double expected = 0;
        for (int64_t e = 0; e < count; e++) expected += grad[e] * sign_of(rng, e);
        double first = loss_at(runner, param, start, rng, h) - loss_at(runner, param, start, rng, -h);
        double second =
            loss_at(runner, param, start, rng, 2 * h) - loss_at(runner, param, start, rng, -2 * h);
        worst = fmax(worst, fabs((8 * first - second) / (12 * h) - expected));
    }
    memcpy(param->value.data, start, (size_t)count * sizeof *start);
    tt_free(start);
    /* 2e-4: rounding of the loss (about 1e-6) over 2 h */
    if (!(worst <= 0.01 * norm + 2e-4)) {
        fail_msg("%s: %s: the loss changes by %g more or less than the gradient (norm %g) says",
                 variant->name, param->name, worst, norm);
    }
}

static void check_variant(const struct variant *variant)
{
    struct tt_model_runner *runner = make(variant, TT_F32);
    (void)tt_runner_loss(runner, true);
    size_t checked = 0;
    for (size_t i = 0; i < runner->model->param_count; i++) {
        if (!runner->model->params[i]->trainable) continue;
        check_param(runner, variant, runner->model->params[i]);
        checked++;
    }
    assert_true(checked > 0);
    tt_runner_destroy(runner);
}

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
    {.name = "lora, experts", .text = qwen3_moe, .target_modules = "all-linear", .dropout = 0.2},
    {.name = "full, experts by sigmoids and shared ones", .text = glm4_moe, .train_base = true},
    {.name = "lora, experts by sigmoids", .text = glm4_moe, .target_modules = "all-linear", .dropout = 0.2},
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
    {.name = "lora, two projections of a state",
     .text = qwen3_next,
     .target_modules = "all-linear",
     .dropout = 0.2},
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

static void gradients_agree_with_differences(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof variants / sizeof variants[0]; i++) check_variant(&variants[i]);
}

/* Distance of all gradients of two runs of the same model, relative to the second's. */
static double distance(const struct tt_model_runner *a, const struct tt_model_runner *b)
{
    double difference = 0, norm = 0;
    for (size_t i = 0; i < a->model->param_count; i++) {
        const tt_param *param = a->model->params[i];
        if (!param->trainable) continue;
        const float *x = param->grad.data, *y = b->model->params[i]->grad.data;
        for (int64_t e = 0; e < tt_param_count(param); e++) {
            difference += ((double)x[e] - y[e]) * ((double)x[e] - y[e]);
            norm += (double)y[e] * y[e];
        }
    }
    return sqrt(difference / norm);
}

/* So that both start from weights that bf16 can hold. */
static void take_values(const struct tt_model_runner *to, const struct tt_model_runner *from)
{
    for (size_t i = 0; i < to->model->param_count; i++) {
        tt_tensor value = from->model->params[i]->value;
        assert_true(tt_dtype_convert(to->model->params[i]->value.data, TT_F32, value.data, value.dtype,
                                     (size_t)tt_tensor_count(value)));
    }
}

/* The yardstick is how much the fp32 gradient changes when the weights alone are rounded to bf16, once: a
 * pass in bf16 rounds in some dozen more places. A wrong formula is of order 1. */
static void bf16_gradients_are_near(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof variants / sizeof variants[0]; i++) {
        struct tt_model_runner *exact = make(&variants[i], TT_F32), *rough = make(&variants[i], TT_BF16);
        struct tt_model_runner *rounded = make(&variants[i], TT_F32);
        take_values(rounded, rough);
        (void)tt_runner_loss(exact, true);
        (void)tt_runner_loss(rounded, true);
        (void)tt_runner_loss(rough, true);
        double yardstick = distance(rounded, exact), error = distance(rough, rounded);
        if (!(error < 5 * yardstick && error > 1e-6)) {
            fail_msg("%s: relative error %g, weights rounded %g", variants[i].name, error, yardstick);
        }
        tt_runner_destroy(rough);
        tt_runner_destroy(rounded);
        tt_runner_destroy(exact);
    }
}

/* Where the head's gradients are not lent in forward, backward computes its chunks again: the same gradients.
 */
static void late_head_gradients_are_the_same(void **state)
{
    (void)state;
    struct tt_model_runner *early = make(&variants[0], TT_F32), *late = make(&variants[0], TT_F32);
    double loss = tt_runner_loss(early, true);
    tt_param *head = tt_model_find_param(late->model, "lm_head.weight");
    const struct tt_block *last = &late->model->blocks[late->model->block_count - 1];
    tt_tensor grad = head->grad;
    void *saved[4] = {NULL};
    tt_tensor x[4] = {{0}}, dy;
    late->pass.in.gradient = true;
    for (int i = 0; i < 4; i++) {
        struct tt_block *block = &late->model->blocks[i];
        if (i < 3)
            assert_int_equal(
                tt_workspace_2d(late->workspace, "x", TT_F32, TOKENS, 16, &x[i + 1 < 4 ? i + 1 : 3]), TT_OK);
        saved[i] = tt_calloc(1, block->ops->saved_bytes);
        head->grad = (tt_tensor){0};
        assert_int_equal(
            block->ops->forward(block, &late->pass, x[i], saved[i], i < 3 ? x[i + 1] : (tt_tensor){0}),
            TT_OK);
    }
    head->grad = grad;
    assert_int_equal(tt_workspace_2d(late->workspace, "dy", TT_F32, TOKENS, 16, &dy), TT_OK);
    double late_loss = 0;
    const float *loss_N = tt_pass_result(&late->results, TT_RESULT_LOSS, 0).data;
    for (int64_t n = 0; n < late->batch.row_count; n++) late_loss += loss_N[n];
    for (int i = 3; i >= 0; i--) {
        struct tt_block *block = &late->model->blocks[i];
        assert_int_equal(
            block->ops->backward(block, &late->pass, x[i], saved[i], dy, i > 0 ? dy : (tt_tensor){0}), TT_OK);
        tt_free(saved[i]);
    }
    assert_true(last->trains);
    assert_true(fabs(late_loss / 8 - loss) < 1e-9);
    assert_true(distance(late, early) == 0);
    tt_runner_destroy(late);
    tt_runner_destroy(early);
}

static void check_packed(const struct variant *variant)
{
    struct tt_model_runner *packed = make(variant, TT_F32), *alone = make(variant, TT_F32);
    double loss = tt_runner_loss(packed, true), sum = 0;
    int32_t ids[TOKENS], labels[TOKENS];
    for (int t = 0; t < TOKENS; t++) {
        ids[t] = (t * 7 + 3) % VOCAB;
        labels[t] = t % 3 == 1 ? -100 : (t * 11 + 5) % VOCAB;
    }
    int64_t first = 0;
    for (int64_t b = 0; b < 3; b++) {
        tt_runner_set_batch(alone, ids + first, lengths + b, 1, labels + first);
        int64_t *keys = alone->batch.row_keys_T.data;
        for (int64_t t = 0; t < lengths[b]; t++) keys[t] = (b << 24) | t;
        sum += tt_runner_loss(alone, true);
        first += lengths[b];
    }
    if (!(fabs(loss - sum) < 1e-5 * loss) || !(distance(alone, packed) < 1e-5))
        fail_msg("%s: packed %g, alone %g, gradients apart by %g", variant->name, loss, sum,
                 distance(alone, packed));
    tt_runner_destroy(alone);
    tt_runner_destroy(packed);
}

/* The gradient of a packed batch is the sum of the gradients of its sequences; dropout goes with the token.
 */
static void packed_is_the_sum_of_alone(void **state)
{
    static const char *const texts[] = {NULL,       glm4,    granite, olmo2,  exaone4, hunyuan,
                                        ministral3, cohere2, muse,    gemma4, gemma4_e};
    (void)state;
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
        check_packed(&(struct variant){.name = texts[i] != NULL ? texts[i] : "llama",
                                       .text = texts[i],
                                       .target_modules = "all-linear",
                                       .dropout = 0.4,
                                       .qk_norm = texts[i] == NULL});
}

/* A micro batch without a label: no loss, no gradient, no error. */
static void no_labels_no_gradient(void **state)
{
    (void)state;
    struct tt_model_runner *runner = make(&variants[0], TT_F32);
    int32_t ids[TOKENS] = {0}, labels[TOKENS];
    for (int t = 0; t < TOKENS; t++) labels[t] = -100;
    tt_runner_set_batch(runner, ids, lengths, 3, labels);
    assert_true(tt_runner_loss(runner, true) == 0);
    for (size_t i = 0; i < runner->model->param_count; i++) {
        const tt_param *param = runner->model->params[i];
        for (int64_t e = 0; e < tt_param_count(param); e++) assert_true(((float *)param->grad.data)[e] == 0);
    }
    tt_runner_destroy(runner);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gradients_agree_with_differences),
        cmocka_unit_test(bf16_gradients_are_near),
        cmocka_unit_test(late_head_gradients_are_the_same),
        cmocka_unit_test(packed_is_the_sum_of_alone),
        cmocka_unit_test(no_labels_no_gradient),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
