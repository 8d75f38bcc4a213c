/* Every objective that reads the rows of its step has a row here: ranks 1, 2 and 4, strategies, micro batches, prompts
 * that answers share and that each has for itself, and bases in NF4 and FP8 give one curve of its loss and one of each
 * metric that its row names. The test fails where an objective has no row. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "base/file.h"
#include "objective/objective.h"
#include "support/model_runner.h"
#include "support/root.h"
#include "support/train_run.h"

enum { STEPS = 3 };

/* `words`: its settings; `metric`: one that its `share` or its own sums make. */
static const struct row {
    const struct tt_objective_ops *ops;
    const char *data, *words, *metric;
} rows[] = {
    {&tt_objective_dpo, "dpo", "loss_type [\"sigmoid\",\"sft\"] loss_weights [1,0.5] ld_alpha 0.5",
     "rewards/margins"},
    {&tt_objective_orpo, "dpo", "beta 0.3", "log_odds_ratio"},
    {&tt_objective_cpo, "dpo", "loss_type simpo beta 2", "nll_loss"},
    {&tt_objective_kto, "kto", "beta 0.3", "kl"},
    {&tt_objective_reward, "reward", "center_rewards_coefficient 0.1", "margin"},
    {&tt_objective_classification, "classification", "id2label [\"small\",\"middle\",\"large\"]", "loss"},
};
enum { ROWS = sizeof rows / sizeof *rows };

static void every_objective_has_a_row(void **state)
{
    (void)state;
    for (int o = 0; o < TT_OBJECTIVES; o++) {
        bool has = tt_objectives[o]->rows == NULL;
        for (int i = 0; i < ROWS; i++) has = has || rows[i].ops == tt_objectives[o];
        if (!has) fail_msg("the objective %s has no row", tt_objectives[o]->name);
    }
}

struct curve {
    double loss[STEPS], metric[STEPS];
};

/* The model of golden/llama2 with the tokenizer of golden/dpo. */
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
        snprintf(from, sizeof from, TT_TEST_ROOT "/golden/%s", files[i][0]);
        failed = tt_file_read(from, 1 << 20, &text) != TT_OK ||
                 tt_file_write_atomic(test_at(files[i][1]), text.data, text.bytes) != TT_OK;
        tt_str_deinit(&text);
    }
    return failed;
}

static void run(const struct row *row, const char *output, const char *words, const char *more,
                struct curve *curve)
{
    char path[512];
    struct test_words settings = {0};
    struct tt_train_summary summary;
    test_words_pair(&settings, "model_name_or_path", test_at("model"));
    snprintf(path, sizeof path, TT_TEST_ROOT "/golden/%s/train.jsonl", row->data);
    test_words_pair(&settings, "dataset_name", path);
    test_words_pair(&settings, "objective", row->ops->name);
    test_words_add(&settings, "bf16 false max_steps 3 logging_steps 1 save_strategy no threads 1 lora_r 4 "
                              "lora_target_modules all-linear learning_rate 0.005");
    test_words_add(&settings, row->words);
    test_words_add(&settings, words);
    test_words_add(&settings, more);
    test_train_ok(settings.list, output, &summary);
    assert_int_equal(test_read_log(output, "loss", curve->loss, STEPS), STEPS);
    assert_int_equal(test_read_log(output, row->metric, curve->metric, STEPS), STEPS);
}

#define ALONE "ranks 1 per_device_train_batch_size 8 recompute none"

static void splits_give_one_curve(const struct row *row, const char *folder, const char *format,
                                  const struct curve *wanted, double relative)
{
    static const char *const splits[] = {
        "ranks 2 per_device_train_batch_size 4 recompute cheap sharding_strategy SHARD_GRAD_OP",
        "ranks 4 per_device_train_batch_size 1 gradient_accumulation_steps 2 recompute block",
        "ranks 1 per_device_train_batch_size 2 gradient_accumulation_steps 4",
        "ranks 1 per_device_train_batch_size 8 recompute cheap shared_prompt false",
    };
    for (size_t i = 0; i < sizeof splits / sizeof *splits; i++) {
        struct curve got;
        run(row, folder, splits[i], format, &got);
        for (int s = 0; s < STEPS; s++)
            if (!(fabs(got.loss[s] - wanted->loss[s]) <= relative * fabs(wanted->loss[s])) ||
                !(fabs(got.metric[s] - wanted->metric[s]) <= 20 * relative * (1 + fabs(wanted->metric[s]))))
                fail_msg("%s, %s %s, step %d: loss %.8f and %s %.8f, wanted %.8f and %.8f", row->ops->name,
                         splits[i], format, s + 1, got.loss[s], row->metric, got.metric[s], wanted->loss[s],
                         wanted->metric[s]);
    }
}

static void check(const struct row *row)
{
    static const char *const formats[] = {"", "load_in_4bit true", "base_dtype fp8"};
    char *folder = test_folder_create();
    double first = 0;
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++) {
        struct curve alone;
        run(row, folder, ALONE, formats[i], &alone);
        if (i == 0) first = alone.loss[STEPS - 1];
        assert_true(fabs(alone.loss[STEPS - 1] - alone.loss[0]) > 1e-4); /* it did train */
        assert_true(fabs(alone.metric[STEPS - 1] - alone.metric[0]) > 1e-4);
        assert_true(i == 0 || alone.loss[STEPS - 1] != first); /* it is in codes */
        /* a bit of rounding moves an activation in FP8 to the next code: tests/property/qlora.c */
        splits_give_one_curve(row, folder, formats[i], &alone, i == 2 ? 5e-3 : 5e-5);
    }
    test_folder_remove(folder);
}

static void every_objective_has_one_curve(void **state)
{
    (void)state;
    for (int i = 0; i < ROWS; i++) check(&rows[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_objective_has_a_row),
        cmocka_unit_test(every_objective_has_one_curve),
    };
    return cmocka_run_group_tests(tests, make_model, test_root_remove);
}
