/* Folders in FP8, experts and all: with scales of blocks, as DeepSeek V3 and MiniMax-M2 are published, and with one
 * scale for each matrix, as Mistral Small 4 is (fp8_experts/make_fp8_experts.py): the loss is that of their numbers; an
 * adapter trains over them, and merges into numbers of the same loss. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "base/file.h"
#include "convert/merge.h"
#include "io/coded_experts.h"
#include "io/model_folder.h"
#include "model/model.h"
#include "support/golden.h"
#include "support/model_runner.h"
#include "support/must.h"
#include "support/train_run.h"

#define GOLDEN TT_TEST_ROOT "/golden/"
static const char *const names[] = {"deepseek_v3", "minimax_m2", "mistral4"};
enum { NAMES = sizeof names / sizeof names[0], MOST = 1 << 16 };

static const char *rows_of(const char *model)
{
    return strstr(model, "mistral4") != NULL ? GOLDEN "vision/mistral4/train.jsonl"
                                             : GOLDEN "dense/train.jsonl";
}

static const char *model_of(const char *name)
{
    static char path[512];
    (void)snprintf(path, sizeof path, GOLDEN "fp8_experts/%s/model", name);
    return path;
}

static double loss_of(const char *name, const char *model, const char *adapter, const char *more)
{
    struct test_words settings = {0};
    struct tt_eval_result result;
    test_words_pair(&settings, "model_name_or_path", model);
    test_words_pair(&settings, "eval_dataset", rows_of(name));
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
        double got = loss_of(names[i], model_of(names[i]), NULL, "fp8_products none");
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
            test_words_pair(&settings, "dataset_name", rows_of(names[i]));
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
        double apart = loss_of(names[i], model_of(names[i]), one, "fp8_products none"),
               whole = loss_of(names[i], merged, NULL, "");
        double before = loss_of(names[i], model_of(names[i]), NULL, "fp8_products none");
        assert_true(fabs(apart - before) > 1e-3 * before);
        /* Codes of all experts are not rounded to bf16 in a run in fp32, and merged numbers are. */
        double limit = strcmp(names[i], "mistral4") == 0 ? 1e-5 : 1e-6;
        if (!(fabs(apart - whole) <= limit * apart))
            fail_msg("%s: loss %.8f merged, %.8f apart", names[i], whole, apart);
        test_folder_remove(one);
        test_folder_remove(two);
    }
}

/* Any run of numbers is as it is in the whole; scales are no tensors of the folder any more. */
static void any_run(void **state)
{
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

/* Of all experts in one tensor numbers and codes are those of PyTorch, bit for bit, in every form of the scales. */
static void all_experts_are_the_numbers(void **state)
{
    static float wanted[MOST], got[MOST];
    static uint16_t rounded[MOST];
    static _Alignas(64) uint8_t segment[MOST];
    struct tt_model_folder *folder;
    struct tt_safetensors *numbers;
    struct tt_model_facts facts;
    (void)state;
    tt_runner_read_config(model_of("mistral4"), NULL, &facts);
    test_must(tt_model_folder_open(model_of("mistral4"), true, &folder));
    test_must(tt_model_folder_join(folder, &facts.sources));
    test_must(tt_safetensors_open(GOLDEN "fp8_experts/mistral4/numbers.safetensors", &numbers));
    assert_int_equal(tt_safetensors_count(numbers), 4);
    for (size_t i = 0; i < 4; i++) {
        const struct tt_safetensors_entry *number = tt_safetensors_entry(numbers, i);
        char name[200];
        (void)snprintf(name, sizeof name, "model.language_model.%s",
                       number->name + strlen("language_model.model."));
        const struct tt_safetensors_entry *entry = tt_model_folder_find(folder, name);
        struct tt_quant_layout layout;
        int64_t count = tt_safetensors_elements(number);
        if (entry == NULL) fail_msg("no '%s'", name);
        assert_true(entry->dtype == TT_BF16 && entry->rank == 3 && tt_safetensors_elements(entry) == count);
        test_must(tt_safetensors_read(numbers, number, 0, count, wanted, TT_F32));
        test_must(tt_model_folder_read(folder, entry, 0, count, rounded, TT_BF16));
        for (int64_t n = 0; n < count; n++) assert_int_equal(rounded[n], tt_f32_to_bf16(wanted[n]));
        test_must(tt_model_folder_coded(folder, entry, &layout));
        assert_int_equal(layout.format.type, TT_QUANT_FP8);
        assert_true(layout.count == count && layout.bytes <= sizeof segment);
        for (size_t at = 0, run = 1; at < layout.bytes; at += run, run = run * 3 % 97 + 1) {
            if (run > layout.bytes - at) run = layout.bytes - at;
            test_must(tt_model_folder_read_coded(folder, entry, &layout, at, run, segment + at));
        }
        tt_quant_decode(&layout, segment, 0, count, got, TT_F32);
        assert_memory_equal(got, wanted, (size_t)count * sizeof *got);
    }
    tt_safetensors_close(numbers);
    tt_model_folder_close(folder);
}

/* Scales of other experts than the codes have are refused by name. */
static void other_scales_are_refused(void **state)
{
    static const char key[] = "layers.0.mlp.experts.gate_up_proj_scale_inv", shape[] = "\"shape\":[4,1,1]";
    char *copy = test_folder_create(), from[600], to[600];
    struct tt_str bytes = {0};
    struct tt_model_folder *folder;
    struct tt_model_facts facts;
    (void)state;
    (void)snprintf(from, sizeof from, "%s/model.safetensors", model_of("mistral4"));
    (void)snprintf(to, sizeof to, "%s/model.safetensors", copy);
    test_must(tt_file_read(from, 1 << 20, &bytes));
    char *at = memmem(bytes.data, bytes.bytes, key, strlen(key));
    assert_non_null(at);
    at = memmem(at, 200, shape, strlen(shape));
    assert_non_null(at);
    memcpy(at, "\"shape\":[2,2,1]", strlen(shape));
    test_must(tt_file_write_atomic(to, bytes.data, bytes.bytes));
    (void)snprintf(from, sizeof from, "%s/config.json", model_of("mistral4"));
    (void)snprintf(to, sizeof to, "%s/config.json", copy);
    test_must(tt_file_copy(from, to));
    tt_runner_read_config(copy, NULL, &facts);
    test_must(tt_model_folder_open(copy, true, &folder));
    assert_int_equal(tt_model_folder_join(folder, &facts.sources), TT_ERR_DATA);
    assert_non_null(strstr(tt_error_last()->message, "gate_up_proj_scale_inv' do not fit"));
    assert_non_null(strstr(tt_error_last()->message, "4 experts of [16, 24]"));
    tt_model_folder_close(folder);
    tt_str_deinit(&bytes);
    test_folder_remove(copy);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(losses_are_those_of_the_numbers),
        cmocka_unit_test(adapters_train_and_merge),
        cmocka_unit_test(any_run),
        cmocka_unit_test(all_experts_are_the_numbers),
        cmocka_unit_test(other_scales_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
