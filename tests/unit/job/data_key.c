/* The key of kept rows: another value of a setting that makes other tokens of a row makes another key, one that only
 * chooses or orders rows does not. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "data/settings.h"
#include "job/data_key.h"
#include "job/settings.h"
#include "support/root.h"

/* Settings with another value than the default that are in the key, and some that are not. */
static const struct {
    const char *name, *value;
    bool in_key;
} changes[] = {
    {"dataset_text_field", "t", true},
    {"dataset_prompt_field", "p", true},
    {"dataset_completion_field", "c", true},
    {"prompt_template", "{q}", true},
    {"max_length", "77", true},
    {"over_length", "drop", true},
    {"max_row_size", "1MiB", true},
    {"completion_only_loss", "true", true},
    {"eos_token", "</s>", true},
    {"assistant_only_loss", "true", true},
    {"roles_to_train", "user", true},
    {"train_on_eos", "all", true},
    {"train_last_turn_only", "true", true},
    {"sample_per_turn", "true", true},
    {"reasoning", "drop", true},
    {"chat_template", "chatml", true},
    {"drop_system_message", "true", true},
    {"max_source_samples", "5", true},
    {"chat_template_kwargs", "{\"a\": 1}", true},
    {"id2label", "[\"no\", \"yes\"]", true},
    {"special_tokens_in_messages", "true", true},
    {"dataset_name", "other.jsonl", false},
    {"dataset_train_split", "other", false},
    {"eval_dataset", "other.jsonl", false},
    {"eval_split_size", "5", false},
    {"packing", "true", false},
    {"max_train_samples", "5", false},
    {"max_eval_samples", "5", false},
    {"dataset_prepared_path", "kept", false},
};

/* With one setting of a training changed, or none (NULL). */
static void make_key(const char *name, const char *value, struct tt_str *key)
{
    struct tt_job_spec job = {0};
    struct tt_settings *settings = NULL;
    struct tt_chat_files templates = {0};
    bool keeps = false;
    assert_int_equal(tt_job_settings_create(TT_JOB_TRAIN, &job, sizeof job, &settings), TT_OK);
    if (name != NULL && tt_settings_set(settings, name, value, "test") != TT_OK)
        fail_msg("%s", tt_error_last()->message);
    const struct tt_data_key_source source = {
        .data = &job.data, .tokenizer_folder = test_root(), .templates = &templates};
    tt_str_clear(key);
    assert_int_equal(tt_data_key_make(&source, key, &keeps), TT_OK);
    assert_true(keeps);
    tt_settings_destroy(settings);
}

static void other_values_make_other_keys(void **state)
{
    (void)state;
    struct tt_str plain = {0}, key = {0};
    make_key(NULL, NULL, &plain);
    for (size_t i = 0; i < sizeof changes / sizeof *changes; i++) {
        make_key(changes[i].name, changes[i].value, &key);
        bool differs = strcmp(tt_str_text(&plain), tt_str_text(&key)) != 0;
        if (differs != changes[i].in_key) fail_msg("another %s: another key %d", changes[i].name, differs);
    }
    tt_str_deinit(&plain);
    tt_str_deinit(&key);
}

/* A row that is said to change rows is tried above. */
/* A tokenizer with new tokens is not that of the folder; a file that is left out says nothing. */
static void new_tokens_make_another_key(void **state)
{
    (void)state;
    const char *const texts[] = {NULL, "{\"added_tokens\": [1]}", "{\"added_tokens\": [2]}"};
    struct tt_str keys[4] = {{0}, {0}, {0}, {0}};
    struct tt_chat_files templates = {0};
    struct tt_data_config data = {0};
    bool keeps;
    for (int i = 0; i < 4; i++) {
        const struct tt_save_template file = {"tokenizer.json", i < 3 ? texts[i] : NULL};
        const struct tt_data_key_source source = {.data = &data,
                                                  .tokenizer_folder = test_root(),
                                                  .templates = &templates,
                                                  .files = &file,
                                                  .file_count = i < 3};
        assert_int_equal(tt_data_key_make(&source, &keys[i], &keeps), TT_OK);
    }
    assert_string_equal(tt_str_text(&keys[0]), tt_str_text(&keys[3]));
    assert_string_not_equal(tt_str_text(&keys[0]), tt_str_text(&keys[1]));
    assert_string_not_equal(tt_str_text(&keys[1]), tt_str_text(&keys[2]));
    for (int i = 0; i < 4; i++) tt_str_deinit(&keys[i]);
}

static void every_row_is_tried(void **state)
{
    (void)state;
    for (const struct tt_setting *row = tt_data_settings; row->name != NULL; row++) {
        bool listed = false;
        for (size_t i = 0; i < sizeof changes / sizeof *changes; i++)
            listed |= changes[i].in_key && strcmp(changes[i].name, row->name) == 0;
        bool says = (row->changes & TT_CHANGES_ROWS) != 0;
        if (listed != says) fail_msg("%s changes rows: %d, and is tried: %d", row->name, says, listed);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(other_values_make_other_keys),
                                       cmocka_unit_test(new_tokens_make_another_key),
                                       cmocka_unit_test(every_row_is_tried)};
    return cmocka_run_group_tests(tests, test_root_create, test_root_remove);
}
