/* Every tokenizer of this folder against what the reference library made of the same texts: ids with and
 * without special tokens, decoded text with and without them. cases.jsonl is written by make_tokenizers.py.
 * With another folder as argument it compares the tokenizers of that one (compare_random.py).
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/json.h"
#include "text/tokenizer.h"

struct run {
    const struct tt_tokenizer *tokenizer;
    struct tt_tokenizer_scratch *scratch;
    const char *folder;
    size_t line;
};

static void check_ids(const struct run *run, const struct tt_json_value *row, const char *key,
                      bool add_special)
{
    const struct tt_json_value *text = tt_json_get(row, "text"), *expected = tt_json_get(row, key);
    struct tt_ids ids = {0};
    tt_status status = tt_tokenizer_encode(run->tokenizer, run->scratch, tt_json_span(text).data,
                                           tt_json_span(text).bytes, add_special, &ids);
    if (status != TT_OK) fail_msg("%s:%zu: %s", run->folder, run->line, tt_error_last()->message);
    bool same = ids.count == tt_json_count(expected);
    for (size_t i = 0; same && i < ids.count; i++) {
        same = ids.data[i] == tt_json_integer(tt_json_at(expected, i));
    }
    if (!same) fail_msg("%s:%zu: %s differ for '%s'", run->folder, run->line, key, tt_json_span(text).data);
    tt_ids_deinit(&ids);
}

static void check_text(const struct run *run, const struct tt_json_value *row, const char *key,
                       bool skip_special)
{
    const struct tt_json_value *list = tt_json_get(row, "ids"), *expected = tt_json_get(row, key);
    struct tt_ids ids = {0};
    struct tt_str text = {0};
    for (size_t i = 0; i < tt_json_count(list); i++) {
        assert_int_equal(tt_ids_append(&ids, (int32_t)tt_json_integer(tt_json_at(list, i))), TT_OK);
    }
    tt_status status = tt_tokenizer_decode(run->tokenizer, ids.data, ids.count, skip_special, &text);
    if (status != TT_OK) fail_msg("%s:%zu: %s", run->folder, run->line, tt_error_last()->message);
    if (text.bytes != tt_json_span(expected).bytes ||
        memcmp(tt_str_text(&text), tt_json_span(expected).data, text.bytes) != 0) {
        fail_msg("%s:%zu: %s is '%s', not '%s'", run->folder, run->line, key, tt_str_text(&text),
                 tt_json_span(expected).data);
    }
    tt_ids_deinit(&ids);
    tt_str_deinit(&text);
}

struct walk {
    const char *root;
    size_t folders;
};

static tt_status check_folder(void *context, const char *name)
{
    struct walk *walk = context;
    char folder[1024];
    struct tt_tokenizer *tokenizer = NULL;
    struct tt_str rows = {0};
    snprintf(folder, sizeof folder, "%s/%s", walk->root, name);
    char *path = tt_path_join(folder, "cases.jsonl");
    if (!tt_path_exists(path)) goto out;
    struct run run = {.folder = name};
    if (tt_tokenizer_load(folder, &tokenizer) != TT_OK) fail_msg("%s: %s", name, tt_error_last()->message);
    run.tokenizer = tokenizer;
    assert_int_equal(tt_tokenizer_scratch_create(tokenizer, &run.scratch), TT_OK);
    assert_int_equal(tt_file_read(path, 64 << 20, &rows), TT_OK);
    char *end;
    for (char *line = rows.data; (end = strchr(line, '\n')) != NULL; line = end + 1) {
        struct tt_json row = {0};
        run.line++;
        if (tt_json_parse_source(
                &(struct tt_json_source){
                    .text = line, .bytes = (size_t)(end - line), .origin = name, .nul = true},
                &row) != TT_OK)
            fail_msg("line %zu: %s", run.line, tt_error_last()->message);
        check_ids(&run, row.root, "ids", true);
        check_ids(&run, row.root, "ids_plain", false);
        check_text(&run, row.root, "decoded", false);
        check_text(&run, row.root, "decoded_skip", true);
        tt_json_deinit(&row);
    }
    assert_true(run.line > 50);
    tt_tokenizer_scratch_destroy(run.scratch);
    walk->folders++;
out:
    tt_tokenizer_destroy(tokenizer);
    tt_str_deinit(&rows);
    tt_free(path);
    return TT_OK;
}

static void all_cases(void **state)
{
    struct walk walk = {*state == NULL ? TT_TEST_ROOT "/golden/tokenizer" : *state, 0};
    assert_int_equal(tt_dir_list(walk.root, check_folder, &walk), TT_OK);
    assert_true(walk.folders >= (*state == NULL ? 30 : 1));
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test_prestate(all_cases, argc > 1 ? argv[1] : NULL)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
