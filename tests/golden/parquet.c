/* Parquet and Arrow files that pyarrow and datasets write give, line by line, the JSON of what pyarrow reads from
 * them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "base/file.h"
#include "data/arrow/arrow.h"
#include "data/parquet/parquet.h"

static tt_status keep(void *context, const char *data, size_t bytes)
{
    return tt_str_append(context, data, bytes);
}

static void expect_same(const char *name, const char *what, uint64_t rows)
{
    const struct tt_parquet_limits limits = {.rows = rows, .total_bytes = 1 << 20};
    struct tt_file_map file, lines;
    struct tt_str text = {0};
    char path[300];
    snprintf(path, sizeof path, "%s/golden/parquet/%s.jsonl", TT_TEST_ROOT, name);
    assert_int_equal(tt_file_map_open(path, &lines), TT_OK);
    snprintf(path, sizeof path, "%s/golden/parquet/%s-%s%s", TT_TEST_ROOT, name, what,
             strchr(what, '.') == NULL ? ".parquet" : "");
    assert_int_equal(tt_file_map_open(path, &file), TT_OK);
    bool arrow = tt_ends_with(path, ".arrow");
    assert_int_equal(tt_parquet_is(&file), !arrow);
    assert_int_equal(tt_arrow_is(&file), arrow);
    if ((arrow ? tt_arrow_read : tt_parquet_read)(path, &file, &limits, keep, &text) != TT_OK)
        fail_msg("%s: %s", what, tt_error_last()->message);
    const char *got = tt_str_text(&text), *expected = (const char *)lines.data, *end = expected + lines.bytes;
    uint64_t row = 1;
    for (; expected < end && (rows == 0 || row <= rows); row++) {
        size_t bytes =
            (size_t)((const char *)memchr(expected, '\n', (size_t)(end - expected)) - expected) + 1;
        if (strncmp(got, expected, bytes) != 0)
            fail_msg("%s, row %llu:\n%.*s\nbut\n%.*s", what, (unsigned long long)row, (int)strcspn(got, "\n"),
                     got, (int)bytes, expected);
        got += bytes;
        expected += bytes;
    }
    assert_int_equal(*got, '\0');
    assert_true(rows == 0 ? expected == end : row == rows + 1);
    tt_str_deinit(&text);
    tt_file_map_close(&file);
    tt_file_map_close(&lines);
}

static void conversations(void **state)
{
    (void)state;
    static const char *const files[] = {"snappy", "zstd-v2",   "gzip-pages", "lz4-plain",     "none-v2-pages",
                                        "deltas", "old-names", "datasets",   "batches.arrow", "slice.arrow"};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        expect_same("chat", files[i], 0);
        expect_same("chat", files[i], 1);
        expect_same("chat", files[i], 23);
        expect_same("chat", files[i], 24);
    }
}

static void types(void **state)
{
    (void)state;
    static const char *const files[] = {"snappy", "plain-v2", "split"};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) expect_same("types", files[i], 0);
    expect_same("kinds", "stream.arrow", 0);
    expect_same("kinds", "file.arrow", 0);
}

static void numbers(void **state)
{
    (void)state;
    expect_same("numbers", "deltas", 0);
    expect_same("numbers", "int96", 0);
    expect_same("sums", "snappy", 0);
    expect_same("sums", "stream.arrow", 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(conversations),
        cmocka_unit_test(types),
        cmocka_unit_test(numbers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
