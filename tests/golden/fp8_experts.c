/* Folders in FP8 with scales of blocks, experts and all, as DeepSeek V3 and MiniMax-M2 are published
 * (fp8_experts/make_fp8_experts.py): the loss is that of their numbers; an adapter trains over them, and merges into
 * numbers of the same loss. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "base/file.h"
#include "convert/merge.h"
#include "io/model_folder.h"
#include "model/model.h"
#include "support/golden.h"
#include "support/model_runner.h"
#include "support/must.h"
#include "support/train_run.h"

#define GOLDEN TT_TEST_ROOT "/golden/"
static const char *const names[] = {"deepseek_v3", "minimax_m2"};
enum { NAMES = sizeof names / sizeof names[0] };

static const char *model_of(const char *name)
{
    static char path[512];
    (void)snprintf(path, sizeof path, GOLDEN "fp8_experts/%s/model", name);
    return path;
}

static double loss_of(const char *model, const char *adapter, const char *more)
{
    struct test_words settings = {0};
    struct tt_eval_result result;
    test_words_pair(&settings, "model_name_or_path", model);
    test_words_pair(&settings, "eval_dataset", GOLDEN "dense/train.jsonl");
    test_words_add(&settings, "bf16 false max_length 128");
    if (adapter != NULL) test_words_pair(&settings, "adapter_name_or_path", adapter);
    test_words_add(&settings, more);
    test_evaluate_ok(settings.list, false, &result);
    return result.loss;
}

static void losses_are_those_of_the_numbers(void **state)
{
    struct tt_json wanted = {0};
    (void)state;
    test_must(tt_json_read(GOLDEN "fp8_experts/losses.json", 1 << 16, &wanted));
    for (int i = 0; i < NAMES; i++) {
        double want = tt_json_number(tt_json_get(wanted.root, names[i]));
        double got = loss_of(model_of(names[i]), NULL, "fp8_products none");
        assert_true(want > 1);
        if (!(fabs(got - want) <= 1e-6 * want)) fail_msg("%s: loss %.8f, wanted %.8f", names[i], got, want);
    }
    tt_json_deinit(&wanted);
}

/* The same adapter on one and on two ranks, which merges into a folder without codes. */
static void adapters_train_and_merge(void **state)
{
    (void)state;
    for (int i = 0; i < NAMES; i++) {
        char *one = test_folder_create(), *two = test_folder_create(), merged[512], a[600], b[600],
             worst[200];
        for (int ranks = 1; ranks <= 2; ranks++) {
            struct test_words settings = {0};
            struct tt_train_summary summary;
            test_words_pair(&settings, "model_name_or_path", model_of(names[i]));
            test_words_pair(&settings, "dataset_name", GOLDEN "dense/train.jsonl");
            test_words_add(&settings,
                           "bf16 false max_length 128 max_steps 3 learning_rate 0.01 lora_dropout 0 "
                           "lora_target_modules all-linear fp8_products none save_strategy no");
            test_words_add(&settings, ranks == 1 ? "ranks 1 per_device_train_batch_size 4"
                                                 : "ranks 2 per_device_train_batch_size 2");
            test_train_ok(settings.list, ranks == 1 ? one : two, &summary);
        }
        (void)snprintf(a, sizeof a, "%s/adapter_model.safetensors", one);
        (void)snprintf(b, sizeof b, "%s/adapter_model.safetensors", two);
        double error = test_compare_weights(a, b, worst, sizeof worst);
        if (!(error <= 1e-4)) fail_msg("%s: '%s' is off by %.2e on two ranks", names[i], worst, error);
        (void)snprintf(merged, sizeof merged, "%s/merged", two);
        struct tt_merge both;
        struct tt_merge_report report;
        struct tt_merge_options options = {.output_dir = merged, .dtype = TT_F32};
        test_must(tt_merge_open(model_of(names[i]), one, &both));
        test_must(tt_merge_write(&both, &options, &report));
        tt_merge_report_deinit(&report);
        tt_merge_close(&both);
        double apart = loss_of(model_of(names[i]), one, "fp8_products none"),
               whole = loss_of(merged, NULL, "");
        double before = loss_of(model_of(names[i]), NULL, "fp8_products none");
        assert_true(fabs(apart - before) > 1e-3 * before);
        if (!(fabs(apart - whole) <= 1e-6 * apart))
            fail_msg("%s: loss %.8f merged, %.8f apart", names[i], whole, apart);
        test_folder_remove(one);
        test_folder_remove(two);
    }
}

/* Any run of numbers is as it is in the whole; scales are no tensors of the folder any more. */
static void any_run(void **state)
{
    enum { MOST = 1 << 16 };
    static float whole[MOST], part[MOST];
    struct tt_model_folder *folder;
    struct tt_model_facts facts;
    (void)state;
    tt_runner_read_config(model_of("deepseek_v3"), NULL, &facts);
    test_must(tt_model_folder_open(model_of("deepseek_v3"), true, &folder));
    test_must(tt_model_folder_join(folder, &facts.sources));
    for (size_t i = 0; i < tt_model_folder_tensor_count(folder); i++) {
        const char *name = tt_model_folder_tensor_name(folder, i);
        if (strstr(name, ".experts.") != NULL && strstr(name, "scale") != NULL)
            fail_msg("'%s' is left", name);
    }
    const struct tt_safetensors_entry *entry =
        tt_model_folder_find(folder, "model.layers.1.mlp.experts.down_proj");
    assert_non_null(entry);
    assert_int_equal(entry->dtype, TT_BF16);
    int64_t count = tt_safetensors_elements(entry);
    assert_in_range(count, 1000, MOST);
    test_must(tt_model_folder_read(folder, entry, 0, count, whole, TT_F32));
    for (int64_t first = 0, run = 1; first + run <= count; first += run, run = run * 3 % 997 + 1) {
        test_must(tt_model_folder_read(folder, entry, first, run, part, TT_F32));
        assert_memory_equal(part, whole + first, (size_t)run * sizeof *part);
    }
    tt_model_folder_close(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(losses_are_those_of_the_numbers),
        cmocka_unit_test(adapters_train_and_merge),
        cmocka_unit_test(any_run),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
