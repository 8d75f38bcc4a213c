/* A warning wherever transformers loads a folder as a class whose steps are not tokenizer.json's, and nowhere else.
 * classes.jsonl is written by make_classes.py. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "support/root.h"
#include "text/tokenizer.h"

struct seen {
    int warnings;
    char line[512];
};

static void keep(void *context, enum tt_log_level level, const char *line)
{
    struct seen *seen = context;
    if (level != TT_LOG_WARNING || strstr(line, "transformers 5 loads") == NULL) return;
    seen->warnings++;
    snprintf(seen->line, sizeof seen->line, "%s", line);
}

/* One object with a text member, or an empty one. */
static void write_member(const char *file, const char *key, const struct tt_json_value *value)
{
    const char *text = tt_json_text(value);
    struct tt_str path = {0};
    struct tt_str content = {0};
    if (text != NULL)
        assert_int_equal(tt_str_printf(&content, "{\"%s\": \"%s\"}", key, text), 0);
    else
        assert_int_equal(tt_str_printf(&content, "{}"), 0);
    assert_int_equal(tt_str_printf(&path, "%s/%s", test_root(), file), 0);
    FILE *out = fopen(path.data, "w");
    assert_non_null(out);
    assert_true(fputs(content.data, out) >= 0);
    assert_int_equal(fclose(out), 0);
    tt_str_deinit(&path);
    tt_str_deinit(&content);
}

/* Classes of byte-level BPE are compared by their steps; for the others ids count, of which a single text (it begins
 * with a blank) differs between a Prepend and the Metaspace in its place. */
static bool expects_warning(const struct tt_json_value *row)
{
    const char *loads = tt_json_text(tt_json_get(row, "loads"));
    if (loads == NULL) return true;
    if (strcmp(loads, "GPT2Tokenizer") == 0 || strcmp(loads, "Qwen2Tokenizer") == 0)
        return !tt_json_is_true(tt_json_get(row, "steps"));
    return tt_json_integer(tt_json_get(row, "texts")) > 1;
}

static bool check_row(const struct tt_json_value *row, struct seen *seen, size_t line)
{
    struct tt_tokenizer *tokenizer = NULL;
    struct tt_json json = {0};
    struct tt_str path = {0};
    *seen = (struct seen){0};
    assert_int_equal(tt_str_printf(&path, TT_TEST_ROOT "/golden/tokenizer/%s/tokenizer.json",
                                   tt_json_text(tt_json_get(row, "tokenizer"))),
                     0);
    assert_int_equal(tt_json_read(path.data, 1 << 24, &json), TT_OK);
    assert_int_equal(tt_json_write_file(json.root, 0, false, test_root(), "tokenizer.json"), TT_OK);
    write_member("config.json", "model_type", tt_json_get(row, "model_type"));
    write_member("tokenizer_config.json", "tokenizer_class", tt_json_get(row, "tokenizer_class"));
    assert_int_equal(tt_tokenizer_load(test_root(), &tokenizer), TT_OK);
    bool expected = expects_warning(row);
    if (seen->warnings != expected)
        fail_msg("classes.jsonl, row %zu: %d warnings, not %d: %s", line, seen->warnings, expected,
                 seen->line);
    const char *loads = tt_json_text(tt_json_get(row, "loads"));
    if (expected && loads != NULL) assert_non_null(strstr(seen->line, loads));
    tt_tokenizer_destroy(tokenizer);
    tt_str_deinit(&path);
    tt_json_deinit(&json);
    return expected;
}

static void warns_where_steps_differ(void **state)
{
    (void)state;
    struct tt_str text = {0};
    struct seen seen = {0};
    size_t lines = 0, warned = 0;
    tt_log_set_sink(keep, &seen);
    assert_int_equal(tt_file_read(TT_TEST_ROOT "/golden/tokenizer/classes.jsonl", 1 << 20, &text), TT_OK);
    for (const char *line = text.data, *end; (end = strchr(line, '\n')) != NULL; line = end + 1) {
        struct tt_json row = {0};
        assert_int_equal(tt_json_parse(line, (size_t)(end - line), "classes.jsonl", &row), TT_OK);
        warned += check_row(row.root, &seen, ++lines);
        tt_json_deinit(&row);
    }
    tt_log_set_sink(NULL, NULL);
    assert_int_equal(lines, 432);
    assert_in_range(warned, 100, 300);
    tt_str_deinit(&text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(warns_where_steps_differ)};
    return cmocka_run_group_tests(tests, test_root_create, test_root_remove);
}
