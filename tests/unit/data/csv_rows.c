/* Rows of CSV files: what quotes hold, lines of the file in messages, and what is refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "base/json.h"
#include "data/dataset.h"
#include "data/rows.h"
#include "support/root.h"

static const struct tt_unpack_limits no_limits, one_row = {.rows = 1};

static void check_row(const struct tt_rows *rows, size_t index, uint64_t line, const char *text)
{
    struct tt_json row = {0}, wanted = {0};
    const struct tt_row_span *span = &rows->spans[index];
    assert_int_equal(span->line, line);
    assert_int_equal(
        tt_json_parse_source(
            &(struct tt_json_source){
                .text = span->data, .bytes = span->bytes, .origin = "row", .first_line = 1, .nul = true},
            &row),
        TT_OK);
    assert_int_equal(tt_json_parse(text, strlen(text), "wanted", &wanted), TT_OK);
    if (!tt_json_equal(row.root, wanted.root)) fail_msg("row %zu is not %s", index, text);
    tt_json_deinit(&row);
    tt_json_deinit(&wanted);
}

static void values(void **state)
{
    (void)state;
    struct tt_rows rows;
    test_put("a.csv",
             "\xef\xbb\xbf"
             "text,\"b \"\"c\"\"\",\r\n1,,\" x\"\n\n\"a\r\nb, \"\"q\"\"\",\\\t,'\nlast,\"\",\xc3\xa9");
    assert_int_equal(tt_rows_open(test_at("a.csv"), &no_limits, &rows), TT_OK);
    assert_int_equal(rows.count, 3);
    check_row(&rows, 0, 2, "{\"text\": \"1\", \"b \\\"c\\\"\": \"\", \"\": \" x\"}");
    check_row(&rows, 1, 4, "{\"text\": \"a\\r\\nb, \\\"q\\\"\", \"b \\\"c\\\"\": \"\\\\\\t\", \"\": \"'\"}");
    check_row(&rows, 2, 6, "{\"text\": \"last\", \"b \\\"c\\\"\": \"\", \"\": \"\xc3\xa9\"}");
    tt_rows_close(&rows);
    assert_int_equal(tt_rows_open(test_at("a.csv"), &one_row, &rows), TT_OK);
    assert_int_equal(rows.count, 1);
    tt_rows_close(&rows);
}

static void refusals(void **state)
{
    (void)state;
    static const struct {
        const char *text, *part;
    } cases[] = {
        {"a,b", "has no rows"},
        {"", "has no rows"},
        {"text,b\n1,2\n\n\"x\ny\",2\n3\n", "row 3 (line 6): 1 fields, but the header has 2"},
        {"text,text\n1,2\n", "two columns are named \"text\""},
        {"text\n\"1\n", "the file ends within quotes"},
        {"text\n\"1\"2\n", "text after the quotes"},
        {"a\n\"x\n\ny\"\nz\n", "row 1 (line 2): neither"},
    };
    const struct tt_data_config config = {.dataset_text_field = "text",
                                          .dataset_prompt_field = "prompt",
                                          .dataset_completion_field = "completion",
                                          .completion_only_loss = -1};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct tt_dataset *dataset = NULL;
        test_put("r.csv", cases[i].text);
        assert_int_equal(tt_dataset_load(test_at("r.csv"), &config, NULL, 10, 0, &dataset), TT_ERR_DATA);
        if (strstr(tt_error_last()->message, cases[i].part) == NULL)
            fail_msg("case %zu: %s", i, tt_error_last()->message);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(values), cmocka_unit_test(refusals)};
    return cmocka_run_group_tests(tests, test_root_create, test_root_remove);
}
