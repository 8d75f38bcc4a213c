/* Merged models against PEFT's merge_and_unload (merge/make_merge.py), and against base + adapter in our own
 * forward. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>
#include "base/alloc.h"
#include "base/file.h"
#include "convert/merge.h"
#include "model/adapter_config.h"
#include "support/model_runner.h"
#include "support/must.h"
#include "support/train_run.h"

#define GOLDEN TT_TEST_ROOT "/golden/"
enum { TOKENS = 37 };

/* Merges into `out`; `adapter` may be NULL. */
static void merge(const char *base, const char *adapter, const char *out, tt_dtype dtype, int threads,
                  uint64_t shard_bytes)
{
    struct tt_merge both;
    struct tt_merge_report report;
    struct tt_merge_options options = {
        .output_dir = out, .dtype = dtype, .max_shard_bytes = shard_bytes, .work.threads = threads};
    test_must(tt_merge_open(base, adapter, &both));
    test_must(tt_merge_write(&both, &options, &report));
    assert_int_equal(report.count, both.count);
    assert_int_equal(report.changed > 0, adapter != NULL);
    tt_merge_report_deinit(&report);
    tt_merge_close(&both);
}

/* Random values of wide range, a model in bf16: a cast copy of the reference model. */
static void make_bf16_base(const char *family, const char *out)
{
    char base[512];
    (void)snprintf(base, sizeof base, GOLDEN "%s/model", family);
    merge(base, NULL, out, TT_BF16, 0, 0);
}

static float *logits_of(const char *base, const char *adapter, tt_dtype dtype, int64_t *count)
{
    struct tt_arena arena = {0};
    struct tt_model_facts *config = calloc(1, sizeof *config);
    struct tt_model_options options = {.compute_dtype = dtype};
    int32_t ids[TOKENS];
    int64_t lengths[] = {1, TOKENS - 1};
    tt_runner_read_config(base, NULL, config);
    if (adapter != NULL) test_must(tt_adapter_config_read(adapter, &arena, &options.lora));
    struct tt_model_runner *runner = tt_runner_create(config, &options);
    tt_runner_load(runner, base, adapter);
    for (int i = 0; i < TOKENS; i++) ids[i] = (int32_t)((i * 71 + 3) % config->vocab_size);
    tt_runner_set_batch(runner, ids, lengths, 2, NULL);
    *count = TOKENS * config->vocab_size;
    float *logits = calloc((size_t)*count, sizeof *logits);
    tt_runner_logits(runner, logits);
    tt_runner_destroy(runner);
    tt_arena_deinit(&arena);
    free(config);
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

static const struct {
    const char *family, *adapter;
} cases[] = {
    {"llama2", "adapter_random"}, {"llama3", "adapter_random"},  {"mistral", "adapter_random"},
    {"qwen2", "adapter_random"},  {"qwen3", "adapter_random"},   {"llama2", "variety"},
    {"qwen2", "variety"},         {"smollm3", "adapter_random"}, {"phi3", "adapter_random"},
    {"gemma3", "adapter_random"}, {"gemma2", "adapter_random"},
};

static void same_logits(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char base[512], adapter[512], out[512], *folder = test_folder_create();
        int64_t count;
        (void)snprintf(base, sizeof base, GOLDEN "%s/model", cases[i].family);
        (void)snprintf(adapter, sizeof adapter, GOLDEN "%s/%s", cases[i].family, cases[i].adapter);
        (void)snprintf(out, sizeof out, "%s/merged", folder);
        merge(base, adapter, out, TT_DTYPE_NONE, 0, 100000);
        float *apart = logits_of(base, adapter, TT_F32, &count);
        float *merged = logits_of(out, NULL, TT_F32, &count);
        double error = relative_error(merged, apart, count);
        print_message("%s %s: %.2e\n", cases[i].family, cases[i].adapter, error);
        assert_true(error <= 2e-6);
        free(apart);
        free(merged);
        test_folder_remove(folder);
    }
}

/* A bf16 base: what merging loses is what rounding W + s B A loses. The same base without an adapter, cast
 * from fp32, loses as much, and is the yardstick. */
static void bf16_loses_a_rounding(void **state)
{
    (void)state;
    for (size_t i = 0; i < 5; i++) {
        char base[512], adapter[512], rough[512], out[512], *folder = test_folder_create();
        int64_t count;
        (void)snprintf(base, sizeof base, GOLDEN "%s/model", cases[i].family);
        (void)snprintf(adapter, sizeof adapter, GOLDEN "%s/adapter_random", cases[i].family);
        (void)snprintf(rough, sizeof rough, "%s/rough", folder);
        (void)snprintf(out, sizeof out, "%s/merged", folder);
        make_bf16_base(cases[i].family, rough);
        merge(rough, adapter, out, TT_DTYPE_NONE, 0, 0);
        float *exact = logits_of(base, NULL, TT_F32, &count), *cast = logits_of(rough, NULL, TT_F32, &count);
        float *apart = logits_of(rough, adapter, TT_F32, &count);
        float *merged = logits_of(out, NULL, TT_F32, &count);
        double ours = relative_error(merged, apart, count), plain = relative_error(cast, exact, count);
        print_message("%s bf16: %.2e, a cast %.2e\n", cases[i].family, ours, plain);
        assert_true(ours <= 2 * plain && ours > 1e-5);
        free(exact);
        free(cast);
        free(apart);
        free(merged);
        test_folder_remove(folder);
    }
}

static void read_tensor(const struct tt_model_folder *folder, const struct tt_safetensors *file,
                        const char *name, float *values, int64_t count)
{
    if (file != NULL)
        test_must(tt_safetensors_read(file, tt_safetensors_find(file, name), 0, count, values, TT_F32));
    else
        test_must(tt_model_folder_read(folder, tt_model_folder_find(folder, name), 0, count, values, TT_F32));
}

/* Every tensor of the golden file in the merged folder; `differing` is the share of values that are not the
 * same. */
static double compare_with_peft(const char *golden, const char *out, double *differing)
{
    struct tt_safetensors *file;
    struct tt_model_folder *folder;
    double worst = 0;
    int64_t total = 0, other = 0;
    test_must(tt_safetensors_open(golden, &file));
    test_must(tt_model_folder_open(out, true, &folder));
    for (size_t i = 0; i < tt_safetensors_count(file); i++) {
        const struct tt_safetensors_entry *entry = tt_safetensors_entry(file, i);
        int64_t count = entry->dims[0] * (entry->rank > 1 ? entry->dims[1] : 1);
        float *theirs = calloc((size_t)count, sizeof(float)), *ours = calloc((size_t)count, sizeof(float));
        read_tensor(NULL, file, entry->name, theirs, count);
        read_tensor(folder, NULL, entry->name, ours, count);
        worst = fmax(worst, relative_error(ours, theirs, count));
        for (int64_t e = 0; e < count; e++) other += ours[e] != theirs[e];
        total += count;
        free(theirs);
        free(ours);
    }
    *differing = (double)other / (double)total;
    tt_safetensors_close(file);
    tt_model_folder_close(folder);
    return worst;
}

static void like_peft(void **state)
{
    char rough[512], out[512], *folder = test_folder_create();
    double differing;
    (void)state;
    (void)snprintf(rough, sizeof rough, "%s/rough", folder);
    (void)snprintf(out, sizeof out, "%s/merged", folder);
    merge(GOLDEN "llama2/model", GOLDEN "llama2/variety", out, TT_DTYPE_NONE, 0, 0);
    double error = compare_with_peft(GOLDEN "merge/llama2_variety.safetensors", out, &differing);
    print_message("fp32: %.2e\n", error);
    assert_true(error <= 1e-7);
    test_must(tt_dir_remove(out));
    make_bf16_base("qwen3", rough);
    merge(rough, GOLDEN "qwen3/adapter_random", out, TT_DTYPE_NONE, 0, 0);
    error = compare_with_peft(GOLDEN "merge/qwen3_bf16.safetensors", out, &differing);
    print_message("bf16: %.2e, %.3f %% of the values differ\n", error, 100 * differing);
    /* A sum in another order rounds the other way where it lies between two values. */
    assert_true(differing <= 1e-3 && error <= 1e-4);
    test_folder_remove(folder);
}

static void any_number_of_threads(void **state)
{
    char one[512], many[512], *folder = test_folder_create();
    (void)state;
    (void)snprintf(one, sizeof one, "%s/one", folder);
    (void)snprintf(many, sizeof many, "%s/many", folder);
    merge(GOLDEN "mistral/model", GOLDEN "mistral/adapter_random", one, TT_BF16, 1, 0);
    merge(GOLDEN "mistral/model", GOLDEN "mistral/adapter_random", many, TT_BF16, 5, 0);
    (void)snprintf(one, sizeof one, "%s/one/model.safetensors", folder);
    (void)snprintf(many, sizeof many, "%s/many/model.safetensors", folder);
    test_same_file(one, many);
    test_folder_remove(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(same_logits),
        cmocka_unit_test(bf16_loses_a_rounding),
        cmocka_unit_test(like_peft),
        cmocka_unit_test(any_number_of_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
