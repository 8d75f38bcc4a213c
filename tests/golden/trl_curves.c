/* What a run logs against SFTTrainer of TRL 1.16 (trl/make_trl.py): loss, entropy, token accuracy, gradient
 * norm and learning rate of 12 steps and two evaluations in fp32, each step and each evaluation one micro
 * batch, so that TRL's means over micro batches are means over tokens. A weight decay of 1 shows what it acts
 * on. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "base/alloc.h"
#include "base/file.h"
#include "support/golden.h"
#include "support/train_run.h"

enum { ROWS = 14 };

static void compare_row(const char *name, int line, const struct tt_json_value *got,
                        const struct tt_json_value *want)
{
    const char *key;
    const struct tt_json_value *value;
    for (size_t member = 0; tt_json_next_member(want, &member, &key, &value);) {
        const struct tt_json_value *ours = tt_json_get(got, key);
        if (!tt_json_is_number(ours)) fail_msg("%s, row %d: there is no '%s'", name, line, key);
        double x = tt_json_number(ours), y = tt_json_number(value);
        /* An accuracy is a share of whole tokens; the norm is the sum of squares of small numbers. */
        double relative = strcmp(key, "grad_norm") == 0     ? 1e-3
                          : strstr(key, "accuracy") != NULL ? 1e-6
                                                            : 2e-5;
        if (fabs(x - y) > relative * fabs(y) + 1e-12)
            fail_msg("%s, row %d: %s is %.9g, TRL logs %.9g", name, line, key, x, y);
    }
}

static void compare_log(const char *name, const char *output)
{
    char golden[512];
    struct tt_json want = {0}, got = {0};
    snprintf(golden, sizeof golden, "%s/golden/trl/%s.json", TT_TEST_ROOT, name);
    assert_int_equal(tt_json_read(golden, 1 << 20, &want), TT_OK);
    char *path = tt_path_join(output, "trainer_state.json");
    assert_int_equal(tt_json_read(path, 1 << 20, &got), TT_OK);
    const struct tt_json_value *rows = tt_json_get(want.root, "log"),
                               *log = tt_json_get(got.root, "log_history");
    assert_int_equal(tt_json_count(rows), ROWS);
    assert_true(tt_json_count(log) >= ROWS);
    for (int i = 0; i < ROWS; i++)
        compare_row(name, i, tt_json_at(log, (size_t)i), tt_json_at(rows, (size_t)i));
    tt_free(path);
    tt_json_deinit(&want);
    tt_json_deinit(&got);
}

static void check(const char *name, bool lora)
{
    char rows[512];
    struct test_words settings = {0};
    char *output = test_folder_create(), *work = test_folder_create();
    snprintf(rows, sizeof rows, "%s/eval.jsonl", work);
    test_copy_lines(TT_TEST_ROOT "/golden/llama2/train.jsonl", 6, rows);
    test_golden_inputs(&settings, "llama2", lora);
    test_words_pair(&settings, "eval_dataset", rows);
    test_words_add(&settings,
                   "bf16 false max_steps 12 weight_decay 1.0 warmup_steps 2 lr_scheduler_type linear "
                   "learning_rate 0.01 per_device_train_batch_size 4 gradient_accumulation_steps 1 "
                   "per_device_eval_batch_size 6 train_sampling_strategy sequential logging_steps 1 "
                   "eval_strategy steps eval_steps 6 save_strategy no");
    struct tt_train_summary summary;
    test_train_ok(settings.list, output, &summary);
    compare_log(name, output);
    test_folder_remove(output);
    test_folder_remove(work);
}

static void full(void **state)
{
    (void)state;
    check("full", false);
}

static void lora(void **state)
{
    (void)state;
    check("lora", true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(full), cmocka_unit_test(lora)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
