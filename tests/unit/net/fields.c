/* Headers and URLs of strangers as values. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "net/fields.h"
#include "net/url.h"
#include "support/must.h"

static void content_ranges(void **state)
{
    struct tt_content_range range;
    (void)state;
    assert_true(tt_parse_content_range("bytes 4-9/10", &range));
    assert_true(range.first == 4 && range.last == 9 && range.total == 10);
    assert_true(tt_parse_content_range("bytes 0-0/*", &range));
    assert_true(range.total == UINT64_MAX);
    static const char *const wrong[] = {"",
                                        "bytes",
                                        "bytes */10",
                                        "bytes 4-9/9",
                                        "bytes 5-4/",
                                        "items 0-1/2",
                                        "bytes 0-1/2 ",
                                        "bytes -1-2/3",
                                        "bytes 0-1",
                                        "bytes 0-/1",
                                        "bytes 0-1/2000000000000000000000"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_false(tt_parse_content_range(wrong[i], &range));
}

static void pauses(void **state)
{
    double seconds = -1;
    (void)state;
    assert_true(tt_parse_retry_after("120", 0, &seconds) && seconds == 120);
    assert_true(tt_parse_retry_after("Sun, 06 Nov 1994 08:49:37 GMT", 784111777 - 30, &seconds) &&
                seconds == 30);
    assert_true(tt_parse_retry_after("Sun, 06 Nov 1994 08:49:37 GMT", 784111777 + 30, &seconds) &&
                seconds == 0);
    assert_true(tt_parse_retry_after("Thu, 29 Feb 2024 00:00:00 GMT", 1709164800 - 1, &seconds) &&
                seconds == 1);
    static const char *const wrong[] = {"",
                                        "soon",
                                        "-1",
                                        "1.5",
                                        "Sun, 06 Nox 1994 08:49:37 GMT",
                                        "Sun, 06 Nov 1994 25:49:37 GMT",
                                        "Sun, 06 Nov 1994 08:49:37"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_false(tt_parse_retry_after(wrong[i], 0, &seconds));
    assert_true(tt_parse_rate_limit("\"api\";r=0;t=55", &seconds) && seconds == 55);
    assert_false(tt_parse_rate_limit("\"api\";r=0", &seconds));
}

static void urls(void **state)
{
    struct tt_str text = {0};
    struct tt_url_origin origin;
    (void)state;
    test_must(tt_url_append_escaped(&text, "a b/c+d~\xc3\xa4%", true));
    assert_string_equal(text.data, "a%20b/c%2Bd~%C3%A4%25");
    tt_str_clear(&text);
    test_must(tt_url_append_escaped(&text, "refs/pr/1", false));
    assert_string_equal(text.data, "refs%2Fpr%2F1");
    tt_str_deinit(&text);
    assert_true(tt_url_origin("https://[::1]:8443/x", &origin));
    assert_true(origin.port == 8443 && origin.host.bytes == 5);
    assert_true(tt_url_same_origin("HTTP://Host/a", "http://host:80?b"));
    static const char *const others[] = {"https://host/a", "http://host:81/a", "http://host.evil/a",
                                         "http://hos/a",   "http://x@host/a",  "//host/a"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        assert_false(tt_url_same_origin("http://host/a", others[i]));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(content_ranges),
        cmocka_unit_test(pauses),
        cmocka_unit_test(urls),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
