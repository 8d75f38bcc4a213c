/* Adapters of experts (target_parameters) against transformers + PEFT in fp32 (experts/make_experts.py): 50 steps of
 * AdamW and the adapter at the end, logits with it, and what merge_and_unload makes of base and adapter. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "base/alloc.h"
#include "base/file.h"
#include "convert/merge.h"
#include "io/model_folder.h"
#include "model/adapter_config.h"
#include "support/golden.h"
#include "support/model_runner.h"
#include "support/must.h"
#include "support/train_run.h"

#define GOLDEN TT_TEST_ROOT "/golden/"
enum { STEPS = 50 };

/* NAME is below experts/, `base` the folder of its model. */
static const struct adapter_case {
    const char *name, *base;
    bool balanced; /* a step is one micro batch, of which the loss that balances experts is */
    bool merged;
    bool alone; /* without a training */
} cases[] = {
    {"qwen3_moe", "dense/qwen3_moe", true, true, false},
    {"mixtral", "dense/mixtral", true, false, false},
    {"olmoe", "dense/olmoe", true, false, false},
    {"qwen2_moe", "dense/qwen2_moe", true, false, false},
    {"qwen3_5_moe_text", "dense/qwen3_5_moe_text", true, false, false},
    {"qwen3_next", "dense/qwen3_next", true, false, false},
    {"glm4_moe", "dense/glm4_moe", false, false, false},
    {"glm4_moe_lite", "dense/glm4_moe_lite", false, false, false},
    {"minimax_m2", "dense/minimax_m2", true, false, false},
    {"deepseek_v3", "dense/deepseek_v3", false, false, false},
    {"gpt_oss", "dense/gpt_oss", true, true, false},
    {"granite4_moe", "dense/granite4_moe", true, false, false},
    {"nemotron_h", "dense/nemotron_h", false, false, false},
    {"mistral4", "vision/mistral4", false, false, false},
    {"gemma4_moe", "dense/gemma4_moe", false, false, false},
    {"qwen3_moe_all", "dense/qwen3_moe", true, false, false},
    {"minimax_m2_all", "dense/minimax_m2", true, false, false},
    {"deepseek_v3_all", "dense/deepseek_v3", false, false, false},
    {"qwen3_next_all", "dense/qwen3_next", true, false, false},
    {"qwen2_moe_all", "dense/qwen2_moe", true, false, false},
    {"gpt_oss_gate_up", "dense/gpt_oss", true, false, false},
    {"gpt_oss_down", "dense/gpt_oss", true, false, false},
    {"gpt_oss_router", "dense/gpt_oss", true, false, false},
    {"each_qwen3_moe", "dense/qwen3_moe", true, false, true},
    {"each_mixtral", "dense/mixtral", true, false, true},
    {"each_glm4_moe", "dense/glm4_moe", false, false, true},
};
enum { CASES = sizeof cases / sizeof cases[0] };

/* GOLDEN, two parts below it. */
static const char *below(const char *a, const char *b)
{
    static char paths[4][512];
    static int next;
    char *path = paths[next = (next + 1) % 4];
    (void)snprintf(path, sizeof paths[0], GOLDEN "%s/%s", a, b);
    return path;
}

static const char *of_case(const struct adapter_case *c, const char *what)
{
    static char parts[4][80];
    static int next;
    char *part = parts[next = (next + 1) % 4];
    (void)snprintf(part, sizeof parts[0], "%s/%s", c->name, what);
    return below("experts", part);
}

static const char *rows_of(const struct adapter_case *c)
{
    const char *own = below(c->base, "train.jsonl");
    return tt_path_exists(own) ? own : below("dense", "train.jsonl");
}

/* ---- Training ---- */

static double number(const struct tt_json_value *step, const char *key)
{
    return tt_json_number(tt_json_get(step, key));
}

static double largest_rate(const struct tt_json *reference)
{
    const struct tt_json_value *steps = tt_json_get(reference->root, "steps");
    double most = 0;
    for (size_t i = 0; i < tt_json_count(steps); i++)
        most = fmax(most, number(tt_json_at(steps, i), "learning_rate"));
    return most;
}

static void compare_curve(const struct adapter_case *c, const struct tt_json *reference, const char *output)
{
    double loss[STEPS + 1], norm[STEPS + 1];
    assert_int_equal(test_read_log(output, "loss", loss, STEPS + 1), STEPS);
    assert_int_equal(test_read_log(output, "grad_norm", norm, STEPS + 1), STEPS);
    for (int i = 0; i < STEPS; i++) {
        const struct tt_json_value *step = tt_json_at(tt_json_get(reference->root, "steps"), (size_t)i);
        double want_loss = number(step, "loss"), want_norm = number(step, "grad_norm");
        if (!(fabs(loss[i] - want_loss) <= 1e-5 * want_loss))
            fail_msg("%s step %d: loss %.7f, wanted %.7f", c->name, i + 1, loss[i], want_loss);
        if (!(fabs(norm[i] - want_norm) <= 1e-3 * want_norm))
            fail_msg("%s step %d: gradient norm %.7f, wanted %.7f", c->name, i + 1, norm[i], want_norm);
    }
}

static void train(const struct adapter_case *c, const char *rate, const char *output)
{
    struct test_words settings = {0};
    struct tt_train_summary summary;
    test_words_pair(&settings, "model_name_or_path", below(c->base, "model"));
    test_words_pair(&settings, "dataset_name", rows_of(c));
    test_words_pair(&settings, "adapter_name_or_path", of_case(c, "adapter_init"));
    test_words_add(&settings, TEST_GOLDEN_STEPS " save_strategy no max_steps 50");
    if (c->balanced) test_words_add(&settings, "per_device_train_batch_size 4 gradient_accumulation_steps 1");
    test_words_pair(&settings, "learning_rate", rate);
    test_train_ok(settings.list, output, &summary);
}

static void fifty_steps(void **state)
{
    (void)state;
    for (int i = 0; i < CASES; i++) {
        if (cases[i].alone) continue;
        char rate[32], weights[512], worst[200], *output = test_folder_create();
        struct tt_json reference = {0};
        test_must(tt_json_read(of_case(&cases[i], "train_reference.json"), 1 << 24, &reference));
        (void)snprintf(rate, sizeof rate, "%.12g", largest_rate(&reference));
        train(&cases[i], rate, output);
        compare_curve(&cases[i], &reference, output);
        (void)snprintf(weights, sizeof weights, "%s/adapter_model.safetensors", output);
        double error = test_compare_weights(
            weights, of_case(&cases[i], "adapter_final/adapter_model.safetensors"), worst, sizeof worst);
        print_message("%s: adapter off by %.2e\n", cases[i].name, error);
        if (!(error <= 1e-3)) fail_msg("%s: '%s' is off by %.2e", cases[i].name, worst, error);
        tt_json_deinit(&reference);
        test_folder_remove(output);
    }
}

/* ---- Logits ---- */

struct batch {
    int32_t ids[512];
    int64_t lengths[16], sequences, tokens;
};

static int64_t read_integers(const struct tt_safetensors *file, const char *name, int64_t *to, int64_t most)
{
    const struct tt_safetensors_entry *entry = tt_safetensors_find(file, name);
    assert_non_null(entry);
    assert_in_range(entry->dims[0], 1, most);
    test_must(tt_safetensors_read(file, entry, 0, entry->dims[0], to, TT_I64));
    return entry->dims[0];
}

static void read_batch(const struct adapter_case *c, struct batch *batch)
{
    int64_t ids[512];
    struct tt_safetensors *file = NULL;
    test_must(tt_safetensors_open(below(c->base, "reference.safetensors"), &file));
    batch->sequences = read_integers(file, "seq_lens", batch->lengths, 16);
    batch->tokens = read_integers(file, "input_ids", ids, 512);
    for (int64_t i = 0; i < batch->tokens; i++) batch->ids[i] = (int32_t)ids[i];
    tt_safetensors_close(file);
}

/* Of `model`, with the adapter where there is one. */
static float *run_logits(const char *model, const char *adapter, const struct batch *batch, int64_t *vocab)
{
    struct tt_arena arena = {0};
    struct tt_model_facts *facts = tt_calloc(1, sizeof *facts);
    struct tt_model_options options = {.compute_dtype = TT_F32};
    assert_non_null(facts);
    tt_runner_read_config(model, NULL, facts);
    if (adapter != NULL) test_must(tt_adapter_config_read(adapter, &arena, &options.lora));
    struct tt_model_runner *runner = tt_runner_create(facts, &options);
    tt_runner_load(runner, model, adapter);
    tt_runner_set_batch(runner, batch->ids, batch->lengths, batch->sequences, NULL);
    *vocab = facts->vocab_size;
    float *logits = tt_calloc((size_t)(batch->tokens * *vocab), sizeof *logits);
    assert_non_null(logits);
    tt_runner_logits(runner, logits);
    tt_runner_destroy(runner);
    tt_arena_deinit(&arena);
    tt_free(facts);
    return logits;
}

static double relative_error(const float *a, const float *b, int64_t count)
{
    double difference = 0, norm = 0;
    for (int64_t i = 0; i < count; i++) {
        difference += ((double)a[i] - b[i]) * ((double)a[i] - b[i]);
        norm += (double)b[i] * b[i];
    }
    return sqrt(difference / norm);
}

static void logits_with_adapter(void **state)
{
    (void)state;
    for (int i = 0; i < CASES; i++) {
        struct batch batch;
        struct tt_safetensors *file = NULL;
        int64_t vocab;
        read_batch(&cases[i], &batch);
        float *logits =
            run_logits(below(cases[i].base, "model"), of_case(&cases[i], "adapter_final"), &batch, &vocab);
        float *wanted = tt_calloc((size_t)(batch.tokens * vocab), sizeof *wanted);
        assert_non_null(wanted);
        test_must(tt_safetensors_open(of_case(&cases[i], "reference.safetensors"), &file));
        const struct tt_safetensors_entry *entry = tt_safetensors_find(file, "logits_adapter");
        assert_non_null(entry);
        assert_int_equal(entry->dims[1], vocab);
        test_must(tt_safetensors_read(file, entry, 0, batch.tokens * vocab, wanted, TT_F32));
        double error = relative_error(logits, wanted, batch.tokens * vocab);
        print_message("%s: logits off by %.2e\n", cases[i].name, error);
        if (!(error <= 1e-5)) fail_msg("%s: logits are off by %.2e", cases[i].name, error);
        tt_safetensors_close(file);
        tt_free(logits);
        tt_free(wanted);
    }
}

/* ---- Merging ---- */

static void merge(const struct adapter_case *c, const char *out)
{
    struct tt_merge both;
    struct tt_merge_report report;
    struct tt_merge_options options = {.output_dir = out, .dtype = TT_F32, .work.threads = 3};
    test_must(tt_merge_open(below(c->base, "model"), of_case(c, "adapter_final"), &both));
    test_must(tt_merge_write(&both, &options, &report));
    assert_true(report.changed > 0);
    tt_merge_report_deinit(&report);
    tt_merge_close(&both);
}

static void compare_tensor(const struct tt_safetensors *got, const struct tt_safetensors *wanted,
                           const struct tt_safetensors_entry *of)
{
    int64_t count = tt_safetensors_elements(of);
    const struct tt_safetensors_entry *is = tt_safetensors_find(got, of->name);
    if (is == NULL) fail_msg("the merged folder has no '%s'", of->name);
    assert_int_equal(tt_safetensors_elements(is), count);
    float *a = tt_calloc((size_t)count, sizeof *a), *b = tt_calloc((size_t)count, sizeof *b);
    assert_true(a != NULL && b != NULL);
    test_must(tt_safetensors_read(got, is, 0, count, a, TT_F32));
    test_must(tt_safetensors_read(wanted, of, 0, count, b, TT_F32));
    double error = relative_error(a, b, count);
    if (!(error <= 1e-6)) fail_msg("'%s' is off by %.2e", of->name, error);
    tt_free(a);
    tt_free(b);
}

/* Tensor by tensor where PEFT's are kept. */
static void compare_merged(const struct adapter_case *c, const char *folder)
{
    char path[600];
    struct tt_safetensors *got = NULL, *wanted = NULL;
    (void)snprintf(path, sizeof path, "%s/model.safetensors", folder);
    test_must(tt_safetensors_open(path, &got));
    test_must(tt_safetensors_open(of_case(c, "merged.safetensors"), &wanted));
    assert_true(tt_safetensors_count(wanted) > 4);
    for (size_t i = 0; i < tt_safetensors_count(wanted); i++)
        compare_tensor(got, wanted, tt_safetensors_entry(wanted, i));
    tt_safetensors_close(got);
    tt_safetensors_close(wanted);
}

/* The same logits of both in fp32. */
static void merged_models(void **state)
{
    (void)state;
    for (int i = 0; i < CASES; i++) {
        char out[512], *folder = test_folder_create();
        struct batch batch;
        int64_t vocab;
        read_batch(&cases[i], &batch);
        (void)snprintf(out, sizeof out, "%s/merged", folder);
        merge(&cases[i], out);
        float *merged = run_logits(out, NULL, &batch, &vocab);
        float *apart =
            run_logits(below(cases[i].base, "model"), of_case(&cases[i], "adapter_final"), &batch, &vocab);
        double error = relative_error(merged, apart, batch.tokens * vocab);
        print_message("%s: merged logits off by %.2e\n", cases[i].name, error);
        if (!(error <= 3e-6)) fail_msg("%s: merged logits are off by %.2e", cases[i].name, error);
        if (cases[i].merged) compare_merged(&cases[i], out);
        tt_free(merged);
        tt_free(apart);
        test_folder_remove(folder);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fifty_steps),
        cmocka_unit_test(logits_with_adapter),
        cmocka_unit_test(merged_models),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
