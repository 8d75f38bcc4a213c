/* Records that a resumed run continues: lines up to its step stay, whatever bytes their texts have. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/file.h"
#include "run/record_file.h"

#define KEPT                                                                                                 \
    "{\"step\": 1, \"completion\": \"a\"}\n{\"step\": 2, \"completion\": \"b\\u0000\\ufffdc\"}\n{\"step\": " \
    "2}\n"

static void zero_bytes_are_kept(void **state)
{
    static const char path[] = "records.jsonl", lines[] = KEPT "{\"step\": 3, \"completion\": \"\\u0000\"}\n";
    struct tt_record_file *file = NULL;
    struct tt_str text = {0};
    (void)state;
    assert_int_equal(tt_file_write_atomic(path, lines, sizeof lines - 1), TT_OK);
    assert_int_equal(tt_record_file_continue(path, 2, &file), TT_OK);
    tt_record_file_close(file);
    assert_int_equal(tt_file_read(path, 1 << 20, &text), TT_OK);
    assert_string_equal(tt_str_text(&text), KEPT);
    tt_str_deinit(&text);
    (void)unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(zero_bytes_are_kept)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
