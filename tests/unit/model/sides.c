/* Side values by the first who offers them: layers that read keys and values of an earlier layer. Gradients agree with
 * finite differences and are the same bits at every level; recomputation leaves the value as it is; where nothing below
 * trains there is no sum; over a cache the source's rows are read. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>
#include "base/alloc.h"
#include "nn/kv_cache.h"
#include "nn/layer.h"
#include "nn/self_attention.h"
#include "support/gradient_check.h"
#include "support/model_facts.h"
#include "support/must.h"

enum { TOKENS = 19, VOCAB = 37, LAYERS = 5, SEQUENCES = 3 };
static const int64_t lengths[SEQUENCES] = {7, 1, 11};
/* Layer 1 is read by the two behind it, layer 0 by the last one. */
static const int64_t keys_back[LAYERS] = {0, 0, 1, 2, 4};

#define MODEL(type, more)                                                                                    \
    "{\"model_type\": \"" type "\", \"vocab_size\": 37, \"hidden_size\": 16, \"intermediate_size\": 24, "    \
    "\"num_hidden_layers\": 5, \"num_attention_heads\": 4, \"num_key_value_heads\": 2, \"head_dim\": 8, "    \
    "\"max_position_embeddings\": 64, \"rms_norm_eps\": 1e-5, \"rope_theta\": 100" more "}"

/* No q/k norms; a norm of each head; of all heads; behind the rotation; queries that rotate apart; no rotation. */
static const char *const models[] = {
    MODEL("llama", ""),
    MODEL("gemma3_text",
          ", \"sliding_window\": 4, \"sliding_window_pattern\": 2, \"tie_word_embeddings\": true"),
    MODEL("olmo2", ""),
    MODEL("hunyuan_v1_dense", ""),
    MODEL("ministral3", ""),
    MODEL("exaone4", ", \"sliding_window\": 4, \"sliding_window_pattern\": 2"),
    MODEL("cohere2", ", \"sliding_window\": 4, \"sliding_window_pattern\": 2"),
};
enum { MODELS = sizeof models / sizeof models[0] };

static void read_facts(const char *text, struct tt_model_facts *facts)
{
    test_must(test_facts(text, facts));
    for (int i = 0; i < LAYERS; i++) facts->layers[i].keys_back = keys_back[i];
}

static struct tt_model_runner *make(const char *text, const struct tt_lora_config *lora, tt_dtype dtype)
{
    struct tt_model_facts facts;
    int32_t ids[TOKENS], labels[TOKENS];
    struct tt_model_options options = {.compute_dtype = dtype, .train_base = lora == NULL};
    if (lora != NULL) options.lora = *lora;
    read_facts(text, &facts);
    struct tt_model_runner *runner = tt_runner_create(&facts, &options);
    for (int t = 0; t < TOKENS; t++) {
        ids[t] = (t * 7 + 3) % VOCAB;
        labels[t] = t % 3 == 1 ? -100 : (t * 11 + 5) % VOCAB;
    }
    tt_runner_fill(runner, 5, 0.3);
    tt_runner_set_batch(runner, ids, lengths, SEQUENCES, labels);
    runner->pass.in.loss_scale = 1.0f / 8;
    runner->pass.in.training = true;
    return runner;
}

static const struct tt_lora_config all_linear = {
    .enabled = true, .r = 3, .alpha = 5, .dropout = 0.2, .target_modules = "all-linear"};

static const struct tt_self_attention *attention_of(const struct tt_model_runner *runner, int layer)
{
    const struct tt_layer *impl = runner->model->blocks[layer + 1].impl;
    return impl->halves[0].impl;
}

static void layers_without_keys_of_their_own(void **state)
{
    static const char *const suffixes[] = {"k_proj.weight", "v_proj.weight", "k_norm.weight"};
    (void)state;
    for (int m = 0; m < MODELS; m++) {
        struct tt_model_runner *runner = make(models[m], NULL, TT_F32);
        assert_int_equal(runner->model->side_count, 2);
        for (int i = 0; i < LAYERS; i++) {
            const struct tt_self_attention *attention = attention_of(runner, i);
            const struct tt_side *source = attention_of(runner, i - (int)keys_back[i])->offers;
            assert_non_null(source);
            assert_ptr_equal(attention->reads, keys_back[i] > 0 ? source : NULL);
            assert_true(keys_back[i] == 0 || attention->offers == NULL);
            assert_int_equal(attention->layer, (i - keys_back[i]) % 2);
            for (int s = 0; s < 3; s++) {
                char name[96];
                (void)snprintf(name, sizeof name, "model.layers.%d.self_attn.%s", i, suffixes[s]);
                bool exists = tt_model_find_param(runner->model, name) != NULL;
                assert_true(s == 2 ? !exists || keys_back[i] == 0 : exists == (keys_back[i] == 0));
            }
        }
        tt_runner_destroy(runner);
    }
}

static void check_differences(const char *text, const struct tt_lora_config *lora)
{
    struct tt_model_runner *runner = make(text, lora, TT_F32);
    (void)tt_runner_loss(runner, true);
    for (size_t i = 0; i < runner->model->param_count; i++) {
        tt_param *param = runner->model->params[i];
        if (!param->trainable) continue;
        if (!(tt_runner_grad_norm(param) > 1e-5)) fail_msg("%.40s: no gradient of %s", text, param->name);
        tt_runner_check_param(runner, text, param);
    }
    tt_runner_destroy(runner);
}

static void gradients_agree_with_differences(void **state)
{
    (void)state;
    for (int m = 0; m < MODELS; m++) {
        check_differences(models[m], NULL);
        check_differences(models[m], &all_linear);
    }
}

static void check_levels(const char *text, const struct tt_lora_config *lora, tt_dtype dtype)
{
    static const struct {
        const char *what;
        struct tt_runner_way way;
    } ways[] = {{"cheap", {.level = TT_KEEP_CHEAP}},
                {"block", {.level = TT_RECOMPUTE_BLOCK}},
                {"mixed", {.mixed = true}},
                {"gradients apart", {.apart = true}}};
    struct tt_model_runner *like = make(text, lora, dtype), *runner = make(text, lora, dtype);
    tt_runner_pass(like, (struct tt_runner_way){.level = TT_KEEP_ALL});
    for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++) {
        tt_runner_zero_grad(runner);
        tt_runner_pass(runner, ways[i].way);
        tt_runner_check_same(runner, like, text, ways[i].what);
    }
    tt_runner_destroy(runner);
    tt_runner_destroy(like);
}

static void levels_change_no_bit(void **state)
{
    (void)state;
    for (int m = 0; m < MODELS; m++) {
        check_levels(models[m], NULL, TT_F32);
        check_levels(models[m], &all_linear, TT_BF16);
    }
}

/* The sum of gradients is f32 however the activations are: in bf16 a reader's small addition is not lost. */
static void sums_are_exact(void **state)
{
    (void)state;
    struct tt_model_runner *runner = make(models[0], NULL, TT_BF16);
    const struct tt_side *side = runner->model->sides[0];
    size_t mark = tt_workspace_mark(runner->workspace);
    uint16_t terms[2 * 64];
    tt_tensor d_TC;
    runner->pass.in.gradient = true;
    tt_runner_push_sides(runner);
    test_must(tt_workspace_2d(runner->workspace, "rows", TT_BF16, TOKENS, side->columns, &d_TC));
    for (int add = 0; add < 2; add++) {
        uint16_t *data = d_TC.data;
        terms[add] = tt_f32_to_bf16(add == 0 ? 1.0f : 0x1p-12f);
        for (int64_t e = 0; e < tt_tensor_count(d_TC); e++) data[e] = terms[add];
        test_must(tt_side_add_gradient(side, &runner->pass, 0, d_TC));
    }
    const float *sum = tt_side_gradient(side, &runner->pass, 0, side->columns).data;
    for (int64_t e = 0; e < TOKENS * side->columns; e++) assert_true(sum[e] == 1.0f + 0x1p-12f);
    tt_workspace_release(runner->workspace, mark);
    tt_runner_destroy(runner);
}

/* Forward that runs again for backward does not write the value, of which readers have what they need. */
static void recomputation_leaves_the_value(void **state)
{
    (void)state;
    struct tt_model_runner *runner = make(models[0], NULL, TT_F32);
    struct tt_block *block = &runner->model->blocks[1];
    void *saved = tt_calloc(1, block->ops->saved_bytes);
    size_t mark = tt_workspace_mark(runner->workspace);
    tt_tensor x_TD, y_TD, value_TC;
    runner->pass.in.gradient = true;
    tt_runner_push_sides(runner);
    test_must(tt_workspace_2d(runner->workspace, "x", TT_F32, TOKENS, 16, &x_TD));
    test_must(tt_workspace_2d(runner->workspace, "y", TT_F32, TOKENS, 16, &y_TD));
    for (int e = 0; e < TOKENS * 16; e++) ((float *)x_TD.data)[e] = (float)(e % 7) - 3;
    value_TC = runner->sides[0].value_TC;
    memset(value_TC.data, 0x55, tt_tensor_bytes(value_TC));
    runner->pass.in.again = true;
    test_must(block->ops->forward(block, &runner->pass, x_TD, saved, (tt_tensor){0}));
    for (size_t b = 0; b < tt_tensor_bytes(value_TC); b++)
        assert_int_equal(((unsigned char *)value_TC.data)[b], 0x55);
    runner->pass.in.again = false;
    test_must(block->ops->forward(block, &runner->pass, x_TD, saved, y_TD));
    for (int64_t e = 0; e < tt_tensor_count(value_TC); e++)
        assert_true(fabsf(((float *)value_TC.data)[e]) < 100);
    tt_workspace_release(runner->workspace, mark);
    tt_free(saved);
    tt_runner_destroy(runner);
}

/* Only layers 2 to 4 train: neither source has a sum. With layer 1 its own does, and that of layer 0 does not. */
static void nothing_trains_below_no_sum(void **state)
{
    (void)state;
    static const char *const which[] = {"[2, 3, 4]", "[1, 4]", "[0]"};
    static const bool sums[][2] = {{false, false}, {false, true}, {true, true}};
    for (int i = 0; i < 3; i++) {
        struct tt_lora_config lora = all_linear;
        lora.target_modules = "[\"q_proj\", \"k_proj\", \"v_proj\", \"o_proj\", \"down_proj\"]";
        lora.layers_to_transform = which[i];
        struct tt_model_runner *runner = make(models[0], &lora, TT_F32);
        size_t mark = tt_workspace_mark(runner->workspace);
        for (int side = 0; side < 2; side++)
            assert_int_equal(runner->model->sides[side]->trains, sums[i][side]);
        for (int gradient = 0; gradient < 2; gradient++) {
            runner->pass.in.gradient = gradient;
            tt_runner_push_sides(runner);
            for (int side = 0; side < 2; side++) {
                assert_false(tt_tensor_is_empty(runner->sides[side].value_TC));
                assert_int_equal(!tt_tensor_is_empty(runner->sides[side].grad_TC), gradient && sums[i][side]);
            }
        }
        tt_workspace_release(runner->workspace, mark);
        tt_runner_destroy(runner);
        check_differences(models[0], &lora);
        check_levels(models[0], &lora, TT_F32);
    }
}

/* A layer that reads keys of one below whose halves add nothing is as with linears of its own of the same weights. */
static void readers_are_as_with_the_same_weights(void **state)
{
    (void)state;
    struct tt_model_facts facts;
    const struct tt_model_options options = {.compute_dtype = TT_F32};
    static const int64_t length = TOKENS;
    float logits[2][TOKENS * VOCAB];
    int32_t ids[TOKENS];
    for (int t = 0; t < TOKENS; t++) ids[t] = (t * 5 + 2) % VOCAB;
    for (int reads = 0; reads < 2; reads++) {
        test_must(test_facts(models[0], &facts));
        facts.num_hidden_layers = 2;
        facts.layers[1].keys_back = reads;
        struct tt_model_runner *runner = tt_runner_create(&facts, &options);
        tt_runner_fill(runner, 5, 0.3);
        for (size_t i = 0; i < runner->model->param_count; i++) {
            const tt_param *param = runner->model->params[i], *from;
            char name[128];
            bool adds = strstr(param->name, "layers.0.") != NULL &&
                        (strstr(param->name, "o_proj") != NULL || strstr(param->name, "down") != NULL);
            if (adds) memset(param->value.data, 0, tt_tensor_bytes(param->value));
            (void)snprintf(name, sizeof name, "%s", param->name);
            char *layer = strstr(name, "layers.1.");
            if (layer == NULL || strstr(name, "q_proj") != NULL) continue;
            layer[strlen("layers.")] = '0';
            from = tt_model_find_param(runner->model, name);
            if (strstr(name, "self_attn.k") != NULL || strstr(name, "self_attn.v") != NULL ||
                strstr(name, "input_layernorm") != NULL)
                memcpy(param->value.data, from->value.data, tt_tensor_bytes(param->value));
        }
        tt_runner_set_batch(runner, ids, &length, 1, NULL);
        tt_runner_logits(runner, logits[reads]);
        tt_runner_destroy(runner);
    }
    for (int e = 0; e < TOKENS * VOCAB; e++) assert_true(fabsf(logits[0][e] - logits[1][e]) < 1e-5f);
}

static struct tt_kv_cache *open_cache(struct tt_model_runner *runner)
{
    const struct tt_model_facts *facts = &runner->model->facts;
    struct tt_kv_cache *cache = NULL;
    assert_int_equal(tt_model_cache_layers(facts), 2);
    test_must(tt_kv_cache_create(runner->device,
                                 &(struct tt_kv_cache_config){.layer_count = 2,
                                                              .sequence_count = SEQUENCES,
                                                              .max_length = 16,
                                                              .kv_heads = 2,
                                                              .head_dim = 8,
                                                              .dtype = TT_F32},
                                 &cache));
    return cache;
}

/* One pass over the next tokens of each sequence; single: as the passes of one token a sequence. */
static void append(struct tt_model_runner *runner, const int32_t *ids, const int64_t *counts, bool single,
                   float *logits)
{
    static const int32_t sequences[SEQUENCES] = {0, 1, 2};
    struct tt_kv_cache *cache = runner->pass.lent.cache;
    tt_runner_set_batch(runner, ids, counts, SEQUENCES, NULL);
    if (single)
        test_must(tt_kv_cache_begin_single(cache, runner->stream, sequences, SEQUENCES, SEQUENCES));
    else
        test_must(tt_kv_cache_begin(cache, runner->stream, runner->batch.host_cu_seqlens));
    tt_runner_logits(runner, logits);
    for (size_t side = 0; side < runner->model->side_count; side++)
        assert_true(tt_tensor_is_empty(runner->sides[side].value_TC));
    tt_kv_cache_end(cache);
}

static void check_cache(const char *text)
{
    static const int64_t first[SEQUENCES] = {5, 2, 4}, one[SEQUENCES] = {1, 1, 1};
    enum { LENGTH = 8 };
    float whole[SEQUENCES * LENGTH * VOCAB], part[SEQUENCES * LENGTH * VOCAB];
    int32_t ids[SEQUENCES][LENGTH], flat[SEQUENCES * LENGTH];
    int64_t totals[SEQUENCES], count = 0;
    struct tt_model_runner *runner = make(text, &all_linear, TT_F32);
    runner->pass.in.training = false;
    for (int s = 0; s < SEQUENCES; s++) {
        totals[s] = first[s] + 3;
        for (int64_t t = 0; t < totals[s]; t++)
            flat[count++] = ids[s][t] = (int32_t)((s * 13 + t * 7) % VOCAB);
    }
    tt_runner_set_batch(runner, flat, totals, SEQUENCES, NULL);
    tt_runner_logits(runner, whole);
    runner->pass.lent.cache = open_cache(runner);
    int64_t done[SEQUENCES] = {0};
    for (int step = 0; step < 4; step++) {
        const int64_t *counts = step == 0 ? first : one;
        int64_t rows = 0, row = 0, begin = 0;
        for (int s = 0; s < SEQUENCES; s++)
            for (int64_t t = 0; t < counts[s]; t++) flat[rows++] = ids[s][done[s] + t];
        append(runner, flat, counts, step >= 2, part);
        for (int s = 0; s < SEQUENCES; begin += totals[s++]) {
            for (int64_t t = 0; t < counts[s]; t++, row++)
                for (int v = 0; v < VOCAB; v++) {
                    float wanted = whole[(begin + done[s] + t) * VOCAB + v], got = part[row * VOCAB + v];
                    if (!(fabsf(wanted - got) < 2e-4f))
                        fail_msg("%.40s: step %d: %g instead of %g", text, step, got, wanted);
                }
            done[s] += counts[s];
        }
    }
    tt_kv_cache_destroy(runner->pass.lent.cache);
    tt_runner_destroy(runner);
}

static void caches_of_the_source_are_read(void **state)
{
    (void)state;
    for (int m = 0; m < MODELS; m++) check_cache(models[m]);
}

static void readers_need_a_source_of_their_shape(void **state)
{
    (void)state;
    const struct tt_model_options options = {.compute_dtype = TT_F32, .train_base = true};
    for (int wrong = 0; wrong < 4; wrong++) {
        struct tt_model_facts facts;
        struct tt_model *model = NULL;
        read_facts(models[0], &facts);
        if (wrong == 0) facts.layers[2].keys_back = 3;
        if (wrong == 1) facts.layers[3].keys_back = 1; /* which reads another's */
        if (wrong == 2) facts.layers[2].kv_heads = 4;
        if (wrong == 3) facts.layers[4].head_dim = 4;
        assert_int_equal(tt_model_create(&facts, &options, &model), TT_ERR_DATA);
        assert_non_null(strstr(tt_error_last()->message, "cannot read keys and values of layer"));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(layers_without_keys_of_their_own),
        cmocka_unit_test(gradients_agree_with_differences),
        cmocka_unit_test(levels_change_no_bit),
        cmocka_unit_test(sums_are_exact),
        cmocka_unit_test(recomputation_leaves_the_value),
        cmocka_unit_test(nothing_trains_below_no_sum),
        cmocka_unit_test(readers_are_as_with_the_same_weights),
        cmocka_unit_test(caches_of_the_source_are_read),
        cmocka_unit_test(readers_need_a_source_of_their_shape),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
