/* add_bos_token and add_eos_token of tokenizer_config.json beside a tokenizer.json change no ids, as in transformers:
 * the post-processor alone adds special tokens. flags.jsonl is written by make_flags.py. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "base/file.h"
#include "base/json.h"
#include "support/root.h"
#include "text/tokenizer.h"

static void check_row(const struct tt_json_value *row, struct tt_json_value *model, size_t line)
{
    struct tt_tokenizer *tokenizer = NULL;
    struct tt_tokenizer_scratch *scratch = NULL;
    struct tt_ids ids = {0};
    const struct tt_json_value *expected = tt_json_get(row, "ids");
    const struct tt_span text = tt_json_span(tt_json_get(row, "text"));
    assert_int_equal(tt_json_set_copy(model, "post_processor", tt_json_get(row, "post_processor")), 0);
    assert_int_equal(tt_json_write_file(model, 0, false, test_root(), "tokenizer.json"), TT_OK);
    assert_int_equal(
        tt_json_write_file(tt_json_get(row, "config"), 0, false, test_root(), "tokenizer_config.json"),
        TT_OK);
    if (tt_tokenizer_load(test_root(), &tokenizer) != TT_OK)
        fail_msg("row %zu: %s", line, tt_error_last()->message);
    assert_int_equal(tt_tokenizer_scratch_create(tokenizer, &scratch), TT_OK);
    assert_int_equal(tt_tokenizer_encode(tokenizer, scratch, text.data, text.bytes, true, &ids), TT_OK);
    bool same = ids.count == tt_json_count(expected);
    for (size_t i = 0; same && i < ids.count; i++)
        same = ids.data[i] == tt_json_integer(tt_json_at(expected, i));
    if (!same) fail_msg("flags.jsonl, row %zu: other ids", line);
    tt_ids_deinit(&ids);
    tt_tokenizer_scratch_destroy(scratch);
    tt_tokenizer_destroy(tokenizer);
}

static void flags_change_nothing(void **state)
{
    (void)state;
    struct tt_str text = {0};
    struct tt_json parsed = {0};
    size_t lines = 0;
    assert_int_equal(tt_json_read(TT_TEST_ROOT "/support/tiny_tokenizer/tokenizer.json", 1 << 20, &parsed),
                     TT_OK);
    struct tt_json_value *model = tt_json_copy(parsed.root);
    assert_non_null(model);
    assert_int_equal(tt_file_read(TT_TEST_ROOT "/golden/tokenizer/flags.jsonl", 1 << 20, &text), TT_OK);
    for (const char *line = text.data, *end; (end = strchr(line, '\n')) != NULL; line = end + 1) {
        struct tt_json row = {0};
        assert_int_equal(tt_json_parse(line, (size_t)(end - line), "flags.jsonl", &row), TT_OK);
        check_row(row.root, model, ++lines);
        tt_json_deinit(&row);
    }
    assert_int_equal(lines, 63);
    tt_json_release(model);
    tt_json_deinit(&parsed);
    tt_str_deinit(&text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(flags_change_nothing)};
    return cmocka_run_group_tests(tests, test_root_create, test_root_remove);
}
