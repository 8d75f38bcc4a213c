/* Tokens that only tokenizer_config.json, special_tokens_map.json or added_tokens.json name, as transformers adds them:
 * ids of a text, the text of these ids without special tokens, and the ids of named tokens. beside.jsonl is written by
 * make_beside.py. */
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

#define TINY TT_TEST_ROOT "/support/tiny_tokenizer/tokenizer.json"

static void put_files(const struct tt_json_value *files, const struct tt_str *json)
{
    const char *name;
    const struct tt_json_value *content;
    assert_int_equal(tt_dir_create(test_at("folder")), TT_OK);
    assert_int_equal(tt_file_write_atomic(test_at("folder/tokenizer.json"), json->data, json->bytes), TT_OK);
    for (size_t i = 0; tt_json_next_member(files, &i, &name, &content);)
        assert_int_equal(tt_json_write_file(content, 0, false, test_at("folder"), name), TT_OK);
}

static void check_row(const struct tt_json_value *row, size_t line)
{
    struct tt_tokenizer *tokenizer = NULL;
    struct tt_tokenizer_scratch *scratch = NULL;
    struct tt_ids ids = {0};
    struct tt_str kept = {0};
    const struct tt_json_value *expected = tt_json_get(row, "ids"), *named = tt_json_get(row, "named");
    const struct tt_span text = tt_json_span(tt_json_get(row, "text"));
    if (tt_tokenizer_load(test_at("folder"), &tokenizer) != TT_OK)
        fail_msg("row %zu: %s", line, tt_error_last()->message);
    assert_int_equal(tt_tokenizer_scratch_create(tokenizer, &scratch), TT_OK);
    assert_int_equal(tt_tokenizer_encode(tokenizer, scratch, text.data, text.bytes, true, &ids), TT_OK);
    bool same = ids.count == tt_json_count(expected);
    for (size_t i = 0; same && i < ids.count; i++)
        same = ids.data[i] == tt_json_integer(tt_json_at(expected, i));
    if (!same) fail_msg("beside.jsonl, row %zu: other ids", line);
    assert_int_equal(tt_tokenizer_decode(tokenizer, ids.data, ids.count, true, &kept), TT_OK);
    if (strcmp(tt_str_text(&kept), tt_json_text(tt_json_get(row, "kept"))) != 0)
        fail_msg("beside.jsonl, row %zu: '%s'", line, tt_str_text(&kept));
    const int64_t found[] = {tt_tokenizer_bos_id(tokenizer), tt_tokenizer_eos_id(tokenizer),
                             tt_tokenizer_pad_id(tokenizer)};
    for (size_t i = 0; i < 3; i++)
        if (found[i] != tt_json_integer(tt_json_at(named, i)))
            fail_msg("beside.jsonl, row %zu: named token %zu has id %lld", line, i, (long long)found[i]);
    tt_str_deinit(&kept);
    tt_ids_deinit(&ids);
    tt_tokenizer_scratch_destroy(scratch);
    tt_tokenizer_destroy(tokenizer);
}

static void tokens_of_other_files(void **state)
{
    (void)state;
    struct tt_str text = {0}, json = {0};
    size_t lines = 0;
    assert_int_equal(tt_file_read(TINY, 1 << 20, &json), TT_OK);
    assert_int_equal(tt_file_read(TT_TEST_ROOT "/golden/tokenizer/beside.jsonl", 1 << 20, &text), TT_OK);
    for (const char *line = text.data, *end; (end = strchr(line, '\n')) != NULL; line = end + 1) {
        struct tt_json row = {0};
        assert_int_equal(tt_json_parse(line, (size_t)(end - line), "beside.jsonl", &row), TT_OK);
        put_files(tt_json_get(row.root, "files"), &json);
        check_row(row.root, ++lines);
        assert_int_equal(tt_dir_remove(test_at("folder")), TT_OK);
        tt_json_deinit(&row);
    }
    assert_int_equal(lines, 30);
    tt_str_deinit(&json);
    tt_str_deinit(&text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(tokens_of_other_files)};
    return cmocka_run_group_tests(tests, test_root_create, test_root_remove);
}
