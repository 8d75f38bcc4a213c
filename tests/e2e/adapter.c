/* The story of an adapter: trained on words with a checkpoint every few steps, the best of them evaluated,
 * asked by the program itself, trained on. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "base/file.h"
#include "support/program.h"
#include "support/train_run.h"
#include "support/workplace.h"

static const char *const numbers[][2] = {{"1 =", " one"},   {"2 =", " two"},  {"3 =", " three"},
                                         {"4 =", " four"},  {"5 =", " five"}, {"6 =", " six"},
                                         {"7 =", " seven"}, {"8 =", " eight"}};
enum { NUMBERS = sizeof numbers / sizeof *numbers, LOG_MAX = 64 };

/* What a test works with: rows to learn, rows that contradict them, the folder of the result. */
struct story {
    struct test_workplace place;
    char data[TEST_PATH_BYTES], other[TEST_PATH_BYTES], output[TEST_PATH_BYTES];
};

/* Each number's prompt with the completion of the number `shift` places on. */
static void write_rows(const struct test_workplace *place, const char *name, size_t shift,
                       char path[TEST_PATH_BYTES])
{
    char text[NUMBERS * 80];
    size_t bytes = 0;
    for (size_t i = 0; i < NUMBERS; i++)
        bytes += (size_t)snprintf(text + bytes, sizeof text - bytes,
                                  "{\"prompt\": \"%s\", \"completion\": \"%s\"}\n", numbers[i][0],
                                  numbers[(i + shift) % NUMBERS][1]);
    test_workplace_write(place, name, text, path);
}

static void begin(struct story *story)
{
    test_workplace_create("qwen2", &story->place);
    write_rows(&story->place, "train.jsonl", 0, story->data);
    write_rows(&story->place, "other.jsonl", 3, story->other);
    test_workplace_path(&story->place, "out", story->output);
}

static void end(struct story *story)
{
    test_workplace_remove(&story->place);
}

/* Settings that all runs have in common, then `more`. */
static void add_settings(struct test_words *words, const struct story *story, const char *eval_dataset,
                         const char *more)
{
    test_words_pair(words, "model_name_or_path", story->place.model);
    test_words_pair(words, "dataset_name", story->data);
    if (eval_dataset != NULL) test_words_pair(words, "eval_dataset", eval_dataset);
    test_words_add(words, "bf16 false threads 1 lora_target_modules all-linear lora_dropout 0");
    test_words_add(words, more);
}

/* What trainer_state.json says of the best checkpoint. */
struct best {
    double metric;
    int64_t step;
    char checkpoint[TEST_PATH_BYTES];
};

static struct best read_best(const char *output)
{
    char path[TEST_PATH_BYTES];
    struct tt_json json = {0};
    struct best best = {0};
    assert_int_equal(tt_json_read(test_join(output, "trainer_state.json", path), 1 << 24, &json), TT_OK);
    const struct tt_json_value *checkpoint = tt_json_get(json.root, "best_model_checkpoint");
    assert_true(tt_json_is_string(checkpoint));
    snprintf(best.checkpoint, sizeof best.checkpoint, "%s", tt_json_text(checkpoint));
    best.metric = tt_json_number(tt_json_get(json.root, "best_metric"));
    best.step = tt_json_integer(tt_json_get(json.root, "best_global_step"));
    tt_json_deinit(&json);
    return best;
}

static void assert_same_in(const char *a, const char *b, const char *name)
{
    char x[TEST_PATH_BYTES], y[TEST_PATH_BYTES];
    test_same_file(test_join(a, name, x), test_join(b, name, y));
}

static struct tt_eval_result evaluate(const struct story *story, const char *data, bool exact_match,
                                      const char *ranks)
{
    struct tt_eval_result result;
    const char *pairs[] = {"model_name_or_path",
                           story->place.model,
                           "eval_dataset",
                           data,
                           "adapter_name_or_path",
                           story->output,
                           "bf16",
                           "false",
                           "threads",
                           "1",
                           "ranks",
                           ranks,
                           NULL};
    test_evaluate_ok(pairs, exact_match, &result);
    return result;
}

static void ask_program(const struct story *story, const char *prompt, const char *answer)
{
    struct test_program program;
    struct test_words words = {0}, command = {0};
    char wanted[64];
    test_words_pair(&words, "model_name_or_path", story->place.model);
    test_words_pair(&words, "adapter_name_or_path", story->output);
    test_words_pair(&words, "prompt", prompt);
    test_words_add(&words, "max_new_tokens 12 bf16 false threads 1");
    test_words_command(&command, test_trimtab(), "generate", &words);
    if (test_program_run(command.list, NULL, &program) != 0) fail_msg("%s", program.output);
    snprintf(wanted, sizeof wanted, "%s\n", answer);
    if (strstr(program.output, wanted) == NULL) fail_msg("wanted '%s' in: %s", wanted, program.output);
}

/* Training goes on from where the adapter stands, whose loss is `loss`. */
static void train_on(const struct story *story, double loss)
{
    char again[TEST_PATH_BYTES];
    double losses[LOG_MAX];
    struct tt_train_summary summary;
    struct test_words words = {0};
    add_settings(&words, story, story->data,
                 "max_steps 5 learning_rate 0.0001 eval_strategy steps eval_steps 5 "
                 "eval_on_start true save_strategy no logging_steps 1");
    test_words_pair(&words, "adapter_name_or_path", story->output);
    test_train_ok(words.list, test_workplace_path(&story->place, "again", again), &summary);
    assert_int_equal(test_read_log(again, "eval_loss", losses, LOG_MAX), 2);
    assert_true(fabs(losses[0] - loss) < 1e-5 * loss + 1e-6);
    assert_true(losses[1] < losses[0]);
    assert_int_equal(test_count_entries(again, "checkpoint-"), 0);
}

static void train_and_use(void **state)
{
    (void)state;
    struct story story;
    struct tt_train_summary summary;
    double losses[LOG_MAX];
    begin(&story);
    struct test_words words = {0};
    add_settings(&words, &story, story.data,
                 "max_steps 90 learning_rate 0.02 lr_scheduler_type cosine ranks 2 "
                 "per_device_train_batch_size 4 eval_strategy steps eval_steps 15 save_steps 15 "
                 "save_total_limit 2 load_best_model_at_end true");
    test_train_ok(words.list, story.output, &summary);
    assert_int_equal(summary.steps, 90);

    /* Two checkpoints are left, the newest and the best; the result is the best. */
    assert_int_equal(test_read_log(story.output, "eval_loss", losses, LOG_MAX), 6);
    double lowest = losses[0];
    for (int i = 1; i < 6; i++) lowest = fmin(lowest, losses[i]);
    struct best best = read_best(story.output);
    assert_true(best.metric == lowest);
    assert_int_equal(test_count_entries(story.output, "checkpoint-"), 2);
    assert_same_in(story.output, best.checkpoint, "adapter_model.safetensors");
    assert_same_in(story.output, best.checkpoint, "adapter_config.json");
    assert_same_in(story.output, story.place.model, "tokenizer.json");
    assert_same_in(story.output, story.place.model, "tokenizer_config.json");
    assert_same_in(best.checkpoint, story.place.model, "tokenizer.json");
    test_nothing_unfinished(story.output);

    /* It has learned its rows, and evaluating it gives the number that the training saw. */
    static const char *const ranks[] = {"1", "2", "3"}; /* sharded; the last part of the prompts is smaller */
    for (int i = 0; i < 3; i++) {
        struct tt_eval_result result = evaluate(&story, story.data, true, ranks[i]);
        assert_true(fabs(result.loss - lowest) < 1e-5 * lowest + 1e-6);
        assert_int_equal(result.exact_rows, NUMBERS);
        assert_int_equal(result.exact_matches, NUMBERS);
    }
    for (size_t i = 0; i < 3; i++) ask_program(&story, numbers[i][0], numbers[i][1]);
    train_on(&story, lowest);
    end(&story);
}

/* On rows that contradict the training the loss is lowest early on: the best is then neither the last nor
 * among the newest that save_total_limit would keep. */
static void best_is_not_last(void **state)
{
    (void)state;
    struct story story;
    struct tt_train_summary summary;
    double losses[LOG_MAX];
    begin(&story);
    struct test_words words = {0};
    add_settings(&words, &story, story.other,
                 "max_steps 60 learning_rate 0.02 eval_strategy steps eval_steps 5 save_steps 10 "
                 "save_total_limit 1 load_best_model_at_end true");
    test_train_ok(words.list, story.output, &summary);
    assert_int_equal(test_read_log(story.output, "eval_loss", losses, LOG_MAX), 12);
    int lowest = 1; /* of those that were saved: every second one */
    for (int i = 3; i < 12; i += 2)
        if (losses[i] < losses[lowest]) lowest = i;
    assert_true(lowest < 9);
    struct best best = read_best(story.output);
    assert_int_equal(best.step, 5 * (lowest + 1));
    assert_true(best.metric == losses[lowest]);
    assert_int_equal(test_count_entries(story.output, "checkpoint-"), 2); /* the best and the newest */
    assert_same_in(story.output, best.checkpoint, "adapter_model.safetensors");
    struct tt_eval_result result = evaluate(&story, story.other, false, "1");
    assert_true(fabs(result.loss - best.metric) < 1e-5 * best.metric);
    end(&story);
}

/* save_strategy best: a checkpoint whenever the metric is the best so far, and only then. */
static void saves_when_best(void **state)
{
    (void)state;
    struct story story;
    struct tt_train_summary summary;
    double accuracies[LOG_MAX], record = -1;
    int improvements = 0, highest = 0;
    begin(&story);
    struct test_words words = {0};
    add_settings(&words, &story, story.other,
                 "max_steps 40 learning_rate 0.02 eval_strategy steps eval_steps 5 "
                 "save_strategy best metric_for_best_model eval_mean_token_accuracy "
                 "load_best_model_at_end true eval_on_start true");
    test_train_ok(words.list, story.output, &summary);
    int count = test_read_log(story.output, "eval_mean_token_accuracy", accuracies, LOG_MAX);
    assert_int_equal(count, 9); /* before the first step too */
    for (int i = 1; i < count; i++) {
        if (!(accuracies[i] > record)) continue;
        record = accuracies[i];
        highest = i;
        improvements++;
    }
    struct best best = read_best(story.output);
    assert_true(best.metric == record);
    assert_int_equal(best.step, 5 * highest);
    assert_int_equal(test_count_entries(story.output, "checkpoint-"), improvements);
    assert_same_in(story.output, best.checkpoint, "adapter_model.safetensors");
    end(&story);
}

static void earlier_result_is_kept(void **state)
{
    (void)state;
    struct story story;
    struct tt_train_summary summary;
    char file[TEST_PATH_BYTES], copy[TEST_PATH_BYTES];
    begin(&story);
    struct test_words words = {0};
    add_settings(&words, &story, NULL, "max_steps 2 save_strategy no");
    test_train_ok(words.list, story.output, &summary);
    test_copy_file(test_join(story.output, "adapter_model.safetensors", file),
                   test_workplace_path(&story.place, "kept.safetensors", copy));
    test_words_add(&words, "seed 7 overwrite_output_dir false");
    assert_int_equal(test_train(words.list, story.output, &summary), TT_ERR_USAGE);
    assert_non_null(strstr(tt_error_last()->message, "already holds the result"));
    assert_non_null(strstr(tt_error_last()->hint, "overwrite_output_dir"));
    test_same_file(file, copy);
    test_words_add(&words, "overwrite_output_dir true");
    test_train_ok(words.list, story.output, &summary);
    end(&story);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(train_and_use),
        cmocka_unit_test(best_is_not_last),
        cmocka_unit_test(saves_when_best),
        cmocka_unit_test(earlier_result_is_kept),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
