/* Rows of a file: texts of any bytes are rows, and what is none is counted. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/file.h"
#include "monitor/rows.h"

static tt_status take(void *context, const struct tt_json_value *row)
{
    struct tt_span *last = context;
    static char kept[64];
    struct tt_span text = tt_json_span(tt_json_get(row, "completion"));
    assert_true(text.bytes <= sizeof kept);
    if (text.bytes > 0) memcpy(kept, text.data, text.bytes);
    *last = (struct tt_span){kept, text.bytes};
    return TT_OK;
}

static void zero_bytes_are_rows(void **state)
{
    static const char path[] = "rows.jsonl",
                      lines[] = "{\"step\": 1}\nno row\n{\"step\": 2, \"completion\": \"b\\u0000c\"}\n";
    struct tt_rows rows = {0};
    struct tt_span last = {0};
    bool anew;
    (void)state;
    assert_int_equal(tt_file_write_atomic(path, lines, sizeof lines - 1), TT_OK);
    assert_int_equal(tt_rows_read(&rows, path, false, take, &last, &anew), TT_OK);
    tt_error_clear();
    assert_int_equal(rows.broken, 1);
    assert_int_equal(last.bytes, 3);
    assert_memory_equal(last.data, "b\0c", 3);
    (void)unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(zero_bytes_are_rows)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
