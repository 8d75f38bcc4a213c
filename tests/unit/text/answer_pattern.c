/* text/answer_pattern.h: what Python's re.findall gives for the same pattern and text. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "support/must.h"
#include "text/answer_pattern.h"

static struct tt_span span(const char *text)
{
    return (struct tt_span){text, strlen(text)};
}

static void matches_of_python(void **state)
{
    (void)state;
    static const struct {
        const char *pattern, *text;
        int64_t which;
        const char *found; /* NULL: none */
    } cases[] = {
        {"#### (\\-?[0-9\\.\\,]+)", "so\n#### 1,234.\nmore #### 5", 0, "1,234."},
        {"#### (\\-?[0-9\\.\\,]+)", "so\n#### 1,234.\nmore #### 5", -1, "5"},
        {"#### (\\-?[0-9\\.\\,]+)", "so\n#### 1,234.\nmore #### 5", 1, "5"},
        {"#### (\\-?[0-9\\.\\,]+)", "so\n#### 1,234.\nmore #### 5", 2, NULL},
        {"[0-9]+", "a 12 b 345", 0, "12"},
        {"[0-9]+", "no", 0, NULL},
        {"(a)|(b)", "xxb", 0, "b"},
        {"(x)?(y)?z", "z", 0, ""},
        {"x*", "axb", 0, ""},
        {"x*", "axb", 1, "x"},
        {"x*", "axb", 2, ""},
        {"x*", "axb", 3, ""},
        {"x*", "axb", 4, NULL},
        {"x*", "axb", -1, ""},
        {"x*", "", 0, ""},
        {"^b", "a\nb", 0, NULL},
        {"(?m)^b", "a\nb", 0, "b"},
        {"b$", "a\nb\n", 0, "b"},
        {"a.b", "a\nb", 0, NULL},
        {"(?s)a.b", "a\nb", 0, "a\nb"},
        {"(?i)ANSWER: (?P<letter>[A-D])", "answer: c", 0, "c"},
        {"\\w+", "übergroß", 0, "übergroß"},
        {".", "é", 0, "é"},
        {"(?<=is )\\d", "it is 7", 0, "7"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct tt_answer_pattern *pattern = NULL;
        struct tt_span found = {0};
        bool any = false;
        test_must(tt_answer_pattern_compile(span(cases[i].pattern), &pattern));
        test_must(tt_answer_pattern_find(pattern, span(cases[i].text), cases[i].which, &found, &any));
        if (any != (cases[i].found != NULL)) fail_msg("case %zu: %d", i, any);
        if (any && !tt_span_equals(found, cases[i].found))
            fail_msg("case %zu: '%.*s'", i, (int)found.bytes, found.data);
        tt_answer_pattern_destroy(pattern);
    }
}

static void wrong_patterns(void **state)
{
    (void)state;
    struct tt_answer_pattern *pattern = NULL;
    assert_int_equal(tt_answer_pattern_compile(span("a(b"), &pattern), TT_ERR_DATA);
    assert_int_equal(tt_answer_pattern_compile(span("[z-a]"), &pattern), TT_ERR_DATA);
}

static void steps_are_limited(void **state)
{
    (void)state;
    struct tt_answer_pattern *pattern = NULL;
    struct tt_span found;
    bool any;
    test_must(tt_answer_pattern_compile(span("(?:a*)*\\Bc|(.+)+d"), &pattern));
    assert_int_equal(tt_answer_pattern_find(
                         pattern, span("aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaae"), 0, &found, &any),
                     TT_ERR_DATA);
    assert_non_null(strstr(tt_error_last()->message, "a regular expression takes too many steps"));
    tt_answer_pattern_destroy(pattern);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(matches_of_python),
        cmocka_unit_test(wrong_patterns),
        cmocka_unit_test(steps_are_limited),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
