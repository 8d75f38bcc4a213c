/* Layers of other halves than attention and MLP: alone, in another order, three and four of them, two beside each
 * other. The halves are those of a family's layers, dealt anew. Gradients agree with finite differences in fp32;
 * levels, recomputation and the memory of gradients change no bit. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>
#include "nn/layer.h"
#include "support/gradient_check.h"
#include "support/model_facts.h"

enum { TOKENS = 19, VOCAB = 37 };

/* a: attention, m: MLP, of the model's in order; +: the next half is beside the one before; |: the next layer. */
static const char *const orders[] = {"a m | a m",  "m | a m a",  "m a m | a",  "a m a m | a m",
                                     "a +m | a m", "a m +a | m", "m | a +m a", "m a +m a | m a"};

static const char llama[] =
    "{\"model_type\": \"llama\", \"vocab_size\": 37, \"hidden_size\": 16, \"intermediate_size\": 24, "
    "\"num_hidden_layers\": %d, \"num_attention_heads\": 4, \"num_key_value_heads\": 2, \"head_dim\": 8, "
    "\"max_position_embeddings\": 64, \"rms_norm_eps\": 1e-5, \"rope_theta\": 100}";
/* with norms behind the halves */
static const char gemma3[] =
    "{\"model_type\": \"gemma3_text\", \"vocab_size\": 37, \"hidden_size\": 16, \"intermediate_size\": 24, "
    "\"num_hidden_layers\": %d, \"num_attention_heads\": 4, \"num_key_value_heads\": 2, \"head_dim\": 8, "
    "\"max_position_embeddings\": 64, \"rms_norm_eps\": 1e-5, \"query_pre_attn_scalar\": 10, "
    "\"sliding_window\": 4, \"sliding_window_pattern\": 2, \"tie_word_embeddings\": true, \"rope_theta\": "
    "100, "
    "\"rope_local_base_freq\": 50}";

#define DENSE(type, more)                                                                                    \
    "{\"model_type\": \"" type "\", \"vocab_size\": 37, \"hidden_size\": 16, \"intermediate_size\": 24, "    \
    "\"num_hidden_layers\": %d, \"num_attention_heads\": 4, \"num_key_value_heads\": 2, \"head_dim\": 8, "   \
    "\"max_position_embeddings\": 64, \"rms_norm_eps\": 1e-5, \"rope_theta\": 100" more "}"

/* Norms behind halves alone; multipliers; neighbours that rotate in part; norms after the rotation, and others. */
static const struct {
    const char *order, *text;
} dense[] = {
    {"a m | a m", DENSE("olmo2", "")},
    {"m a m | a", DENSE("olmo2", "")},
    {"a +m | a m", DENSE("olmo2", "")},
    {"a m | a m", DENSE("exaone4", ", \"sliding_window\": 4, \"sliding_window_pattern\": 2")},
    {"a m | a m", DENSE("granite", ", \"residual_multiplier\": 0.6, \"logits_scaling\": 1.7")},
    {"a +m | m", DENSE("granite", ", \"residual_multiplier\": 0.6")},
    {"a m | a m", DENSE("glm4", "")},
    {"a m | a m", DENSE("hunyuan_v1_dense", "")},
    {"a m | a m", DENSE("ministral3", "")},
    {"a m | a m", DENSE("muse_glimmer_text", ", \"sliding_window\": 4")},
    {"m a | a m", DENSE("muse_glimmer_text", ", \"sliding_window\": 4")},
    {"a +m | a +m", DENSE("cohere2", ", \"sliding_window\": 4, \"sliding_window_pattern\": 2")},
};

static int count_of(const char *order, char kind)
{
    int count = 0;
    for (; *order != '\0'; order++) count += *order == kind;
    return count;
}

/* Deals the halves of all layers anew. The layers keep their blocks, and blocks without halves are taken out. */
static void deal(struct tt_model *model, const char *order)
{
    static struct tt_half dealt[TT_MODEL_LAYERS_MAX][2];
    int layers = model->block_count - 2, next[2] = {0, 0}, at = 1;
    for (int i = 0; i < layers; i++) {
        const struct tt_layer *layer = model->blocks[i + 1].impl;
        assert_int_equal(layer->count, 2);
        memcpy(dealt[i], layer->halves, sizeof dealt[i]);
    }
    struct tt_layer *layer = model->blocks[at].impl;
    layer->count = 0;
    for (bool beside = false; *order != '\0'; order++) {
        if (*order == '|') {
            layer = model->blocks[++at].impl;
            layer->count = 0;
        }
        if (*order == '+') beside = true;
        if (*order != 'a' && *order != 'm') continue;
        int kind = *order == 'm';
        assert_true(layer->count < TT_LAYER_HALVES && next[kind] < layers);
        layer->halves[layer->count] = dealt[next[kind]++][kind];
        layer->halves[layer->count++].beside = beside;
        beside = false;
    }
    model->blocks[at + 1] = model->blocks[model->block_count - 1];
    model->block_count = at + 2;
}

static struct tt_model_runner *make(const char *text, const char *order, bool lora, tt_dtype dtype)
{
    static const int64_t lengths[] = {7, 1, 11};
    struct tt_model_facts facts;
    char config[1024];
    int32_t ids[TOKENS], labels[TOKENS];
    int layers = count_of(order, '|') + 1;
    for (const char *kind = "am"; *kind != '\0'; kind++)
        if (count_of(order, *kind) > layers) layers = count_of(order, *kind);
    (void)snprintf(config, sizeof config, text, layers);
    assert_int_equal(test_facts(config, &facts), TT_OK);
    struct tt_model_options options = {.compute_dtype = dtype, .train_base = !lora};
    if (lora)
        options.lora = (struct tt_lora_config){
            .enabled = true, .r = 3, .alpha = 5, .dropout = 0.2, .target_modules = "all-linear"};
    struct tt_model_runner *runner = tt_runner_create(&facts, &options);
    for (int t = 0; t < TOKENS; t++) {
        ids[t] = (t * 7 + 3) % VOCAB;
        labels[t] = t % 3 == 1 ? -100 : (t * 11 + 5) % VOCAB;
    }
    tt_runner_fill(runner, 5, 0.3);
    tt_runner_set_batch(runner, ids, lengths, 3, labels);
    runner->pass.in.loss_scale = 1.0f / 8;
    runner->pass.in.training = true;
    deal(runner->model, order);
    return runner;
}

static void check_differences(const char *text, const char *order, bool lora)
{
    struct tt_model_runner *runner = make(text, order, lora, TT_F32);
    size_t checked = 0, unused = 0;
    (void)tt_runner_loss(runner, true);
    for (size_t i = 0; i < runner->model->param_count; i++) {
        tt_param *param = runner->model->params[i];
        if (!param->trainable) continue;
        if (tt_runner_grad_norm(param) > 1e-5)
            tt_runner_check_param(runner, order, param), checked++;
        else
            unused++; /* of the halves that were not dealt */
    }
    bool all = count_of(order, 'a') == count_of(order, 'm');
    if (all && unused > 0) fail_msg("%s: %zu parameters without a gradient", order, unused);
    assert_true(checked > 8);
    tt_runner_destroy(runner);
}

static void gradients_agree_with_differences(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof orders / sizeof orders[0]; i++) {
        check_differences(llama, orders[i], false);
        check_differences(llama, orders[i], true);
        check_differences(gemma3, orders[i], false);
    }
}

static void check_levels(const char *text, const char *order, bool lora, tt_dtype dtype)
{
    static const struct {
        const char *what;
        struct tt_runner_way way;
    } ways[] = {{"cheap", {.level = TT_KEEP_CHEAP}},
                {"block", {.level = TT_RECOMPUTE_BLOCK}},
                {"mixed", {.mixed = true}},
                {"gradients apart", {.apart = true}}};
    struct tt_model_runner *like = make(text, order, lora, dtype), *runner = make(text, order, lora, dtype);
    tt_runner_pass(like, (struct tt_runner_way){.level = TT_KEEP_ALL});
    for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++) {
        tt_runner_zero_grad(runner);
        tt_runner_pass(runner, ways[i].way);
        tt_runner_check_same(runner, like, order, ways[i].what);
    }
    tt_runner_destroy(runner);
    tt_runner_destroy(like);
}

static void levels_change_no_bit(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof orders / sizeof orders[0]; i++) {
        check_levels(llama, orders[i], false, TT_F32);
        check_levels(llama, orders[i], true, TT_BF16);
        check_levels(gemma3, orders[i], true, TT_F32);
    }
}

static void levels_of_dense_families_change_no_bit(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof dense / sizeof dense[0]; i++) {
        check_levels(dense[i].text, dense[i].order, false, TT_F32);
        check_levels(dense[i].text, dense[i].order, true, TT_BF16);
    }
}

/* Two halves beside each other read the same stream: with the second's result zero, they are the first alone. */
static void halves_beside_read_one_stream(void **state)
{
    (void)state;
    struct tt_model_runner *alone = make(llama, "a | m", false, TT_F32),
                           *beside = make(llama, "a +m | m", false, TT_F32);
    tt_param *down = tt_model_find_param(beside->model, "model.layers.0.mlp.down_proj.weight");
    tt_param *from = tt_model_find_param(alone->model, "model.layers.0.mlp.down_proj.weight");
    assert_non_null(down);
    assert_non_null(from);
    memset(down->value.data, 0, tt_tensor_bytes(down->value));
    /* the second layer's MLP of `beside` is that of layer 1; give it the values of layer 0's */
    static const char *const names[] = {"post_attention_layernorm.weight", "mlp.gate_proj.weight",
                                        "mlp.up_proj.weight", "mlp.down_proj.weight"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char source[128], target[128];
        (void)snprintf(source, sizeof source, "model.layers.0.%s", names[i]);
        (void)snprintf(target, sizeof target, "model.layers.1.%s", names[i]);
        const tt_param *a = tt_model_find_param(alone->model, source),
                       *b = tt_model_find_param(beside->model, target);
        memcpy(b->value.data, a->value.data, tt_tensor_bytes(a->value));
    }
    double expected = tt_runner_loss(alone, false), loss = tt_runner_loss(beside, false);
    assert_true(fabs(loss - expected) < 1e-6 * fabs(expected));
    tt_runner_destroy(alone);
    tt_runner_destroy(beside);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gradients_agree_with_differences),
        cmocka_unit_test(levels_change_no_bit),
        cmocka_unit_test(levels_of_dense_families_change_no_bit),
        cmocka_unit_test(halves_beside_read_one_stream),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
