/* base/utf8.h, and that errors and log lines show nothing that a terminal obeys. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "base/error.h"
#include "base/log.h"
#include "base/utf8.h"

static const struct {
    const char *text, *shown;
} cases[] = {
    {"plain é 漢 😀", "plain é 漢 😀"},
    {"\x1b[31mred\x1b[0m", "\\x1b[31mred\\x1b[0m"},
    {"a\nerror: forged", "a\\x0aerror: forged"},
    {"tab\there\rback\b", "tab\\x09here\\x0dback\\x08"},
    {"del\x7f", "del\\x7f"},
    {"c1 \xc2\x9b"
     "2J",
     "c1 \\x9b2J"},
    {"bidi \xe2\x80\xae"
     "abc\xe2\x81\xa9",
     "bidi \\u202eabc\\u2069"},
    {"bad \xff\xfe \xc3(", "bad \\xff\\xfe \\xc3("},
    {"over \xc0\xaf surrogate \xed\xa0\x80", "over \\xc0\\xaf surrogate \\xed\\xa0\\x80"},
};

static void printable(void **state)
{
    (void)state;
    char out[128], again[128];
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        size_t needed = tt_utf8_printable(cases[i].text, strlen(cases[i].text), "", out, sizeof out);
        assert_string_equal(out, cases[i].shown);
        assert_int_equal(needed, strlen(out));
        (void)tt_utf8_printable(out, strlen(out), "", again, sizeof again);
        assert_string_equal(again, out);
    }
    assert_int_equal(tt_utf8_printable("a\0b\n", 4, "\n\t", out, sizeof out), 7);
    assert_string_equal(out, "a\\x00b\n");
    /* Cut between characters, never within one. */
    assert_int_equal(tt_utf8_printable("ab漢c", 6, "", out, 5), 6);
    assert_string_equal(out, "ab");
}

static void in_errors(void **state)
{
    (void)state;
    char text[2048];
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        (void)tt_fail(TT_ERR_DATA, "'%s'", cases[i].text);
        tt_while("reading '%s'", cases[i].text);
        tt_hint("not '%s'", cases[i].text);
        const struct tt_error *error = tt_error_last();
        assert_non_null(strstr(error->message, cases[i].shown));
        assert_non_null(strstr(error->context[0], cases[i].shown));
        assert_non_null(strstr(error->hint, cases[i].shown));
    }
    /* A record that another process sent. */
    struct tt_error received = {
        .status = TT_ERR_PEER, .message = "a\x1b[2J", .context_count = 1, .hint = "b\nc"};
    strcpy(received.context[0], "c\x07");
    assert_int_equal(tt_error_restore(&received), TT_ERR_PEER);
    tt_error_format(tt_error_last(), text, sizeof text);
    assert_string_equal(text, "error: a\\x1b[2J\n  while c\\x07\n  hint: b\\x0ac");
}

static void keep_line(void *context, enum tt_log_level level, const char *line)
{
    (void)level;
    snprintf(context, 256, "%s", line);
}

static void in_log_lines(void **state)
{
    (void)state;
    char line[256] = "";
    tt_log_set_sink(keep_line, line);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        tt_warn("%s: %s", "file", cases[i].text);
        assert_non_null(strstr(line, cases[i].shown));
    }
    tt_log_set_sink(NULL, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(printable),
        cmocka_unit_test(in_errors),
        cmocka_unit_test(in_log_lines),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
