/* Trainings of models with scores, in fp32: reward models against RewardTrainer of TRL 1.16 (reward/make_reward.py),
 * without and with margins, and centered; a classifier against transformers' Trainer
 * (classification/make_classification.py). Losses of 20 steps and every number of two evaluations, the adapter and the
 * head at the end; the same on two ranks with another number of rows in a micro batch; and a run that is stopped and
 * resumed. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "base/file.h"
#include "support/golden.h"
#include "support/root.h"
#include "support/train_run.h"

#define GOLDEN TT_TEST_ROOT "/golden"

enum { STEPS = 20, ROWS = STEPS + 2 };

/* Of a golden: the rows that it evaluates on. */
static const struct golden {
    const char *objective, *words;
    int eval_rows;
} reward = {"reward", "learning_rate 0.005 per_device_eval_batch_size 6", 6},
  classes = {"classification",
             "learning_rate 0.003 per_device_eval_batch_size 5 id2label [\"small\",\"middle\",\"large\"]", 9};

/* The model of llama2 with a tokenizer. */
static int make_model(void **state)
{
    static const char *const files[][2] = {
        {"llama2/model/config.json", "model/config.json"},
        {"llama2/model/model.safetensors", "model/model.safetensors"},
        {"dpo/tokenizer/tokenizer.json", "model/tokenizer.json"},
        {"dpo/tokenizer/tokenizer_config.json", "model/tokenizer_config.json"},
    };
    int failed = test_root_create(state) != 0 || tt_dir_create(test_at("model")) != TT_OK;
    for (size_t i = 0; i < sizeof files / sizeof *files && !failed; i++) {
        char from[512];
        struct tt_str text = {0};
        snprintf(from, sizeof from, GOLDEN "/%s", files[i][0]);
        failed = tt_file_read(from, 1 << 20, &text) != TT_OK ||
                 tt_file_write_atomic(test_at(files[i][1]), text.data, text.bytes) != TT_OK;
        tt_str_deinit(&text);
    }
    return failed;
}

static void train(const struct golden *golden, const char *output, const char *more)
{
    struct test_words words = {0};
    struct tt_train_summary summary;
    char rows[400], adapter[400];
    snprintf(rows, sizeof rows, GOLDEN "/%s/train.jsonl", golden->objective);
    snprintf(adapter, sizeof adapter, GOLDEN "/%s/adapter_init", golden->objective);
    test_copy_lines(rows, golden->eval_rows, test_at("eval.jsonl"));
    test_words_pair(&words, "model_name_or_path", test_at("model"));
    test_words_pair(&words, "adapter_name_or_path", adapter);
    test_words_pair(&words, "dataset_name", rows);
    test_words_pair(&words, "eval_dataset", test_at("eval.jsonl"));
    test_words_pair(&words, "objective", golden->objective);
    test_words_add(&words, "bf16 false max_steps 20 weight_decay 0 warmup_steps 2 lr_scheduler_type linear "
                           "train_sampling_strategy sequential logging_steps 1 eval_strategy steps "
                           "eval_steps 10 report_to none device cpu overwrite_output_dir true");
    test_words_add(&words, golden->words);
    test_words_add(&words, more);
    test_train_ok(words.list, test_at(output), &summary);
}

static void compare_row(const char *name, int line, const struct tt_json_value *got,
                        const struct tt_json_value *want)
{
    const char *key;
    const struct tt_json_value *value;
    assert_true(tt_json_count(want) >= 3);
    for (size_t member = 0; tt_json_next_member(want, &member, &key, &value);) {
        const struct tt_json_value *ours = tt_json_get(got, key);
        if (!tt_json_is_number(ours)) fail_msg("%s, row %d: there is no '%s'", name, line, key);
        double x = tt_json_number(ours), y = tt_json_number(value);
        double relative = strstr(key, "grad_norm") != NULL ? 1e-3 : 1e-5;
        /* Scores are sums of about this size; a loss has no such cancellation. */
        double absolute = strstr(key, "loss") != NULL ? 1e-6 : 1e-5;
        if (!(fabs(x - y) <= relative * fabs(y) + absolute))
            fail_msg("%s, row %d: %s is %.9g, and it should be %.9g", name, line, key, x, y);
    }
}

static void compare_log(const char *objective, const char *name, const char *output)
{
    struct tt_json want = {0}, got = {0};
    char path[400], golden[400];
    snprintf(path, sizeof path, "%s/trainer_state.json", test_at(output));
    snprintf(golden, sizeof golden, GOLDEN "/%s/train.json", objective);
    assert_int_equal(tt_json_read(golden, 1 << 20, &want), TT_OK);
    assert_int_equal(tt_json_read(path, 1 << 20, &got), TT_OK);
    const struct tt_json_value *rows = tt_json_get(tt_json_get(want.root, "runs"), name),
                               *log = tt_json_get(got.root, "log_history");
    assert_int_equal(tt_json_count(rows), ROWS);
    assert_true(tt_json_count(log) >= ROWS);
    for (int i = 0; i < ROWS; i++)
        compare_row(name, i, tt_json_at(log, (size_t)i), tt_json_at(rows, (size_t)i));
    tt_json_deinit(&want);
    tt_json_deinit(&got);
}

static void compare_weights(const char *objective, const char *output)
{
    char got[400], want[400], worst[200];
    snprintf(got, sizeof got, "%s/adapter_model.safetensors", test_at(output));
    snprintf(want, sizeof want, GOLDEN "/%s/adapter_final/adapter_model.safetensors", objective);
    double error = test_compare_weights(got, want, worst, sizeof worst);
    if (error > 1e-3) fail_msg("%s: '%s' is off by %.2e", objective, worst, error);
}

#define WHOLE "per_device_train_batch_size 4 save_strategy no "
#define SPLIT                                                                                                \
    "per_device_train_batch_size 1 gradient_accumulation_steps 2 ranks 2 per_device_eval_batch_size 2 "      \
    "save_strategy no "

static void reward_models(void **state)
{
    (void)state;
    train(&reward, "margin", WHOLE);
    compare_log("reward", "margin", "margin");
    compare_weights("reward", "margin");
    train(&reward, "split", SPLIT);
    compare_log("reward", "margin", "split");
    compare_weights("reward", "split");
}

/* The rows of preferences have no margin. */
static void without_margins(void **state)
{
    static const char rows[] = WHOLE "dataset_name " GOLDEN "/dpo/train.jsonl eval_dataset ";
    char words[600];
    (void)state;
    test_copy_lines(GOLDEN "/dpo/train.jsonl", 6, test_at("plain.jsonl"));
    snprintf(words, sizeof words, "%s%s", rows, test_at("plain.jsonl"));
    train(&reward, "plain", words);
    compare_log("reward", "plain", "plain");
    snprintf(words, sizeof words, "%s%s center_rewards_coefficient 0.05", rows, test_at("plain.jsonl"));
    train(&reward, "center", words);
    compare_log("reward", "center", "center");
}

static void classifier(void **state)
{
    (void)state;
    train(&classes, "classes", WHOLE);
    compare_log("classification", "plain", "classes");
    compare_weights("classification", "classes");
    train(&classes, "classes_split", SPLIT);
    compare_log("classification", "plain", "classes_split");
}

/* The result of a run that is resumed from step 10 has the bytes of one that was not stopped. */
static void resumed(void **state)
{
    char more[600], a[400], b[400];
    static const char steps[] = "per_device_train_batch_size 4 save_strategy steps save_steps 10 ";
    (void)state;
    train(&reward, "whole", steps);
    snprintf(more, sizeof more, "%sresume_from_checkpoint %s/checkpoint-10", steps, test_at("whole"));
    train(&reward, "rest", more);
    snprintf(a, sizeof a, "%s/adapter_model.safetensors", test_at("whole"));
    snprintf(b, sizeof b, "%s/adapter_model.safetensors", test_at("rest"));
    test_same_file(a, b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(reward_models), cmocka_unit_test(without_margins),
                                       cmocka_unit_test(classifier), cmocka_unit_test(resumed)};
    return cmocka_run_group_tests(tests, make_model, test_root_remove);
}
