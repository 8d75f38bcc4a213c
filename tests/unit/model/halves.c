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
#include "base/alloc.h"
#include "nn/layer.h"
#include "support/model_facts.h"
#include "support/model_runner.h"

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

static double norm_of(const tt_param *param)
{
    const float *grad = param->grad.data;
    double squares = 0;
    for (int64_t e = 0; e < tt_param_count(param); e++) squares += (double)grad[e] * grad[e];
    return sqrt(squares);
}

static double sign_of(int64_t element)
{
    return tt_rng_u64(tt_rng_make(99), (uint64_t)element) & 1 ? 1 : -1;
}

static double loss_at(struct tt_model_runner *runner, const tt_param *param, const float *start, double step)
{
    float *value = param->value.data;
    for (int64_t e = 0; e < tt_param_count(param); e++) value[e] = (float)(start[e] + step * sign_of(e));
    return tt_runner_loss(runner, false);
}

/* The fourth-order central difference along a direction of random signs. */
static void check_param(struct tt_model_runner *runner, const char *order, tt_param *param)
{
    int64_t count = tt_param_count(param);
    float *start = tt_calloc((size_t)count, sizeof *start);
    const float *grad = param->grad.data;
    const double h = 4e-3 / sqrt(sqrt((double)count));
    double norm = norm_of(param), expected = 0;
    assert_non_null(start);
    memcpy(start, param->value.data, (size_t)count * sizeof *start);
    for (int64_t e = 0; e < count; e++) expected += grad[e] * sign_of(e);
    double first = loss_at(runner, param, start, h) - loss_at(runner, param, start, -h);
    double second = loss_at(runner, param, start, 2 * h) - loss_at(runner, param, start, -2 * h);
    double error = fabs((8 * first - second) / (12 * h) - expected);
    memcpy(param->value.data, start, (size_t)count * sizeof *start);
    tt_free(start);
    if (!(error <= 0.01 * norm + 2e-4))
        fail_msg("%s: %s: the loss changes by %g more or less than the gradient (norm %g) says", order,
                 param->name, error, norm);
}

static void check_differences(const char *text, const char *order, bool lora)
{
    struct tt_model_runner *runner = make(text, order, lora, TT_F32);
    size_t checked = 0, unused = 0;
    (void)tt_runner_loss(runner, true);
    for (size_t i = 0; i < runner->model->param_count; i++) {
        tt_param *param = runner->model->params[i];
        if (!param->trainable) continue;
        if (norm_of(param) > 1e-5)
            check_param(runner, order, param), checked++;
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

static tt_tensor new_rows(struct tt_model_runner *runner)
{
    tt_tensor rows;
    assert_int_equal(
        tt_workspace_2d(runner->workspace, "rows", runner->pass.in.compute_dtype, TOKENS, 16, &rows), TT_OK);
    return rows;
}

/* A pass over all blocks, at a level; recomputed: layers run again before their backward, without an output. Apart: no
 * gradient shares its memory with the one behind it. */
static void run(struct tt_model_runner *runner, enum tt_level level, bool apart)
{
    struct tt_model *model = runner->model;
    int last = model->block_count - 1, first = 0;
    tt_tensor x[TT_MODEL_LAYERS_MAX] = {{0}}, none = {0};
    void *saved[TT_MODEL_LAYERS_MAX] = {NULL};
    bool again = level == TT_RECOMPUTE_BLOCK;
    size_t mark = tt_workspace_mark(runner->workspace);
    runner->pass.in.level = again ? TT_KEEP_CHEAP : level;
    while (!model->blocks[first].trains) first++;
    for (int i = 0; i <= last; i++) {
        struct tt_block *block = &model->blocks[i];
        bool keeps = !again || i == 0 || i == last;
        saved[i] = tt_calloc(1, block->ops->saved_bytes);
        if (i < last) x[i + 1] = new_rows(runner);
        runner->pass.in.gradient = keeps;
        assert_int_equal(block->ops->forward(block, &runner->pass, x[i], keeps ? saved[i] : NULL,
                                             i < last ? x[i + 1] : none),
                         TT_OK);
    }
    runner->pass.in.gradient = true;
    tt_tensor dy = new_rows(runner);
    for (int i = last; i >= first; i--) {
        struct tt_block *block = &model->blocks[i];
        if (again && i > 0 && i < last)
            assert_int_equal(block->ops->forward(block, &runner->pass, x[i], saved[i], none), TT_OK);
        tt_tensor dx = i == first ? none : apart ? new_rows(runner) : dy;
        assert_int_equal(block->ops->backward(block, &runner->pass, x[i], saved[i], dy, dx), TT_OK);
        dy = dx;
    }
    for (int i = 0; i <= last; i++) tt_free(saved[i]);
    tt_workspace_release(runner->workspace, mark);
}

static void check_same(const struct tt_model_runner *runner, const struct tt_model_runner *like,
                       const char *order, const char *what)
{
    for (size_t i = 0; i < runner->model->param_count; i++) {
        const tt_param *param = runner->model->params[i], *other = like->model->params[i];
        if (param->trainable && memcmp(param->grad.data, other->grad.data, tt_tensor_bytes(param->grad)) != 0)
            fail_msg("%s: %s: the gradient of %s differs", order, what, param->name);
    }
}

static void check_levels(const char *text, const char *order, bool lora, tt_dtype dtype)
{
    static const struct {
        const char *what;
        enum tt_level level;
        bool apart;
    } ways[] = {{"cheap", TT_KEEP_CHEAP, false},
                {"block", TT_RECOMPUTE_BLOCK, false},
                {"gradients apart", TT_KEEP_ALL, true}};
    struct tt_model_runner *like = make(text, order, lora, dtype), *runner = make(text, order, lora, dtype);
    run(like, TT_KEEP_ALL, false);
    for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++) {
        tt_runner_zero_grad(runner);
        run(runner, ways[i].level, ways[i].apart);
        check_same(runner, like, order, ways[i].what);
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
