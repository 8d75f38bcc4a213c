/* Somebody replaces and removes files of the model folder while a run saves: every save, and the result, has the files
 * that the run began with. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/file.h"
#include "support/train_run.h"
#include "support/workplace.h"

static const char *const changed[] = {"tokenizer.json", "generation_config.json", "chat_template.jinja",
                                      "config.json"};
static const char *const removed[] = {"tokenizer_config.json", "additional_chat_templates/tool_use.jinja"};

/* From the thread of the loop, after the first save. */
static void damage(void *context, const char *folder, double seconds)
{
    struct test_workplace *place = context;
    char name[TEST_PATH_BYTES], path[TEST_PATH_BYTES];
    (void)folder;
    (void)seconds;
    for (size_t i = 0; i < sizeof changed / sizeof *changed; i++)
        test_workplace_write(place, test_join("model", changed[i], name), "{}", path);
    for (size_t i = 0; i < sizeof removed / sizeof *removed; i++)
        (void)unlink(test_join(place->model, removed[i], path));
}

static void check(const char *original, const char *output, const char *folder, const char *name)
{
    char from[TEST_PATH_BYTES], saved[TEST_PATH_BYTES], there[TEST_PATH_BYTES];
    test_same_file(test_join(test_join(output, folder, saved), name, there), test_join(original, name, from));
}

static void run(const char *more, bool whole_model)
{
    struct test_workplace place;
    struct test_words words = {0};
    struct tt_train_summary summary;
    char output[TEST_PATH_BYTES], original[TEST_PATH_BYTES], from[TEST_PATH_BYTES], to[TEST_PATH_BYTES];
    static const char *const folders[] = {"checkpoint-1", "checkpoint-3", "."};
    test_workplace_create("qwen2", &place);
    test_workplace_write(&place, "model/generation_config.json", "{\"do_sample\": false}", to);
    test_workplace_write(&place, "model/chat_template.jinja", "{{ messages }}", to);
    assert_int_equal(tt_dir_create(test_workplace_path(&place, "model/additional_chat_templates", to)),
                     TT_OK);
    test_workplace_write(&place, "model/additional_chat_templates/tool_use.jinja", "{{ tools }}", to);
    assert_int_equal(tt_dir_create(test_workplace_path(&place, "original", original)), TT_OK);
    assert_int_equal(tt_dir_create(test_join(original, "additional_chat_templates", to)), TT_OK);
    for (size_t i = 0; i < sizeof changed / sizeof *changed; i++)
        test_copy_file(test_join(place.model, changed[i], from), test_join(original, changed[i], to));
    for (size_t i = 0; i < sizeof removed / sizeof *removed; i++)
        test_copy_file(test_join(place.model, removed[i], from), test_join(original, removed[i], to));
    test_words_pair(&words, "model_name_or_path", place.model);
    test_words_pair(&words, "dataset_name", TT_TEST_ROOT "/golden/qwen2/train.jsonl");
    test_words_add(&words, "threads 1 ranks 2 max_steps 3 save_steps 1 report_to none");
    test_words_add(&words, more);
    struct tt_train_observer observer = {.context = &place, .on_save = damage};
    assert_int_equal(
        test_train_watched(words.list, test_workplace_path(&place, "out", output), &observer, NULL, &summary),
        TT_OK);
    assert_int_equal(access(test_join(place.model, removed[0], from), F_OK), -1); /* it was damaged */
    for (size_t f = 0; f < sizeof folders / sizeof *folders; f++) {
        check(original, output, folders[f], "tokenizer.json");
        check(original, output, folders[f], "tokenizer_config.json");
        check(original, output, folders[f], "chat_template.jinja");
        check(original, output, folders[f], "additional_chat_templates/tool_use.jinja");
        if (!whole_model) continue;
        check(original, output, folders[f], "config.json");
        check(original, output, folders[f], "generation_config.json");
    }
    test_workplace_remove(&place);
}

static void adapter(void **state)
{
    (void)state;
    run("lora_r 2", false);
}

static void full(void **state)
{
    (void)state;
    run("use_peft false", true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(adapter), cmocka_unit_test(full)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
