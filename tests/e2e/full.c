/* Full fine-tuning leaves a model folder: it is evaluated, inspected, trained on and asked like the one it
 * came from; in several files when told so, in the type asked for. Also from random weights. */
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

static const char rows[] = "{\"text\": \"red green blue\"}\n"
                           "{\"text\": \"one two three four\"}\n"
                           "{\"prompt\": \"the sky is\", \"completion\": \" blue\"}\n";

struct story {
    struct test_workplace place;
    char data[TEST_PATH_BYTES], output[TEST_PATH_BYTES];
};

static void begin(struct story *story, const char *family)
{
    test_workplace_create(family, &story->place);
    test_workplace_write(&story->place, "train.jsonl", rows, story->data);
    test_workplace_path(&story->place, "out", story->output);
}

static double train(const struct story *story, const char *model, const char *output, const char *more)
{
    struct test_words words = {0};
    struct tt_train_summary summary;
    test_words_pair(&words, "model_name_or_path", model);
    test_words_pair(&words, "dataset_name", story->data);
    test_words_pair(&words, "eval_dataset", story->data);
    test_words_add(
        &words, "use_peft false bf16 false threads 1 eval_strategy steps eval_on_start true eval_steps 100");
    test_words_add(&words, more);
    test_train_ok(words.list, output, &summary);
    return summary.last_eval_loss;
}

static double evaluate(const struct story *story, const char *model)
{
    struct tt_eval_result result;
    const char *pairs[] = {
        "model_name_or_path", model, "eval_dataset", story->data, "bf16", "false", "threads", "1", NULL};
    test_evaluate_ok(pairs, false, &result);
    return result.loss;
}

static void assert_close(double got, double wanted, double relative)
{
    if (!(fabs(got - wanted) <= relative * wanted)) fail_msg("%.9g, wanted %.9g", got, wanted);
}

static void ask_program(const char *command, const char *model, const char *wanted)
{
    struct test_program program;
    const char *generate[] = {test_trimtab(),
                              "generate",
                              "--model_name_or_path",
                              model,
                              "--prompt",
                              "the sky is",
                              "--max_new_tokens",
                              "8",
                              "--threads",
                              "1",
                              "--bf16",
                              "false",
                              NULL};
    const char *inspect[] = {test_trimtab(), "inspect", model, NULL};
    int code = test_program_run(strcmp(command, "generate") == 0 ? generate : inspect, NULL, &program);
    if (code != 0 || strstr(program.output, wanted) == NULL)
        fail_msg("exit %d, wanted '%s' in: %s", code, wanted, program.output);
}

static void folder_is_a_model(void **state)
{
    (void)state;
    struct story story;
    char a[TEST_PATH_BYTES], b[TEST_PATH_BYTES], again[TEST_PATH_BYTES];
    double losses[4];
    begin(&story, "qwen2");
    double loss = train(&story, story.place.model, story.output, "max_steps 40 learning_rate 0.01 ranks 2");
    assert_true(loss < 1.0);
    test_same_file(test_join(story.output, "config.json", a), test_join(story.place.model, "config.json", b));
    test_same_file(test_join(story.output, "tokenizer.json", a),
                   test_join(story.place.model, "tokenizer.json", b));
    test_same_file(test_join(story.output, "generation_config.json", a),
                   test_join(story.place.model, "generation_config.json", b));
    assert_false(tt_path_exists(test_join(story.output, "adapter_config.json", a)));
    assert_close(evaluate(&story, story.output), loss, 1e-5);
    ask_program("generate", story.output, "blue\n");
    ask_program("inspect", story.output, "qwen2");
    test_workplace_path(&story.place, "again", again);
    train(&story, story.output, again, "max_steps 2 learning_rate 0.0001 save_strategy no");
    assert_int_equal(test_read_log(again, "eval_loss", losses, 4), 2);
    assert_close(losses[0], loss, 1e-5);
    test_workplace_remove(&story.place);
}

static void saved_as_bfloat16(void **state)
{
    (void)state;
    struct story story;
    begin(&story, "qwen2");
    double loss = train(&story, story.place.model, story.output,
                        "max_steps 20 learning_rate 0.005 save_dtype bfloat16 save_strategy no");
    assert_close(evaluate(&story, story.output), loss, 0.05);
    assert_true(evaluate(&story, story.output) != loss);
    ask_program("inspect", story.output, "BF16");
    test_workplace_remove(&story.place);
}

/* The best checkpoint of a full fine-tuning is read back from its model folder. */
static void best_model_is_read_back(void **state)
{
    (void)state;
    struct story story;
    char a[TEST_PATH_BYTES], b[TEST_PATH_BYTES];
    double losses[8];
    begin(&story, "qwen2");
    train(&story, story.place.model, story.output,
          "max_steps 20 learning_rate 0.005 ranks 2 eval_steps 10 save_steps 10 greater_is_better true "
          "metric_for_best_model loss load_best_model_at_end true");
    assert_int_equal(test_read_log(story.output, "eval_loss", losses, 8), 3);
    assert_true(losses[1] > losses[2]); /* told that more is better, the first checkpoint is the best */
    test_same_file(test_join(story.output, "model.safetensors", a),
                   test_join(story.output, "checkpoint-10/model.safetensors", b));
    assert_close(evaluate(&story, story.output), losses[1], 1e-5);
    test_workplace_remove(&story.place);
}

/* From random weights the folder needs no weights, and the numbers do not depend on the number of ranks. */
static void from_random_weights(void **state)
{
    (void)state;
    struct story story;
    char a[TEST_PATH_BYTES], b[TEST_PATH_BYTES];
    double first[4], second[4];
    begin(&story, "qwen2");
    assert_int_equal(remove(test_join(story.place.model, "model.safetensors", a)), 0);
    train(&story, story.place.model, story.output,
          "init random max_steps 30 learning_rate 0.01 save_strategy no");
    assert_int_equal(test_read_log(story.output, "eval_loss", first, 4), 2);
    assert_true(first[1] < 0.5 * first[0]);
    test_workplace_path(&story.place, "sharded", b);
    train(&story, story.place.model, b,
          "init random max_steps 30 learning_rate 0.01 save_strategy no ranks 2");
    assert_int_equal(test_read_log(b, "eval_loss", second, 4), 2);
    assert_close(second[0], first[0], 1e-6);
    assert_close(second[1], first[1], 1e-3);
    assert_close(evaluate(&story, story.output), first[1], 1e-5);
    test_workplace_remove(&story.place);
}

/* A model in several files trains as the same model in one. */
static void sharded_model_folder(void **state)
{
    (void)state;
    struct story whole, parts;
    char a[TEST_PATH_BYTES], b[TEST_PATH_BYTES];
    struct tt_train_summary summary;
    begin(&whole, "llama2");
    begin(&parts, "llama_sharded");
    const char *data = TT_TEST_ROOT "/golden/llama2/train.jsonl";
    const char *one[] = {"model_name_or_path",
                         whole.place.model,
                         "dataset_name",
                         data,
                         "max_steps",
                         "4",
                         "threads",
                         "1",
                         NULL};
    const char *other[] = {"model_name_or_path",
                           parts.place.model,
                           "dataset_name",
                           data,
                           "max_steps",
                           "4",
                           "threads",
                           "1",
                           NULL};
    test_train_ok(one, whole.output, &summary);
    test_train_ok(other, parts.output, &summary);
    test_same_file(test_join(whole.output, "adapter_model.safetensors", a),
                   test_join(parts.output, "adapter_model.safetensors", b));
    test_workplace_remove(&whole.place);
    test_workplace_remove(&parts.place);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(folder_is_a_model),       cmocka_unit_test(saved_as_bfloat16),
        cmocka_unit_test(best_model_is_read_back), cmocka_unit_test(from_random_weights),
        cmocka_unit_test(sharded_model_folder),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
