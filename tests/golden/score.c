/* Models whose head gives scores (golden/score/make_score.py): the scores of transformers; the gradient of every
 * trained parameter against finite differences; and the refusal of commands that need a language model. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "base/alloc.h"
#include "io/safetensors.h"
#include "nn/head.h"
#include "support/model_runner.h"
#include "support/must.h"

#define GOLDEN TT_TEST_ROOT "/golden/score/"

enum { SEQUENCES = 3, TOKENS = 18, LABELS_MAX = 3 };

struct reference {
    int32_t ids[TOKENS];
    int64_t lengths[SEQUENCES];
    float scores[SEQUENCES * LABELS_MAX];
};

static void read_tensor(struct tt_safetensors *file, const char *name, int64_t count, void *to,
                        tt_dtype dtype)
{
    const struct tt_safetensors_entry *entry = tt_safetensors_find(file, name);
    assert_non_null(entry);
    test_must(tt_safetensors_read(file, entry, 0, count, to, dtype));
}

static void read_reference(const char *name, int64_t labels, struct reference *reference)
{
    char path[512];
    int64_t ids[TOKENS];
    struct tt_safetensors *file = NULL;
    (void)snprintf(path, sizeof path, GOLDEN "%s/reference.safetensors", name);
    test_must(tt_safetensors_open(path, &file));
    read_tensor(file, "seq_lens", SEQUENCES, reference->lengths, TT_I64);
    read_tensor(file, "input_ids", TOKENS, ids, TT_I64);
    read_tensor(file, "scores", SEQUENCES * labels, reference->scores, TT_F32);
    for (int t = 0; t < TOKENS; t++) reference->ids[t] = (int32_t)ids[t];
    tt_safetensors_close(file);
}

static void read_facts(const char *name, struct tt_model_facts *facts)
{
    char path[512];
    struct tt_json json = {0};
    (void)snprintf(path, sizeof path, GOLDEN "%s/model/config.json", name);
    test_must(tt_json_read(path, 1 << 20, &json));
    test_must(tt_model_facts_parse_any(&json, facts));
    tt_json_deinit(&json);
}

static struct tt_model_runner *open_model(const char *name, const struct tt_model_options *options,
                                          int64_t labels, struct reference *reference)
{
    struct tt_model_facts facts;
    char folder[512];
    (void)snprintf(folder, sizeof folder, GOLDEN "%s/model", name);
    read_facts(name, &facts);
    assert_int_equal(facts.label_count, labels);
    assert_false(facts.tie_word_embeddings);
    struct tt_model_runner *runner = tt_runner_create(&facts, options);
    assert_non_null(tt_model_find_param(runner->model, "score.weight"));
    read_reference(name, labels, reference);
    tt_runner_load(runner, folder, NULL);
    tt_runner_set_batch(runner, reference->ids, reference->lengths, SEQUENCES, NULL);
    return runner;
}

/* Scores of the batch, then sum(weights * scores); with `gradient` also the backward pass. */
static double run(struct tt_model_runner *runner, const float *weights, bool gradient, float *scores)
{
    struct tt_model *model = runner->model;
    tt_tensor x[8] = {{0}}, dy = {0};
    void *saved[8] = {NULL};
    int last = model->block_count - 1, first = 0;
    int64_t labels = model->facts.label_count, batch = runner->batch.sequence_count;
    size_t mark = tt_workspace_mark(runner->workspace);
    double sum = 0;
    runner->pass.in.gradient = gradient;
    for (int i = 0; i <= last; i++) {
        struct tt_block *block = &model->blocks[i];
        if (i < last)
            test_must(tt_workspace_2d(runner->workspace, "activation", TT_F32, runner->batch.token_count,
                                      model->facts.hidden_size, &x[i + 1]));
        if (gradient) saved[i] = tt_calloc(1, block->ops->saved_bytes);
        test_must(block->ops->forward(block, &runner->pass, x[i], saved[i], x[i + 1]));
    }
    tt_tensor got = tt_pass_result(&runner->results, TT_RESULT_SCORES, 0);
    if (batch > 0) assert_true(got.dims[0] == batch && got.dims[1] == labels);
    if (scores != NULL) memcpy(scores, got.data, tt_tensor_bytes(got));
    for (int64_t i = 0; i < batch * labels; i++) sum += (double)weights[i] * ((const float *)got.data)[i];
    while (!model->blocks[first].trains) first++;
    if (gradient)
        test_must(tt_workspace_2d(runner->workspace, "gradient", TT_F32, runner->batch.token_count,
                                  model->facts.hidden_size, &dy));
    runner->pass.in.dscores_BL = tt_tensor_2d((float *)(uintptr_t)weights, TT_F32, batch, labels);
    for (int i = last; i >= first && gradient; i--)
        test_must(model->blocks[i].ops->backward(&model->blocks[i], &runner->pass, x[i], saved[i], dy,
                                                 i > first ? dy : (tt_tensor){0}));
    for (int i = 0; i <= last; i++) tt_free(saved[i]);
    tt_workspace_release(runner->workspace, mark);
    return sum;
}

static const float weights[SEQUENCES * LABELS_MAX] = {1, -2, 0.5f, 3, -0.25f, 1.5f, -1, 2, 0.75f};

static void scores_of_transformers(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        int64_t labels;
    } models[] = {{"labels", 3}, {"plain", 2}};
    for (int m = 0; m < 2; m++) {
        struct reference reference;
        float scores[SEQUENCES * LABELS_MAX];
        struct tt_model_runner *runner =
            open_model(models[m].name, &(struct tt_model_options){.compute_dtype = TT_F32}, models[m].labels,
                       &reference);
        runner->pass.in.training = false;
        runner->model->blocks[0].trains = true; /* nothing else does */
        (void)run(runner, weights, false, scores);
        for (int64_t i = 0; i < SEQUENCES * models[m].labels; i++)
            if (!(fabsf(scores[i] - reference.scores[i]) <= 1e-5f * (1 + fabsf(reference.scores[i]))))
                fail_msg("%s: score %d is %.7f, not %.7f", models[m].name, (int)i, scores[i],
                         reference.scores[i]);
        tt_runner_destroy(runner);
    }
}

/* The change along random signs must be the inner product with the gradient. */
static void check_param(struct tt_model_runner *runner, tt_param *param)
{
    int64_t count = tt_param_count(param);
    float *value = param->value.data, *start = tt_calloc((size_t)count, sizeof *start);
    const float *grad = param->grad.data;
    const double h = 4e-3 / sqrt(sqrt((double)count));
    double wanted = 0, norm = 0, sums[2];
    assert_non_null(start);
    memcpy(start, value, (size_t)count * sizeof *start);
    struct tt_rng rng = tt_rng_derive(tt_rng_make(3), param->name);
    for (int side = 0; side < 2; side++) {
        for (int64_t e = 0; e < count; e++) {
            double sign = tt_rng_u64(rng, (uint64_t)e) & 1 ? 1 : -1;
            value[e] = (float)(start[e] + (side == 0 ? h : -h) * sign);
            wanted += side == 0 ? sign * grad[e] : 0;
            norm += side == 0 ? (double)grad[e] * grad[e] : 0;
        }
        sums[side] = run(runner, weights, false, NULL);
    }
    memcpy(value, start, (size_t)count * sizeof *start);
    tt_free(start);
    norm = sqrt(norm);
    double got = (sums[0] - sums[1]) / (2 * h);
    if (!(norm > 1e-5) || !(fabs(got - wanted) <= 0.02 * norm + 2e-3))
        fail_msg("%s: the sum changes by %g, the gradient (norm %g) says %g", param->name, got, norm, wanted);
}

static void gradients(void **state)
{
    (void)state;
    const struct tt_model_options ways[] = {
        {.compute_dtype = TT_F32, .train_base = true},
        {.compute_dtype = TT_F32,
         .lora = {.enabled = true,
                  .r = 2,
                  .alpha = 4,
                  .target_modules = "all-linear",
                  .modules_to_save = "[\"score\"]"}},
        {.compute_dtype = TT_F32,
         .lora = {.enabled = true, .r = 2, .alpha = 4, .target_modules = "[\"q_proj\", \"score\"]"}},
    };
    for (int w = 0; w < 3; w++) {
        struct reference reference;
        struct tt_model_runner *runner = open_model("labels", &ways[w], 3, &reference);
        size_t checked = 0;
        tt_runner_fill(runner, 7, 0.3);
        runner->pass.in.training = true;
        (void)run(runner, weights, true, NULL);
        for (size_t i = 0; i < runner->model->param_count; i++) {
            if (!runner->model->params[i]->trainable) continue;
            check_param(runner, runner->model->params[i]);
            checked++;
        }
        assert_true(checked > 4);
        tt_runner_destroy(runner);
    }
}

/* A rank without sequences: nothing is read, and the gradient below is 0. */
static void no_sequences(void **state)
{
    (void)state;
    struct reference reference;
    struct tt_model_runner *runner = open_model(
        "labels", &(struct tt_model_options){.compute_dtype = TT_F32, .train_base = true}, 3, &reference);
    struct tt_block *head = &runner->model->blocks[runner->model->block_count - 1];
    float dx[TOKENS * 16];
    memset(dx, 0x7f, sizeof dx);
    runner->batch.sequence_count = 0;
    test_must(head->ops->forward(head, &runner->pass, (tt_tensor){0}, NULL, (tt_tensor){0}));
    assert_true(tt_tensor_is_empty(tt_pass_result(&runner->results, TT_RESULT_SCORES, 0)));
    test_must(head->ops->backward(head, &runner->pass, (tt_tensor){0}, NULL, (tt_tensor){0},
                                  tt_tensor_2d(dx, TT_F32, TOKENS, 16)));
    for (int i = 0; i < TOKENS * 16; i++) assert_true(dx[i] == 0);
    tt_runner_destroy(runner);
}

static void a_language_model_is_needed(void **state)
{
    (void)state;
    struct tt_json json = {0};
    struct tt_model_facts *facts = tt_calloc(1, sizeof *facts);
    assert_non_null(facts);
    test_must(tt_json_read(GOLDEN "labels/model/config.json", 1 << 20, &json));
    assert_int_equal(tt_model_facts_parse(&json, facts), TT_ERR_UNSUPPORTED);
    assert_non_null(
        strstr(tt_error_last()->message,
               "'LlamaForSequenceClassification' gives each sequence scores of 3 labels, and this "
               "needs a language model"));
    assert_non_null(strstr(tt_error_last()->hint, "lm_head"));
    tt_json_deinit(&json);
    tt_free(facts);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(scores_of_transformers),
        cmocka_unit_test(gradients),
        cmocka_unit_test(no_sequences),
        cmocka_unit_test(a_language_model_is_needed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
