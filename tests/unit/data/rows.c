/* data/rows.h: how long a row may be, and that the end of a longer one is not looked for. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/file.h"
#include "data/rows.h"
#include "support/root.h"

static void bounds(void **state)
{
    (void)state;
    static const struct {
        const char *name, *text;
        size_t max_rows, max_bytes;
        const char *part; /* NULL: there are `rows` */
        size_t rows;
    } cases[] = {
        {"a.jsonl", "{\"a\": 1}\n{\"a\": 2}\n", 0, 8, NULL, 2},
        {"a.jsonl", "{\"a\": 1}\n{\"a\": 2}", 0, 8, NULL, 2},
        {"a.jsonl", "{\"a\": 1}\n\n{\"a\": 22}\n{}\n", 0, 8,
         "row 2 (line 3): the line is longer than max_row_size (8); it begins 13 bytes before the end", 0},
        {"a.jsonl", "{\"a\": 1}\n{\"a\": 22}", 0, 8, "row 2 (line 2): the line is longer", 0},
        {"a.jsonl", "{\"a\": 1}\n{\"a\": 22}", 1, 8, NULL, 1},
        {"a.jsonl", "{\"a\": 1}\n{\"a\": 22}", 0, 0, NULL, 2},
        {"a.jsonl", "{}\n                     ", 0, 8, "row 2 (line 2)", 0},
        {"a.json", "[{\"a\": 1},\n {\"a\": 2}]", 0, 8, NULL, 2},
        {"a.json", "[{\"a\": 1},\n {\"a\": 22}]", 0, 8, "row 2 (line 2): the element is longer", 0},
        {"a.json", "[{\"a\": \"],],],],],],],]\"}]", 0, 12, "row 1 (line 1): the element is longer", 0},
        {"a.json", "[{\"a\": 1},\n {\"a\": 2", 0, 8, "the list of rows has no end", 0},
        {"a.json", "{\n \"a\": {\"b\": \"}\\\"{\"},\n \"c\": [1]\n}\n", 0, 0, NULL, 1},
        {"a.json", " {\"a\": 1}", 0, 0, NULL, 1},
        {"a.json", "{\"a\": 1}\n{\"a\":\n 2}", 0, 0, NULL, 3}, /* lines */
        {"a.jsonl", "{\n \"a\": 1\n}", 0, 0, NULL, 3},
        {"a.json", "{\"a\": \"\n", 0, 0, NULL, 1},
        {"a.txt", "12345678", 0, 8, NULL, 1},
        {"a.txt", "123456789", 0, 8, NULL, 1}, /* a text file is one text */
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct tt_rows rows = {0};
        assert_int_equal(tt_file_write_atomic(test_at(cases[i].name), cases[i].text, strlen(cases[i].text)),
                         TT_OK);
        const struct tt_unpack_limits limits = {cases[i].max_rows, cases[i].max_bytes, 0};
        tt_status status = tt_rows_open(test_at(cases[i].name), &limits, &rows);
        if (status != (cases[i].part == NULL ? TT_OK : TT_ERR_DATA)) fail_msg("case %zu", i);
        if (cases[i].part != NULL && strstr(tt_error_last()->message, cases[i].part) == NULL)
            fail_msg("case %zu: '%s'", i, tt_error_last()->message);
        if (cases[i].part != NULL) assert_non_null(strstr(tt_error_last()->message, cases[i].name));
        assert_int_equal(rows.count, cases[i].rows);
        tt_rows_close(&rows);
    }
}

/* A file of holes: 64 GiB without a newline, of which a MiB is looked at. */
static void no_end(void **state)
{
    (void)state;
    enum { ROW_BYTES = 1 << 20 };
    static const char *const names[] = {"line.jsonl", "list.json"};
    static const char *const starts[] = {"{", "[{"};
    for (size_t i = 0; i < 2; i++) {
        struct rusage before, after;
        struct tt_rows rows = {0};
        assert_int_equal(tt_file_write_atomic(test_at(names[i]), starts[i], strlen(starts[i])), TT_OK);
        if (truncate(test_at(names[i]), (off_t)64 << 30) != 0) skip(); /* no file of that size here */
        getrusage(RUSAGE_SELF, &before);
        assert_int_equal(
            tt_rows_open(test_at(names[i]), &(struct tt_unpack_limits){.row_bytes = ROW_BYTES}, &rows),
            TT_ERR_DATA);
        getrusage(RUSAGE_SELF, &after);
        assert_non_null(strstr(tt_error_last()->message, "is longer than max_row_size (1048576)"));
        assert_true(after.ru_maxrss - before.ru_maxrss < 16 * ROW_BYTES / 1024);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(bounds), cmocka_unit_test(no_end)};
    return cmocka_run_group_tests(tests, test_root_create, test_root_remove);
}
