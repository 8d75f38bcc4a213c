#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>
#include "base/regex.h"
#include "support/allocations.h"

static bool matches(const char *expression, const char *text)
{
    struct tt_regex *regex = NULL;
    bool matched = false;
    assert_int_equal(tt_regex_compile(expression, &regex), TT_OK);
    assert_int_equal(tt_regex_fullmatch(regex, text, &matched), TT_OK);
    tt_regex_destroy(regex);
    return matched;
}

static void matches_the_whole_text(void **state)
{
    (void)state;
    assert_true(matches(".*\\.(q|v)_proj", "model.layers.0.self_attn.q_proj"));
    assert_false(matches("(q|v)_proj", "model.layers.0.self_attn.q_proj"));
    assert_false(matches("a|ab", "abc"));
    assert_true(matches("a|ab", "ab")); /* a full match tries all alternatives */
    assert_true(matches("", ""));
    assert_false(matches("", "a"));
    assert_true(matches("(?P<x>a)(?P=x)", "aa"));
    assert_true(matches("[A-Z]+\\d{2}", "AB12"));
}

static void names_what_is_wrong(void **state)
{
    struct tt_regex *regex = NULL;
    (void)state;
    assert_int_equal(tt_regex_compile("model.(q_proj", &regex), TT_ERR_USAGE);
    assert_null(regex);
    assert_non_null(strstr(tt_error_last()->message, "model.(q_proj"));
    tt_regex_destroy(NULL);
}

static void does_not_backtrack_without_end(void **state)
{
    struct tt_regex *regex = NULL;
    bool matched = false;
    (void)state;
    assert_int_equal(tt_regex_compile("(a+)+(b|c)*(a+)+$x", &regex), TT_OK);
    assert_int_equal(tt_regex_fullmatch(regex,
                                        "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaab",
                                        &matched) == TT_OK &&
                         matched,
                     false);
    tt_regex_destroy(regex);
}

static tt_status compile(void *context)
{
    struct tt_regex *regex = NULL;
    (void)context;
    tt_status status = tt_regex_compile("a.*", &regex);
    tt_regex_destroy(regex);
    return status;
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    test_allocations_fail(compile, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(matches_the_whole_text),
        cmocka_unit_test(names_what_is_wrong),
        cmocka_unit_test(does_not_backtrack_without_end),
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
