/* How long a run is and what happens when: epochs and max_steps, evaluations, checkpoints and log rows by
 * steps and by epochs. Data: 24 rows in batches of 8, so 3 steps an epoch. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "base/file.h"
#include "support/train_run.h"
#include "support/workplace.h"

struct run {
    struct test_workplace place;
    char output[TEST_PATH_BYTES];
    struct tt_train_summary summary;
};

static void train(struct run *run, const char *more)
{
    struct test_words words = {0};
    test_workplace_create("llama2", &run->place);
    test_words_pair(&words, "model_name_or_path", run->place.model);
    test_words_pair(&words, "dataset_name", TT_TEST_ROOT "/golden/llama2/train.jsonl");
    test_words_pair(&words, "eval_dataset", TT_TEST_ROOT "/golden/llama2/train.jsonl");
    test_words_add(&words,
                   "bf16 false threads 1 per_device_train_batch_size 8 logging_steps 1 max_eval_samples 6");
    test_words_add(&words, more);
    test_train_ok(words.list, test_workplace_path(&run->place, "out", run->output), &run->summary);
}

/* The steps of the log rows that have `name`, as "1 4 6". */
static void assert_rows(const struct run *run, const char *name, const char *wanted)
{
    char path[TEST_PATH_BYTES], steps[512] = "";
    struct tt_json json = {0};
    test_join(run->output, "trainer_state.json", path);
    assert_int_equal(tt_json_read(path, 1 << 24, &json), TT_OK);
    const struct tt_json_value *history = tt_json_get(json.root, "log_history");
    for (size_t i = 0; i < tt_json_count(history); i++) {
        const struct tt_json_value *row = tt_json_at(history, i);
        size_t bytes = strlen(steps);
        if (tt_json_get(row, name) == NULL) continue;
        snprintf(steps + bytes, sizeof steps - bytes, "%s%d", bytes > 0 ? " " : "",
                 (int)tt_json_integer(tt_json_get(row, "step")));
    }
    tt_json_deinit(&json);
    assert_string_equal(steps, wanted);
}

/* Exactly these checkpoints. */
static void assert_checkpoints(const struct run *run, const char *wanted)
{
    int count = 0;
    struct test_words words = {0};
    test_words_add(&words, wanted);
    for (; count < words.count; count++) {
        char name[64], path[TEST_PATH_BYTES];
        snprintf(name, sizeof name, "checkpoint-%s/adapter_model.safetensors", words.list[count]);
        if (!tt_path_exists(test_join(run->output, name, path))) fail_msg("there is no %s", path);
    }
    assert_int_equal(test_count_entries(run->output, "checkpoint-"), count);
}

static void assert_same_result(const struct run *a, const struct run *b)
{
    char x[TEST_PATH_BYTES], y[TEST_PATH_BYTES];
    test_same_file(test_join(a->output, "adapter_model.safetensors", x),
                   test_join(b->output, "adapter_model.safetensors", y));
}

static void epochs_are_steps(void **state)
{
    (void)state;
    struct run by_epochs, by_steps;
    train(&by_epochs, "num_train_epochs 2 save_strategy no");
    train(&by_steps, "max_steps 6 num_train_epochs 50 save_strategy no");
    assert_int_equal(by_epochs.summary.steps, 6);
    assert_true(by_epochs.summary.epochs == 2.0);
    assert_rows(&by_epochs, "loss", "1 2 3 4 5 6");
    assert_same_result(&by_epochs, &by_steps);
    test_workplace_remove(&by_epochs.place);
    test_workplace_remove(&by_steps.place);
}

/* Saving by epochs: after each, and after a part of one that ends the run. */
static void events_by_epochs(void **state)
{
    (void)state;
    struct run run;
    train(&run, "num_train_epochs 2.5 save_strategy epoch eval_strategy epoch logging_strategy epoch");
    assert_int_equal(run.summary.steps, 8);
    assert_rows(&run, "loss", "3 6 8");
    assert_rows(&run, "eval_loss", "3 6 8");
    assert_checkpoints(&run, "3 6 8");
    test_workplace_remove(&run.place);
}

static void events_by_steps(void **state)
{
    (void)state;
    struct run run;
    train(
        &run,
        "max_steps 10 save_steps 4 eval_strategy steps eval_steps 3 logging_steps 4 logging_first_step true");
    assert_rows(&run, "loss", "1 4 8 10");
    assert_rows(&run, "eval_loss", "3 6 9 10");
    assert_rows(&run, "train_runtime", "10");
    assert_checkpoints(&run, "4 8 10");
    test_workplace_remove(&run.place);
}

/* Below 1 an interval is a share of all steps, rounded up. */
static void events_by_shares(void **state)
{
    (void)state;
    struct run run;
    train(&run, "max_steps 10 save_steps 0.5 eval_strategy steps eval_steps 0.25 logging_steps 0.3 "
                "save_total_limit 1");
    assert_rows(&run, "loss", "3 6 9 10");
    assert_rows(&run, "eval_loss", "3 6 9 10");
    assert_checkpoints(&run, "10");
    test_workplace_remove(&run.place);
}

static void no_events(void **state)
{
    (void)state;
    struct run run;
    train(&run, "max_steps 4 save_strategy no logging_strategy no");
    assert_rows(&run, "loss", "");
    assert_rows(&run, "eval_loss", "");
    assert_rows(&run, "train_loss", "4");
    assert_checkpoints(&run, "");
    test_workplace_remove(&run.place);
}

/* Checkpoints of later steps were left by an earlier, longer run: they go before those of this one. */
static void left_over_checkpoints_go_first(void **state)
{
    (void)state;
    struct run run;
    char path[TEST_PATH_BYTES];
    struct test_words words = {0};
    train(&run, "max_steps 9 save_steps 3");
    assert_checkpoints(&run, "3 6 9");
    test_words_pair(&words, "model_name_or_path", run.place.model);
    test_words_pair(&words, "dataset_name", TT_TEST_ROOT "/golden/llama2/train.jsonl");
    test_words_add(&words, "bf16 false threads 1 max_steps 4 save_steps 2 save_total_limit 2");
    test_train_ok(words.list, run.output, &run.summary);
    assert_checkpoints(&run, "2 4");
    assert_true(tt_path_exists(test_join(run.output, "checkpoint-4/trainer_state.json", path)));
    test_workplace_remove(&run.place);
}

static void fewer_rows_than_a_batch(void **state)
{
    (void)state;
    struct run run;
    train(&run, "num_train_epochs 2 per_device_train_batch_size 64 save_strategy no");
    assert_int_equal(run.summary.steps, 2);
    struct test_words words = {0};
    test_words_pair(&words, "model_name_or_path", run.place.model);
    test_words_pair(&words, "dataset_name", TT_TEST_ROOT "/golden/llama2/train.jsonl");
    test_words_add(&words, "per_device_train_batch_size 64 dataloader_drop_last true threads 1");
    assert_int_equal(test_train(words.list, run.output, &run.summary), TT_ERR_USAGE);
    assert_non_null(strstr(tt_error_last()->hint, "set dataloader_drop_last to false"));
    test_workplace_remove(&run.place);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(epochs_are_steps),
        cmocka_unit_test(events_by_epochs),
        cmocka_unit_test(events_by_steps),
        cmocka_unit_test(events_by_shares),
        cmocka_unit_test(no_events),
        cmocka_unit_test(left_over_checkpoints_go_first),
        cmocka_unit_test(fewer_rows_than_a_batch),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
