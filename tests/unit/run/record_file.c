/* Records that a resumed run continues: lines up to its step stay, whatever bytes their texts have. A mirror has them
 * all, until it cannot be written. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/file.h"
#include "base/log.h"
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

static int warnings;

static void count_warnings(void *context, enum tt_log_level level, const char *text)
{
    (void)context;
    if (level == TT_LOG_WARNING && strstr(text, "who reads it there gets no more") != NULL) warnings++;
}

static void mirrors(void **state)
{
    static const char path[] = "records.jsonl", mirror[] = "mirror.jsonl";
    struct tt_record_file *file = NULL;
    struct tt_str text = {0};
    (void)state;
    assert_int_equal(tt_record_file_create(path, &file), TT_OK);
    tt_record_file_append(file, "a\n", 2);
    assert_int_equal(tt_record_file_mirror(file, mirror), TT_OK);
    tt_record_file_append(file, "b\n", 2);
    assert_int_equal(tt_file_read(mirror, 1 << 20, &text), TT_OK);
    assert_string_equal(tt_str_text(&text), "a\nb\n");
    tt_log_set_sink(count_warnings, NULL);
    tt_file_fail_at(1, ENOSPC, false);
    tt_record_file_append(file, "c\n", 2);
    tt_record_file_append(file, "d\n", 2);
    tt_record_file_close(file);
    tt_file_fail_at(0, 0, false);
    assert_int_equal(warnings, 1);
    tt_str_clear(&text);
    assert_int_equal(tt_file_read(mirror, 1 << 20, &text), TT_OK);
    assert_string_equal(tt_str_text(&text), "a\nb\n");
    tt_str_clear(&text);
    assert_int_equal(tt_file_read(path, 1 << 20, &text), TT_OK);
    assert_string_equal(tt_str_text(&text), "a\nb\nc\nd\n");
    tt_str_deinit(&text);
    (void)unlink(path);
    (void)unlink(mirror);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(zero_bytes_are_kept), cmocka_unit_test(mirrors)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
